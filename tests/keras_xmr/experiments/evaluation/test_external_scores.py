"""Scores and embeddings of other models."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from command_line import start

from keras_xmr.commands import _cli as cli
from keras_xmr.experiments.evaluation.external_scores import ExternalScores, run
from keras_xmr.experiments.evaluation.score_files import load_matrix, similarity
from keras_xmr.experiments.evaluation.table import results_of
from keras_xmr.experiments.reports.result_tables import result_tables
from keras_xmr.judgements import Judgements, JudgementsError
from keras_xmr.metrics import ScoreMatrices, evaluate_scores, semantic_precision
from keras_xmr.metrics.results import Results
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.plugins import remove_plugins

OWNER = np.array([0, 0, 1, 2, 2, 2, 3, 5])
LABELS = {0: [5, 9], 1: [5, 9], 2: [9], 3: [5], 5: [5, 9]}


@pytest.fixture
def folder(tmp_path, random):
    """Six images and eight captions as COCO has them, and scores."""
    captions = {
        "images": [{"id": 100 + i} for i in range(6)],
        "annotations": [
            {"id": 7 * c, "image_id": int(100 + i), "caption": f"caption {c}"}
            for c, i in enumerate(OWNER)
        ],
    }
    (tmp_path / "captions.json").write_text(json.dumps(captions))
    instances = {
        "categories": [{"id": 5}, {"id": 9}],
        "annotations": [
            {"image_id": 100 + i, "category_id": label}
            for i, labels in LABELS.items()
            for label in labels
        ],
    }
    (tmp_path / "instances.json").write_text(json.dumps(instances))
    np.save(tmp_path / "scores.npy", random.normal(size=(6, 8)).astype(np.float32))
    return tmp_path


def test_every_metric_from_files(folder, random, capsys):
    scores = np.load(folder / "scores.npy")
    relevance = random.random((6, 8)).astype(np.float32)
    other = random.normal(size=(6, 8))
    np.savez(folder / "relevance.npz", relevance)
    np.save(folder / "other.npy", other)
    (folder / "mine.csv").write_text("image,caption,grade\n100,7,1\n104,0,2\n")
    evaluation = run(
        ExternalScores(
            folder / "captions.json",
            scores=folder / "scores.npy",
            text_to_image_scores=folder / "other.npy",
            judgements=[str(folder / "mine.csv")],
            labels=folder / "instances.json",
            relevance=folder / "relevance.npz",
            folds=2,
        )
    )
    measured = evaluation.measured["scores"]
    summary = measured.metrics.summary
    judgements, both = Judgements.from_pairs(OWNER, 6), ScoreMatrices(scores, other)
    expected = evaluate_scores(both, judgements, [5, 10]).summary
    expected |= semantic_precision(both, relevance).summary
    assert {name: summary[name] for name in expected} == expected
    assert 0 <= summary["i2t_pmrp"] <= 1
    assert measured.folds["i2t_mean_rank"] >= 1
    assert np.nansum(measured.extra["mine"].image_to_text.positives) == 2

    printed = "\n".join(map(str, result_tables(results_of(evaluation))))
    for text in ("R@1", "PMRP", "ASP", "relevant@5", "mine", "mean over folds", "released"):
        assert text in printed
    assert max(map(len, printed.splitlines())) < 200
    written = folder / "scores-evaluation" / "evaluation" / "test"
    assert str(written / "results.csv") in capsys.readouterr().out
    results = Results.read(written / "results.csv")
    assert results == results_of(evaluation)
    own = results.select(method="model", queries="all", minus="")
    assert own.select(judgements="annotated").summary() == summary
    assert own.distinct("judgements") == ["annotated", "mine", ""]
    queries = np.load(written / "queries-test.npz")
    assert list(queries["image_ids"]) == [str(100 + i) for i in range(6)]
    assert queries["scores/t2i_recall_1"].shape == queries["caption_ids"].shape == (8,)


OWN_METRIC = """
import numpy as np

from keras_xmr.metrics import QueryMetric


class Lead(QueryMetric):
    TITLE = "lead"
    UNIT = "count"

    def __call__(self, scores, judgements):
        right = judgements.grades.toarray() > 0
        best = np.where(right, scores, -np.inf).max(axis=1)
        return np.where(right.any(axis=1), best - scores.max(axis=1), np.nan)
