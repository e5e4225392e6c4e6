"""Figures of the papers, drawn from runs."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import oracles
import pytest

from keras_xmr.experiments.config.fidelity_table import rows
from keras_xmr.experiments.config.packaged_configs import packaged_ablations, packaged_configs
from keras_xmr.experiments.evaluation.split_evaluation import EmbeddedSplit
from keras_xmr.experiments.reports.figures import (
    FIGURES,
    FigureOptions,
    curves,
    draw_figure,
    planes,
    sets,
)
from keras_xmr.experiments.reports.figures.analyses import entropy_by_captions
from keras_xmr.experiments.reports.figures.curves import differing_option, draw_sweep, flat
from keras_xmr.experiments.reports.figures.sets import recall_by_scales, sub_embedding_correlation
from keras_xmr.experiments.reports.pictures import save_plot
from keras_xmr.metrics.entropy import TEMPERATURE
from keras_xmr.reranking import FastReranking
from keras_xmr.utils.errors import UserError

ROOT = Path(__file__).parents[4]


def swept(monkeypatch, **by_beta):
    """Runs that differ in beta; R-Precision of images as queries is R@1."""
    runs = []
    for name, (beta, recall) in by_beta.items():
        content = {"name": name, "objective": [{"beta": beta, "margin": 0.2}]}
        config = SimpleNamespace(name=name, model_dump=lambda mode, content=content: content)
        runs.append(SimpleNamespace(config=config, recall=recall))

    def summary(run, options):
        of_images = dict.fromkeys(("i2t_recall_1", "i2t_r_precision"), run.recall)
        return of_images | {"t2i_recall_1": run.recall / 2, "t2i_r_precision": run.recall / 5}

    monkeypatch.setattr(curves, "summary_of", summary)
    return runs


def test_a_sweep_is_drawn_along_the_option_that_differs(monkeypatch):
    runs = swept(monkeypatch, c=(3, 0.3), a=(1, 0.1), b=(2, 0.2))
    left, right = draw_sweep(runs, FigureOptions()).axes
    assert left.get_xlabel() == right.get_xlabel() == "objective.0.beta"
    for axis, factors in ((left, {"R@1": 10}), (right, {"R@1": 5, "R-P": 2})):
        assert [line.get_label() for line in axis.lines] == list(factors)
        for line, factor in zip(axis.lines, factors.values(), strict=True):
            assert list(line.get_xdata()) == [1, 2, 3]
            np.testing.assert_allclose(line.get_ydata(), [factor, 2 * factor, 3 * factor])


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"beta": 1.0, "margin": 0.2}, "differ in no option"),
        ({"beta": 9.0, "margin": 0.7}, "differ in objective.0.beta, objective.0.margin"),
        ({"beta": "large", "margin": 0.2}, "has no number"),
    ],
)
def test_runs_that_are_no_sweep_are_refused(other, message):
    configs = [dict(flat({"objective": [o]})) for o in ({"beta": 1.0, "margin": 0.2}, other)]
    with pytest.raises(UserError, match=message):
        differing_option(configs)


def test_weights_that_add_up_to_1_are_one_option():
    configs = [{"a.weight": eta, "b.weight": 1 - eta} for eta in (0.4, 0.6)]
    assert differing_option(configs) == "a.weight"
    # So are those of the scenes, where the second has a tenth of its weight.
    configs = [{"a.weight": eta, "b.weight": rest} for eta, rest in ((0.8, 0.02), (0.6, 0.041))]
    assert differing_option(configs) == "a.weight"
    with pytest.raises(UserError, match="differ in a"):
        differing_option([{"a.weight": eta, "b.weight": 2 * eta} for eta in (0.4, 0.6)])


def test_correlation_is_that_of_numpy_and_missing_where_a_member_is_masked(random):
    vectors = random.normal(size=(4, 30))
    np.testing.assert_allclose(sub_embedding_correlation(vectors), np.corrcoef(vectors))
    vectors[2] = 0
    found = sub_embedding_correlation(vectors)
    assert np.isnan(found[2]).all()
    assert np.isfinite(found[np.ix_([0, 1, 3], [0, 1, 3])]).all()


@pytest.mark.parametrize("side", ["image_to_text", "text_to_image"])
def test_recalls_of_all_scales_are_those_of_the_re_ranker(random, side):
    owner = np.repeat(np.arange(12), 3)
    scores = random.normal(size=(12, 36)) / 4 + np.eye(12)[:, owner] / 4
    scales = (1.0, 10.0, 40.0)
    found = recall_by_scales(scores, owner, side, scales)
    for row, sums in enumerate(scales):
        for column, own in enumerate(scales):
            pair = {"gamma1": sums, "gamma2": own, "lambda1": sums, "lambda2": own}
            i2t, t2i = FastReranking(**pair)(scores)
            right = owner[None, :] == np.arange(12)[:, None]
            matrix, wanted = (i2t, right) if side == "image_to_text" else (t2i.T, right.T)
            values = [
                oracles.query_metrics(matrix[q], wanted[q])["recall_1"] for q in range(len(matrix))
            ]
            assert found[row, column] == pytest.approx(np.mean(values))


def test_the_axes_of_scales_are_those_of_the_paper():
    assert sets.SCALES[:3] == (1, 5, 10)
    assert {45, 50, 450, 500, 1500} <= set(sets.SCALES)
    assert len(sets.SCALES) == 30


def test_figures_that_cannot_be_drawn_are_refused(tmp_path):
    for name, runs, message in (
        ("wei2023:99", [1], "unknown figure 'wei2023:99'"),
        ("wei2023:6", [], "give --run="),
        ("wei2023:7", [1, 2], "is of one run, and 2 were given"),
    ):
        with pytest.raises(UserError, match=message):
            draw_figure(name, runs, FigureOptions(), tmp_path / "x.png")


def test_table_of_figures_has_every_figure_of_the_command():
    path = ROOT / "docs" / "tables" / "figures.csv"
    with path.open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    drawn = {line["command"].split()[2] for line in lines if " figure " in line["command"]}
    assert drawn == set(FIGURES)
    assert all(line["command"] or line["words"] for line in lines)
    runs = {run for line in lines for run in re.findall(r"saved_models/(\w+)", line["command"])}
    assert runs - packaged_configs().keys() - packaged_ablations().keys() == set()
    assert rows()


def test_entropy_by_captions_leaves_out_further_captions_of_an_image(random):
    owner = np.array([1, 0, 0, 1, 2, 0])
    images, captions = random.normal(size=(3, 2, 4)), random.normal(size=(6, 4))
    unit = [v / np.linalg.norm(v, axis=-1, keepdims=True) for v in (images, captions)]
    found = entropy_by_captions(EmbeddedSplit({"points": images}, {"mean": captions}), owner)
    assert len(found) == 3
    for count, value in enumerate(found, 1):
        expected = []
        for image in range(3):
            own = [c for c in range(6) if owner[c] == image][:count]
            others = [c for c in range(6) if owner[c] != image]
            for member in unit[0][image]:
                cosines = np.array([member @ unit[1][caption] for caption in own + others])
                odds = np.exp(cosines / TEMPERATURE)
                shares = odds / odds.sum()
                terms = [*shares[: len(own)], shares[len(own) :].sum()]
                expected.append(-sum(p * np.log(p) for p in terms))
        assert value == pytest.approx(np.mean(expected))
    with pytest.raises(UserError, match="embeds captions as sets"):
        entropy_by_captions(EmbeddedSplit({"points": images}, {"points": images}), owner)


def test_the_plane_has_an_ellipse_per_item_of_the_classes_drawn(monkeypatch, random, tmp_path):
    """Images and captions in one plane: of nine classes of two images four are drawn."""

    def gaussians(count):
        return {"mean": random.normal(size=(count, 2)), "log_variance": np.zeros((count, 2))}

    embedded = EmbeddedSplit(gaussians(18), gaussians(54))
    monkeypatch.setattr(planes, "embed_split", lambda *_: embedded)
    monkeypatch.setattr(planes, "embed_captions", lambda *_: gaussians(1))
    labels = [(number // 2,) for number in range(18)]
    part = SimpleNamespace(caption_image=np.arange(54) // 3, labels=labels)
    records = SimpleNamespace(split=lambda name: part, label_kind="class")
    options = SimpleNamespace(evaluation=SimpleNamespace(batch_size=8))
    run = SimpleNamespace(
        records=records, embedded_records=records, retriever=None, tokenizer=None, config=options
    )
    left, right = (drawing := planes.draw_plane([run], FigureOptions(classes=4))).axes
    assert [len(axis.patches) for axis in (left, right)] == [8, 25]
    assert left.get_xlim() == right.get_xlim()
    assert left.get_ylim() == right.get_ylim()
    assert np.ptp(left.get_xlim()) == pytest.approx(np.ptp(left.get_ylim()))
    first = left.patches[0]
    width = 2 * np.sqrt(2 * np.log(2))  # Half of a standard normal in the plane is within it.
    np.testing.assert_allclose((first.width, first.height), width)
    assert save_plot(drawing, tmp_path / "x.png").stat().st_size > 5_000


@pytest.mark.slow
def test_pictures_of_a_trained_run(trained, tmp_path):
    """Two of a tiny PCME, whose numbers mean nothing: the mixture, and the grid of scales."""
    options = FigureOptions(grid=(1.0, 20.0))
    for name in (
        "chun2021:8",
        "wei2023:7",
        "chun2021:eq5",
        "wei2023:eq2",
        "li2022:1a",
        "wei2023:10",
    ):
        assert draw_figure(name, [trained], options, tmp_path / "x.png").stat().st_size > 5_000
    with pytest.raises(UserError, match="no sub-embeddings"):
        draw_figure("wei2023:6", [trained], options, tmp_path / "x.png")
    with pytest.raises(UserError, match="two dimensions"):
        draw_figure("chun2021:5", [trained], options, tmp_path / "x.png")
