"""The numbers of the uncertainty report and of curves, against loops that do what papers say."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure

from data_pipelines.text import dropped
from keras_xmr.experiments.config.loader import load_config
from keras_xmr.experiments.config.packaged_configs import find_config
from keras_xmr.experiments.evaluation.score_curves import (
    plausible_counts,
    plausible_match_by_zeta,
    relevance_by_rank,
)
from keras_xmr.experiments.evaluation.split_evaluation import (
    EmbeddedSplit,
    Evaluation,
    MatcherEvaluation,
)
from keras_xmr.experiments.evaluation.table import results_of
from keras_xmr.experiments.evaluation.uncertainty.assessment import (
    Reliability,
    bins,
    narrow_gaps,
    reliability_of_best,
    reliability_of_pairs,
    risk_coverage,
)
from keras_xmr.experiments.evaluation.uncertainty.probes import (
    SHARES,
    Probes,
    drop_from_captions,
    erase_images,
    erased,
)
from keras_xmr.experiments.reports.evaluation_plots import curve_pictures
from keras_xmr.experiments.reports.metric_tables import glossary
from keras_xmr.experiments.reports.result_tables import summary_table
from keras_xmr.experiments.reports.uncertainty_report import (
    UncertaintyReport,
    uncertainty_pictures,
)
from keras_xmr.experiments.run_texts import what_next
from keras_xmr.experiments.runs.folder import RunFolder
from keras_xmr.judgements import GroundTruth, Judgements
from keras_xmr.metrics import METRICS, measure, metric_names
from keras_xmr.metrics.results import rows_of
from keras_xmr.metrics.score_matrices import ScoreMatrices
from keras_xmr.parts.registry import components, summary_of


def mean_risk(order, wrong):
    """AURC by its definition: the mean share of wrong ones among the first 1, 2, ..."""
    return np.mean([wrong[order[:count]].mean() for count in range(1, len(order) + 1)])


def test_the_area_is_that_of_the_definition(random):
    sigma, correct = random.normal(size=40), (random.uniform(size=40) < 0.6).astype(float)
    found = risk_coverage(sigma, correct)
    assert found.area == pytest.approx(mean_risk(np.argsort(sigma), 1 - correct))
    assert found.best_area == pytest.approx(mean_risk(np.argsort(-correct), 1 - correct))
    assert found.best_area <= found.area
    assert risk_coverage(1 - correct, correct).gain == pytest.approx(1)
    assert risk_coverage(correct, correct).gain < 0


def test_queries_that_are_as_sure_have_no_order(random):
    sigma, correct = (
        random.integers(0, 4, 30).astype(float),
        random.integers(0, 2, 30).astype(float),
    )
    areas = [
        mean_risk(np.lexsort((random.uniform(size=30), sigma)), 1 - correct) for _ in range(500)
    ]
    assert risk_coverage(sigma, correct).area == pytest.approx(np.mean(areas), abs=0.015)
    some = risk_coverage(np.array([1.0, 2.0, 3.0]), np.array([1.0, np.nan, 0.0]))
    assert some.coverage.tolist() == [0.5, 1.0]
    constant = risk_coverage(np.zeros(30), correct)
    assert (constant.area, constant.gain) == pytest.approx((constant.random_area, 0))
    assert risk_coverage(sigma, np.ones(30)).gain == 0


def test_a_query_is_unsure_where_the_first_two_scores_are_close(random):
    scores = random.normal(size=(30, 9))
    ordered = np.sort(scores, axis=1)
    np.testing.assert_array_equal(narrow_gaps(scores), ordered[:, -2] - ordered[:, -1])
    assert narrow_gaps(np.array([[3.0, 1.0], [2.0, 2.0]])).tolist() == [-2, 0]


def test_the_calibration_error_is_that_of_the_definition(random):
    logits = random.normal(size=(20, 30)).astype(np.float32)
    judgements = Judgements.from_pairs(random.integers(0, 20, 30), 20)
    right = judgements.grades.toarray() > 0
    probability = 1 / (1 + np.exp(-logits.astype(np.float64)))

    def ece(p, r):
        gaps = 0.0
        for place in range(15):
            inside = (p >= place / 15) & (p < (place + 1) / 15)
            if inside.any():
                gaps += inside.sum() * abs(p[inside].mean() - r[inside].mean())
        return gaps / len(p)

    found = reliability_of_pairs(logits, judgements)
    assert found.count.sum() == 600
    assert found.error == pytest.approx(ece(probability.ravel(), right.ravel()))
    rows, best = np.arange(20), logits.argmax(axis=1)
    expected = ece(probability[rows, best], right[rows, best])
    assert reliability_of_best(logits, judgements).error == pytest.approx(expected)
    sure = np.where(right, 50.0, -50.0)
    assert reliability_of_pairs(sure, judgements).error == pytest.approx(0)
    assert reliability_of_pairs(-sure, judgements).error == pytest.approx(1)


def test_intervals_of_reliability_are_those_of_wilson():
    from scipy.stats import binomtest

    found = Reliability(np.array([10, 0, 7]), np.full(3, 0.5), np.array([0.3, np.nan, 1.0]))
    low, high = found.interval
    for place in (0, 2):
        right = round(found.observed[place] * found.count[place])
        expected = binomtest(right, int(found.count[place])).proportion_ci(method="wilson")
        np.testing.assert_allclose((low[place], high[place]), expected, atol=1e-4)


class Vague:
    """Sigma is the part of the image that is grey, and falls with the words of a caption."""

    def embed_pixels(self, pixels):
        grey = (pixels == 127).all(axis=3).mean(axis=(1, 2))
        return {"log_variance": 2 * np.stack([grey, grey], axis=1)}

    def embed_texts(self, texts):
        words = np.array([[len(text.split())] for text in texts])
        return {"log_variance": -2.0 * words}


def test_occlusion_is_what_it_says(random):
    pixels = random.integers(128, 256, (9, 20, 20, 3)).astype(np.uint8)
    found = erase_images(Vague().embed_pixels, pixels)
    sides = [round(20 * share**0.5) for share in SHARES]
    np.testing.assert_allclose(found.ratio, np.exp([side**2 / 400 for side in sides]))
    np.testing.assert_allclose(found.low, found.high)
    assert found.grows
    centres = random.uniform(size=(9, 2))
    small, large = erased(pixels, 0.2, centres) == 127, erased(pixels, 0.6, centres) == 127
    assert (small <= large).all()
    assert (pixels != 127).all()
    text = "one two three four five six seven eight nine ten"
    assert dropped([text], 0.0) == [text]
    left = [dropped([text, "word", ""], share) for share in SHARES]
    assert [len(texts[0].split()) for texts in left] == [10, 9, 7, 5, 3]
    assert all(texts[1:] == ["word", ""] for texts in left)
    for more, less in itertools.pairwise(left):
        assert set(less[0].split()) < set(more[0].split())
    assert not replace(found, low=1 + (found.low - 1) / 1000).grows
    captions = drop_from_captions(Vague().embed_texts, [text, text])
    np.testing.assert_allclose(captions.ratio, np.exp(10 * np.array(SHARES)))


def test_the_growth_of_a_single_item_has_no_interval_and_is_drawn(evaluation, random, tmp_path):
    pixels = random.integers(128, 256, (1, 20, 20, 3)).astype(np.uint8)
    found = erase_images(Vague().embed_pixels, pixels)
    assert found.items == 1
    assert np.isinf(found.high).all()
    assert not found.grows
    evaluation.matchers = [replace(evaluation.matchers[0], name="cosine")]
    evaluation.probes = Probes({"image": found})
    (picture,) = uncertainty_pictures(UncertaintyReport(evaluation))
    picture.write(tmp_path)
    assert (tmp_path / "sigma_damage_image.png").stat().st_size > 5000


def labelled(random):
    """Eight images with three of six labels each, and two captions of each."""
    labels = [tuple(random.permutation(6)[:3]) for _ in range(8)]
    caption_image = np.repeat(np.arange(8), 2)
    return GroundTruth(
        [str(i) for i in range(8)],
        [str(c) for c in range(16)],
        caption_image,
        Judgements.from_pairs(caption_image, 8),
        labels=labels,
        relevance=random.uniform(size=(8, 16)),
    )


def test_plausible_matches_by_zeta_are_those_of_label_vectors(random):
    truth, scores = labelled(random), random.normal(size=(8, 16))
    found = plausible_match_by_zeta(scores, truth, (0, 2, 4))
    vectors = truth.label_vectors().toarray()
    for place, zeta in enumerate((0, 2, 4)):
        differ = (vectors[:, None] != vectors[truth.caption_image][None]).sum(axis=2)
        for side, matrix, right in (
            ("image_to_text", scores, differ),
            ("text_to_image", scores.T, differ.T),
        ):
            right = right <= zeta
            precision, chance = [], []
            for row, own in zip(matrix, right, strict=True):
                first = np.argsort(-row)[: own.sum()]
                precision.append(own[first].mean())
                chance.append(own.mean())
            assert found[side][place] == pytest.approx(np.mean(precision))
            assert found[f"{side} chance"][place] == pytest.approx(np.mean(chance))


@pytest.fixture
def evaluation(random):
    truth, scores = labelled(random), random.normal(size=(8, 16)).astype(np.float32)
    own = MatcherEvaluation("match_probability", ScoreMatrices(scores), measure(scores, truth))
    embedded = EmbeddedSplit(
        {"points": random.normal(size=(8, 3, 4))}, {"mean": random.normal(size=(16, 4))}
    )
    return Evaluation("test", [own], embedded, truth)


@pytest.mark.slow
def test_every_picture_that_has_numbers_is_drawn_with_them(evaluation, tmp_path, monkeypatch):
    monkeypatch.setattr(Figure, "tight_layout", lambda self: None)  # It draws all twice.
    assert "asp_top_i2t" not in {picture.name for picture in curve_pictures(evaluation)}
    evaluation.matchers[0].metrics.summary["i2t_asp_top_30"] = 0.5  # One point is no curve.
    by_chance = evaluation.matchers[0].metrics.image_to_text.chance
    by_chance["asp_top_30"] = np.full(8, 0.25)
    pictures = list(curve_pictures(evaluation))
    assert [picture.name for picture in pictures] == [
        "plausible_matches",
        "pmrp_zeta",
        "relevance_rank_i2t",
        "relevance_rank_t2i",
        "asp_top_i2t",
        "set_correlation_image",
    ]
    shown = [picture.write(tmp_path) for picture in pictures]
    assert all(picture["see"] and picture["url"].startswith("data:image/png") for picture in shown)
    assert "chance,30,0.25" in (tmp_path / "asp_top_i2t.csv").read_text("utf-8")
    lines = (tmp_path / "pmrp_zeta.csv").read_text("utf-8").splitlines()
    assert lines[0] == (
        "zeta,image_to_text,image_to_text chance,text_to_image,text_to_image chance"
    )
    assert len(lines) == 8
    assert (tmp_path / "set_correlation_image.csv").read_text("utf-8").startswith("1,2")
    assert (tmp_path / "set_correlation_image.png").stat().st_size > 1000


def test_the_last_screen_has_the_own_matcher_beside_chance(evaluation):
    own = evaluation.matchers[0]
    own.measured.extra["truth"] = own.metrics
    evaluation.matchers = [own, replace(own, name="other")]
    table = summary_table(results_of(evaluation))
    assert [row[0] for row in table.rows] == [
        *("annotated pairs", "  chance"),
        *("exhaustive truth", "  chance"),
    ]
    assert table.rows[0][-1] == f"{own.metrics.summary['rsum']:.1f}"
    assert table.rows[1][4] == "12.5"  # One of 8 images is right for a caption.
    assert str(table).startswith("test: 8 images, 16 captions, match_probability\n")


def test_what_is_next_names_the_photos_and_what_to_install(monkeypatch):
    for installed, name, images, first, *root in (
        (True, "scenes_pcme", "pictures", "images --run="),
        (
            *(False, "csv_pretrained", "'my photos/images'", "index --run="),
            "data.source.root=my photos",
        ),
    ):
        monkeypatch.setattr(
            "keras_xmr.utils.program.find_spec",
            lambda name, found=installed: found or None,
        )
        config = load_config(find_config(name), root)
        told = what_next(config, RunFolder(config))
        assert re.search(rf"^try next: keras-xmr {first}", told, re.M)
        assert f"--images={images}\n" in told
        assert "report.html, which has all tables" in told
        *_, before, last = told.splitlines()
        assert ("[search]" in before) is not installed
        assert last.split()[:2] == ["keras-xmr", "serve"]


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ("coco_vsrn", "precomputed features of regions"),
        ("scenes_pcme", "matcher match_probability does not declare how it searches photos"),
    ],
)
def test_no_search_is_proposed_where_index_refuses_the_model(monkeypatch, config, reason):
    if config == "scenes_pcme":
        monkeypatch.setattr(components("matcher")["match_probability"], "SEARCH", None)
    loaded = load_config(find_config(config))
    told = what_next(loaded, RunFolder(loaded))
    assert "try next" not in told
    assert re.search(rf"^no search: .*{reason}", told, re.M)


def test_relevance_by_rank_is_that_of_the_definition(random):
    scores, relevance = random.normal(size=(5, 7)), random.random((5, 7))
    found = relevance_by_rank(scores, relevance, "image_to_text")
    for rank in range(7):
        of_rank = [relevance[i, np.argsort(-scores[i])[rank]] for i in range(5)]
        assert found["by score"][rank] == pytest.approx(np.mean(of_rank))
        best = [np.sort(relevance[i])[::-1][rank] for i in range(5)]
        assert found["by relevance"][rank] == pytest.approx(np.mean(best))
    other = relevance_by_rank(scores.T, relevance.T, "text_to_image")
    np.testing.assert_allclose(other["by score"], found["by score"])


def test_plausible_matches_grow_with_zeta(random):
    truth = labelled(random)
    found = plausible_counts(truth)
    assert (found["annotated"] == 1).all()
    labels = truth.label_vectors().toarray()
    for zeta in (0, 1, 2):
        apart = (labels[truth.caption_image][:, None] != labels[None]).sum(axis=2)
        known = labels.any(axis=1)
        expected = (apart <= zeta) & known & known[truth.caption_image][:, None]
        np.testing.assert_array_equal(found[f"labels, zeta {zeta}"], expected.sum(axis=1))


def test_a_model_without_sigma_has_a_report_of_its_probabilities_alone(evaluation):
    report = UncertaintyReport(evaluation)
    rows = [row[0] for row in report.table().rows]
    assert rows == [f"ECE, {name}" for name in report.reliability]
    names = [picture.name for picture in uncertainty_pictures(report)]
    assert names == [
        "reliability_all_pairs",
        "reliability_first_caption",
        "reliability_first_image",
    ]
    other = replace(evaluation.matchers[0], name="cosine")
    evaluation.matchers = [other]
    assert not UncertaintyReport(evaluation).table().rows


def test_sigma_stands_beside_what_needs_none(evaluation, random):
    sigma = random.normal(size=16)
    log_variance = np.tile(2 * sigma[:, None], (1, 4))
    evaluation.embedded = EmbeddedSplit({}, {"log_variance": log_variance})
    recall = evaluation.matchers[0].metrics.text_to_image.values["recall_1"]
    evaluation.uncertainty_bins = {"text": bins(sigma, recall)}
    rows = {row[0]: row[1:] for row in UncertaintyReport(evaluation).table().rows}
    scores = evaluation.matchers[0].scores.by_query[1]
    by_gap = 100 * mean_risk(np.argsort(narrow_gaps(scores)), 1 - recall)
    told = rows["text-to-image: the same by the gap of the first two scores"][1]
    assert told == f"AURC {by_gap:.1f} %; needs no sigma"


KEY = {"split": "test", "judgements": "annotated"}


def test_every_metric_and_matcher_is_explained():
    words = glossary(rows_of(dict.fromkeys(metric_names(), 0.0), **KEY))
    assert "a metric that the config adds" not in words.values()
    assert {"R@K", "PMRP", "ASP", "RSUM"} <= words.keys()
    both = dict.fromkeys(("i2t_recall_1", "t2i_recall_5"), 0.0)
    assert glossary(rows_of(both, **KEY)) == {"R@K": words["R@K"]}
    assert len(words) < len(METRICS)
    for component in components("matcher").values():
        assert summary_of(component).endswith(".")