"""


def test_scores_are_measured_by_metrics_of_ones_own(folder, monkeypatch, capsys):
    monkeypatch.syspath_prepend(folder)
    (folder / "my_lead.py").write_text(OWN_METRIC)
    given = [f"--scores={folder / 'scores.npy'}", f"--ground-truth={folder / 'captions.json'}"]
    metrics = ["--plugin=my_lead", "--metric=lead", "--metric={name: discounted_gain, k: 3}"]
    try:
        cli.main(["main.py", "evaluate", *given, *metrics])
    finally:
        remove_plugins(["my_lead"])
        sys.modules.pop("my_lead", None)
    assert "lead" in capsys.readouterr().out
    path = folder / "scores-evaluation" / "evaluation" / "test" / "results.csv"
    summary = Results.read(path).select(method="model", queries="all", minus="").summary()
    scores = np.load(folder / "scores.npy")
    right = np.arange(6)[:, None] == OWNER
    best = np.where(right, scores, -np.inf).max(axis=1) - scores.max(axis=1)
    assert summary["i2t_lead"] == pytest.approx(best[right.any(axis=1)].mean(), abs=1e-6)
    assert {"t2i_lead", "i2t_discounted_gain"} <= summary.keys()


def test_embeddings_are_scored_by_cosine(folder, random):
    images, captions = random.normal(size=(6, 3)), random.normal(size=(8, 3))
    images[2] = 0
    norms = np.linalg.norm(images, axis=1)[:, None] * np.linalg.norm(captions, axis=1)
    expected = np.divide(images @ captions.T, norms, out=np.zeros((6, 8)), where=norms > 0)
    np.testing.assert_allclose(similarity(images, captions), expected, atol=1e-6)
    dot = similarity(images, captions, "dot")
    np.testing.assert_allclose(dot, images @ captions.T, atol=1e-6)
    np.save(folder / "images.npy", images)
    np.save(folder / "captions.npy", captions.astype(np.float16))
    found = run(
        ExternalScores(
            folder / "captions.json",
            image_embeddings=folder / "images.npy",
            caption_embeddings=folder / "captions.npy",
            output=folder / "there",
        )
    )
    judgements = Judgements.from_pairs(OWNER, 6)
    plain = evaluate_scores(expected, judgements, [5, 10]).summary
    summary = found.measured["scores"].metrics.summary
    assert {name: summary[name] for name in plain} == pytest.approx(plain, abs=0.2)
    assert (folder / "there" / "evaluation" / "test" / "results.csv").exists()


def test_bytes_after_an_array_are_refused(folder):
    scores = folder / "scores.npy"
    scores.write_bytes(scores.read_bytes() * 2)
    with pytest.raises(UserError, match="bytes after its array"):
        run(ExternalScores(folder / "captions.json", scores=scores))


def test_cosine_does_not_depend_on_the_magnitude_or_the_type_of_embeddings(random):
    images, captions = random.normal(size=(6, 3)), random.normal(size=(8, 3))
    images[2] = 0
    expected = similarity(images, captions)
    for scale in (1e18, 1e30, 1e-30, 1e-36, 1e200):
        dtype = np.float64 if scale > 1e38 else np.float32
        found = similarity((images * scale).astype(dtype), (captions / scale).astype(dtype))
        np.testing.assert_allclose(found, expected, atol=1e-4)
    numbers = np.array([[-128, 0], [127, 127]], np.int8)
    np.testing.assert_allclose(
        similarity(numbers, numbers), [[1, -(0.5**0.5)], [-(0.5**0.5), 1]], rtol=1e-6
    )


def test_embeddings_without_a_usable_score_are_told(random):
    images, captions = random.normal(size=(6, 3)), random.normal(size=(8, 3))
    with pytest.raises(UserError, match="too large for an inner product in float32"):
        similarity(1e30 * images, 1e30 * captions, "dot")
    with pytest.raises(UserError, match="NaN or infinite"):
        similarity(np.where(images == images.max(), np.inf, images), captions)
    with pytest.raises(UserError, match="no numbers"):
        similarity(images[:, :0], captions[:, :0])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda s: s[:5], "is 5 x 8, but .*json has 6 images and 8 captions: rows are images"),
        (lambda s: s.T, "save its transpose"),
        (lambda s: s[0], "a matrix of numbers is expected"),
        (lambda s: s > 0, "holds bool of shape"),
        (lambda s: np.where(s == s.max(), np.nan, s), "query . is NaN"),
    ],
)
def test_scores_that_do_not_fit_are_told(folder, change, says):
    scores = np.load(folder / "scores.npy")
    np.save(folder / "wrong.npy", change(scores))
    with pytest.raises(UserError, match=says):
        run(ExternalScores(folder / "captions.json", scores=folder / "wrong.npy"))


def test_files_that_are_no_matrices_are_told(folder):
    (folder / "text.npy").write_text("0 1 2")
    with pytest.raises(UserError, match="not an array as"):
        load_matrix(folder / "text.npy")
    np.savez(folder / "two.npz", a=np.zeros((2, 2)), b=np.zeros((2, 2)))
    with pytest.raises(UserError, match=r"2 arrays \(a, b\)"):
        load_matrix(folder / "two.npz")
    with pytest.raises(UserError, match="does not exist"):
        load_matrix(folder / "none.npy")
    np.savez(folder / "locked.npz", np.eye(3))
    content = bytearray((folder / "locked.npz").read_bytes())
    directory = content.rindex(b"PK\1\2")
    for place, value, says in ((8, 1, "encrypted"), (10, 32, "compression"), (6, 255, "version")):
        damaged = content.copy()
        damaged[directory + place] = value
        (folder / "locked.npz").write_bytes(damaged)
        with pytest.raises(UserError, match=rf"locked\.npz is not an array .*{says}"):
            load_matrix(folder / "locked.npz")
    np.save(folder / "images.npy", np.zeros((6, 3)))
    np.save(folder / "captions.npy", np.zeros((8, 4)))
    own = ExternalScores(folder / "captions.json", image_embeddings=folder / "images.npy")
    with pytest.raises(UserError, match="both --image-embeddings and --caption-embeddings"):
        run(own)
    both = ExternalScores(
        folder / "captions.json", folder / "s.npy", caption_embeddings=folder / "c.npy"
    )
    with pytest.raises(UserError, match="not both"):
        run(both)
    with pytest.raises(UserError, match="needs --scores"):
        run(ExternalScores(folder / "captions.json", text_to_image_scores=folder / "s.npy"))
    with pytest.raises(UserError, match="must have one dimension"):
        similarity(np.zeros((6, 3)), np.zeros((8, 4)))


def test_inner_products_that_vanish_are_refused(random):
    images, captions = random.normal(size=(4, 3)), random.normal(size=(5, 3))
    images[0] = captions[0] = 0  # A vector of zeros is as it was.
    for scales in ((1e-200, 1.0), (1e-200, 1e-200), (1e-25, 1e-25), (1e-41, 1e20)):
        tiny = [side * scale for side, scale in zip((images, captions), scales, strict=True)]
        with pytest.raises(UserError, match="too small for an inner product in float32"):
            similarity(*tiny, "dot")
        np.testing.assert_allclose(
            similarity(*tiny, "cosine"), similarity(images, captions, "cosine"), atol=1e-6
        )
    images[1, 0] = 1e-200  # Beside numbers of size 1 it changes nothing.
    np.testing.assert_allclose(similarity(images, captions, "dot"), images @ captions.T, atol=1e-5)


def test_score_files_of_whole_numbers_beyond_float64_are_refused(folder):
    np.save(folder / "big.npy", np.arange(48).reshape(6, 8) + (1 << 53))
    with pytest.raises(UserError, match=r"big.npy are whole numbers beyond 2\^53"):
        run(ExternalScores(folder / "captions.json", folder / "big.npy"))


def test_equal_captions_of_a_csv_are_explained(tmp_path):
    (tmp_path / "g.csv").write_text("image,caption\na,x\nb,x\nc,y\n")
    np.save(tmp_path / "s.npy", np.zeros((3, 3)))
    with pytest.raises(UserError, match="caption_id distinguishes them"):
        run(ExternalScores(tmp_path / "g.csv", scores=tmp_path / "s.npy"))
    embeddings = {f"{kind}_embeddings": tmp_path / "s.npy" for kind in ("image", "caption")}
    with pytest.raises(UserError, match=r"2 captions: .* caption_id distinguishes them"):
        run(ExternalScores(tmp_path / "g.csv", **embeddings))


@pytest.mark.slow
def test_the_command_line_needs_no_tensorflow(folder):
    done = start(
        "evaluate",
        "--scores=scores.npy",
        "--ground-truth=captions.json",
        "--folds=2",
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    assert "mAP@R" in done.stdout
    assert "scores-evaluation/evaluation/test/results.csv" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--scores=scores.npy", "--ground-truth=g.csv"], "run has no option --scores"),
        (["evaluate", "--scores=scores.npy"], "--ground-truth is missing"),
        (
            ["evaluate", "--ground-truth=g.csv", "--set", "seed=1"],
            "--set and --ground-truth exclude each other: --set is for trained models",
        ),
        (
            ["evaluate", "--runs=a,b", "--rerank=fast_reranking"],
            "--runs and --rerank exclude each other",
        ),
        (
            ["evaluate", "--ground-truth=g.csv", "--rerank=fast_rernking"],
            "error: --rerank fast_rernking: name: got 'fast_rernking', which is not known. Did you",
        ),
        (
            ["evaluate", "--ground-truth=g.csv", "--rerank={name: fast_reranking, presett: cub}"],
            "presett: unknown key. Did you mean 'preset'?",
        ),
        (
            ["evaluate", "--ground-truth=g.csv", "--folds=-1"],
            "'-1' is not a valid integer",
        ),
        (["evaluate", "--ground-truth=none.csv"], "none.csv does not exist"),
        (
            ["evaluate", "--ground-truth=g.csv", "--scores=s.npy", "--similarity=dot"],
            "--similarity is for embeddings",
        ),
    ],
)
def test_mistakes_on_the_command_line_are_told(tmp_path, monkeypatch, capsys, arguments, says):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        cli.main(["main.py", *arguments])
    assert ended.value.code
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("names", [["annotated"], ["more/mine", "mine"]])
def test_judgements_replace_no_other_figures(folder, names):
    (folder / "more").mkdir()
    for name in names:
        (folder / f"{name}.csv").write_text("image,caption\n100,0\n")
    sources = [str(folder / f"{name}.csv") for name in names]
    own = ExternalScores(folder / "captions.json", scores=folder / "scores.npy", judgements=sources)
    with pytest.raises(JudgementsError, match=f"figures named '{Path(sources[-1]).stem}'"):
        run(own)
