"""Average Semantic Precision and Plausible-Match R-Precision."""

from __future__ import annotations

import numpy as np
import oracles
import pytest
import scipy.sparse
from folds import evaluate_folds

from keras_xmr.experiments.config.schema import RelevanceOptions
from keras_xmr.experiments.evaluation.split_evaluation import add_relevance
from keras_xmr.experiments.training.train import _batch_relevance
from keras_xmr.judgements import GroundTruth, Judgements, multi_hot
from keras_xmr.metrics import (
    chance,
    evaluate_scores,
    measure,
    plausible_match,
    semantic_precision,
)
from keras_xmr.metrics.names import metric_names
from keras_xmr.relevance import relevance_matrix
from keras_xmr.utils.errors import ArgumentError


def test_asp_matches_golden(golden):
    case = golden("daa")
    found = semantic_precision(case["in_S"], case["in_C"])
    np.testing.assert_allclose(found.image_to_text.values["asp"], case["out_asp"], rtol=1e-12)
    np.testing.assert_allclose(found.summary["i2t_asp"], case["out_asp_mean"], rtol=1e-12)
    tied = semantic_precision(case["in_ties_S"], case["in_ties_C"], score_ties="share")
    np.testing.assert_allclose(tied.image_to_text.values["asp"], case["out_ties_asp"], rtol=1e-12)


def test_asp_of_both_directions_matches_golden(golden):
    case = golden("retrieval_metrics_coco")
    found = semantic_precision(case["in_S"], case["in_C"]).summary
    tied = semantic_precision(case["in_S"], case["in_ties_C"]).summary
    for side in ("i2t", "t2i"):
        np.testing.assert_allclose(found[f"{side}_asp"], case[f"out_{side}_ASP"], rtol=1e-9)
        np.testing.assert_allclose(tied[f"{side}_asp"], case[f"out_ties_{side}_ASP"], rtol=1e-9)
        for k in (5, 10, 20):
            expected = case[f"out_{side}_ASP_{k}"]
            np.testing.assert_allclose(found[f"{side}_released_asp_{k}"], expected, rtol=1e-6)


def test_pmrp_matches_golden(golden):
    case = golden("retrieval_metrics_coco")
    labels, owner = [np.flatnonzero(row) for row in case["in_multihot_labels"]], np.arange(250) // 5
    vectors = multi_hot(labels, 80)
    found = plausible_match(case["in_S"], vectors, vectors[owner])
    for side, queries in (("i2t", found.image_to_text), ("t2i", found.text_to_image)):
        for zeta in (0, 1, 2):
            name, key = f"pmrp_{zeta}", f"out_pmrp_{side}_zeta{zeta}"
            np.testing.assert_allclose(100 * found.summary[f"{side}_{name}"], case[key])
            expected = case[f"{key}_per_query"]
            factor = 100 if expected.max() > 1 else 1
            np.testing.assert_allclose(factor * queries.values[name], expected)
            judgements = Judgements.from_labels(vectors, vectors[owner], zeta)
            recall = evaluate_scores(case["in_S"], judgements).summary[f"{side}_recall_1"]
            np.testing.assert_allclose(100 * recall, case[f"out_pmr1_{side}_zeta{zeta}"])
        np.testing.assert_allclose(100 * found.summary[f"{side}_pmrp"], case[f"out_pmrp_{side}"])


@pytest.mark.slow
def test_pmrp_over_folds_matches_golden(golden):
    case = golden("retrieval_metrics_coco")
    vectors = multi_hot([np.flatnonzero(row) for row in case["in_multihot_labels"]], 80)
    owner = case["in_caption_label"]
    for side in ("i2t", "t2i"):
        folds = [
            evaluate_folds(
                case["in_S"], Judgements.from_labels(vectors, vectors[owner], zeta), owner, 5
            )[f"{side}_r_precision"]
            for zeta in (0, 1, 2)
        ]
        np.testing.assert_allclose(100 * np.mean(folds), case[f"out_fold_pmrp_{side}"])


@pytest.fixture
def tied(random):
    """Scores and relevance with many ties; the relevance of two queries is all the same."""
    scores = random.integers(0, 5, size=(13, 17)).astype(np.float32)
    relevance = np.maximum(random.integers(-6, 5, size=(13, 17)), 0).astype(np.float32)
    relevance[2] = 0
    relevance[5] = 3
    return scores, relevance


def test_asp_equals_counting(tied, random):
    scores, relevance = tied
    for s in (scores, random.normal(size=scores.shape)):
        found = semantic_precision(s, relevance)
        for queries, rows, wanted in (
            (found.image_to_text, s, relevance),
            (found.text_to_image, s.T, relevance.T),
        ):
            for query, value in enumerate(queries.values["asp"]):
                if np.ptp(wanted[query]) == 0:
                    assert np.isnan(value)
                else:
                    expected = oracles.asp(rows[query], wanted[query])
                    np.testing.assert_allclose(value, expected)


@pytest.mark.parametrize("wrong", [0, 1.5, "1"])
def test_the_curve_has_whole_numbers(tied, wrong):
    with pytest.raises(ArgumentError, match=f"whole numbers from 1 on, not {wrong!r}"):
        semantic_precision(*tied, top=(3, wrong))


def test_the_curve_is_asp_of_the_first_by_relevance(tied):
    scores, relevance = tied
    top = (1, 3, 6, 6, 12, 500)  # One given twice is one.
    queries = semantic_precision(scores, relevance, top=top).image_to_text
    found, at_random = queries.values, queries.chance
    assert "asp_top_500" not in found
    for query in (0, 1, 3, 4):
        for n in top[:-1]:
            first = oracles.ranks(relevance[query]) <= n
            expected = oracles.asp(scores[query][first], relevance[query][first])
            np.testing.assert_allclose(found[f"asp_top_{n}"][query], expected)
            # The mean over random rankings is that over all ranks that an item can have.
            wanted = oracles.ranks(relevance[query])[first]
            ranks = np.arange(1, len(wanted) + 1)[:, None]
            terms = np.minimum(wanted, ranks) / np.maximum(wanted, ranks)
            np.testing.assert_allclose(at_random[f"asp_top_{n}"][query], terms.mean())


def test_released_asp_takes_the_least_relevant_of_equals():
    scores = np.array([[1.0, 2, 2, 2, 2, 2, 0]])
    relevance = np.array([[9.0, 1, 2, 3, 4, 0, 8]])
    values = semantic_precision(scores, relevance).image_to_text.values
    np.testing.assert_allclose(values["released_asp_5"], 10 / 26)
    np.testing.assert_allclose(values["released_asp_10"], 1)


@pytest.mark.slow
def test_equal_scores_never_beat_chance(random):
    """No metric of a constant matrix is above its mean over random scores."""
    relevance = np.zeros((4, 60), np.float32)
    relevance[:, :20] = random.random((4, 20)) + 0.1
    relevance[0, 1:] = 0
    vectors = multi_hot([(i % 3, 3 + i % 2) for i in range(4)], 5)
    captions = vectors[np.arange(60) % 4]
    judgements = Judgements(scipy.sparse.csr_array(np.where(relevance >= 0.5, relevance, 0)))

    def everything(scores):
        return (
            evaluate_scores(scores, judgements, [5]).summary
            | semantic_precision(scores, relevance, top=(2, 10, 30)).summary
            | plausible_match(scores, vectors, captions).summary
        )

    constant = everything(np.zeros((4, 60)))
    draws = [everything(random.normal(size=(4, 60))) for _ in range(36)]
    assert constant.keys() == draws[0].keys()
    for name, value in constant.items():
        chance = np.array([draw[name] for draw in draws])
        error = 4 * chance.std() / 6 + 1e-9
        if name.endswith("_rank"):
            assert value >= chance.mean() - error, name
        else:
            assert value <= chance.mean() + error, name


@pytest.mark.slow
def test_asp_at_chance_is_the_mean_of_random_rankings(random):
    relevance = random.integers(0, 4, (3, 40)).astype(float)
    expected = semantic_precision(np.zeros((3, 40)), relevance).summary["i2t_asp_chance"]
    draws = [semantic_precision(random.normal(size=(3, 40)), relevance) for _ in range(100)]
    found = [draw.summary["i2t_asp"] for draw in draws]
    assert abs(np.mean(found) - expected) < 4 * np.std(found) / np.sqrt(100)
    assert chance(draws[0])["i2t_asp"] == pytest.approx(expected)


def released_pmrp(scores, labels, owner):
    """PMRP as the released program computes it: images without labels, and their captions, go."""
    kept = [image for image, of_image in enumerate(labels) if of_image]
    captions = [caption for caption, image in enumerate(owner) if labels[image]]
    scores, found = scores[np.ix_(kept, captions)], []
    rows, columns = ([set(labels[i]) for i in n] for n in (kept, owner[captions]))
    for matrix, queries, candidates in ((scores, rows, columns), (scores.T, columns, rows)):
        found.append([])
        for zeta in (0, 1, 2):
            precision = []
            for row, query in zip(matrix, queries, strict=True):
                right = np.array([len(query ^ other) <= zeta for other in candidates])
                first = np.argsort(-row)[: right.sum()]
                precision.append(right[first].mean())
            found[-1].append(np.mean(precision))
    return [np.mean(side) for side in found]


def test_images_without_labels_are_removed_as_in_the_released_program(random):
    labels = [tuple(random.permutation(4)[: random.integers(0, 4)]) for _ in range(30)]
    labels[:3] = [(), (0, 1), ()]
    owner = np.repeat(np.arange(30), 2)
    scores = random.normal(size=(30, 60))
    vectors = multi_hot(labels, 4)
    found = plausible_match(scores, vectors, vectors[owner])
    for side, expected in zip(("i2t", "t2i"), released_pmrp(scores, labels, owner), strict=True):
        assert found.summary[f"{side}_pmrp"] == pytest.approx(expected)
    assert np.isnan(found.image_to_text.values["pmrp_0"]).nonzero()[0].tolist() == [
        image for image, of_image in enumerate(labels) if not of_image
    ]


def test_pmrp_has_chance_and_does_not_vanish_with_a_fold_of_single_labels(random):
    labels = [(0,), (1,), (0,), (0, 1), (1, 2), (0, 2)]
    owner = np.repeat(np.arange(6), 2)
    truth = GroundTruth(
        [str(image) for image in range(6)],
        [str(caption) for caption in range(12)],
        owner,
        Judgements.from_pairs(owner, 6),
        labels=labels,
    )
    measured = measure(random.normal(size=(6, 12)), truth, folds=2)
    assert {"i2t_pmrp", "t2i_pmrp"} <= measured.folds.keys()
    alike = [[len(set(a) ^ set(b)) for b in labels] for a in labels]
    by_zeta = [np.mean(np.array(alike) <= zeta) for zeta in (0, 1, 2)]
    for side in ("i2t", "t2i"):
        assert chance(measured.metrics)[f"{side}_pmrp_1"] == pytest.approx(by_zeta[1])
        assert chance(measured.metrics)[f"{side}_pmrp"] == pytest.approx(np.mean(by_zeta))


def test_memory_maps_and_blocks_give_the_same(tied, tmp_path, monkeypatch):
    scores, relevance = tied
    np.save(tmp_path / "s.npy", scores)
    np.save(tmp_path / "r.npy", relevance)
    whole = semantic_precision(scores, relevance).summary
    monkeypatch.setattr("keras_xmr.metrics.semantic._PAIRS", 40)
    mapped = (np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in "sr")
    assert semantic_precision(*mapped).summary == whole


def test_nan_negative_relevance_and_wrong_shapes_are_refused(tied):
    scores, relevance = tied
    with pytest.raises(ValueError, match=r"\(13, 17\), relevance of \(13, 16\)"):
        semantic_precision(scores, relevance[:, :16])
    with pytest.raises(ValueError, match="below 0"):
        semantic_precision(scores, -relevance)
    with pytest.raises(ValueError, match="at least one image and one caption"):
        semantic_precision(scores[:, :0], relevance[:, :0])
    relevance[6, 1] = np.inf
    with pytest.raises(ValueError, match="a relevance is infinite"):
        semantic_precision(scores, relevance)
    relevance[6, 1] = np.nan
    with pytest.raises(ValueError, match="relevance of query 6 is NaN"):
        semantic_precision(scores, relevance)
    scores[4, 2] = np.nan
    with pytest.raises(ValueError, match="score of query 4 is NaN"):
        semantic_precision(scores, np.ones_like(scores))


CAPTIONS = ["a red bird on a tree", "a small red bird", "two dogs run", "dogs run on the grass"]


def known() -> GroundTruth:
    """Two images with two captions each."""
    owner = np.array([0, 0, 1, 1])
    judgements = Judgements.from_pairs(owner, 2)
    return GroundTruth(["i0", "i1"], list("abcd"), owner, judgements, texts=CAPTIONS)


def test_asp_by_tf_idf_stands_beside_that_by_cider(random):
    truth = known()
    add_relevance(truth, RelevanceOptions())
    scores = random.normal(size=(2, 4))
    found = measure(scores, truth, folds=2)
    for measured, name in (("cider", "asp"), ("tf_idf", "asp_tf_idf")):
        relevance = relevance_matrix(CAPTIONS, truth.caption_image, 2, measured).dense()
        expected = semantic_precision(scores, relevance).summary
        for side in ("i2t", "t2i"):
            assert found.metrics.summary[f"{side}_{name}"] == expected[f"{side}_asp"]
            assert f"{side}_{name}" in metric_names()
    assert "i2t_asp_tf_idf" in found.folds
    by_tf_idf = known()
    add_relevance(by_tf_idf, RelevanceOptions(measure="tf_idf"))
    assert not by_tf_idf.extra_relevance, "it is not measured twice"


@pytest.mark.parametrize(
    ("options", "learned"),
    [({}, "cider"), ({"train_measure": "tf_idf"}, "tf_idf"), ({"measure": "tf_idf"}, "tf_idf")],
)
def test_losses_can_learn_from_another_relevance_than_is_measured(options, learned):
    truth = known()

    class Split:
        texts = CAPTIONS
        caption_image = truth.caption_image
        num_captions = len(CAPTIONS)
        labels = ((), ())

        def __len__(self):
            return 2

    relevance = _batch_relevance(Split(), RelevanceOptions(**options))
    expected = relevance_matrix(CAPTIONS, truth.caption_image, 2, learned).dense()
    np.testing.assert_allclose(relevance(np.arange(2), np.arange(4)), expected, rtol=1e-5)


@pytest.mark.parametrize("measure", ["cider", "cider_d", "tf_idf"])
def test_references_of_a_class_are_the_captions_of_all_its_images(measure):
    """Li et al. 2022, Eq. 7, where the positives of an image are all captions of its class."""
    owner, classes = np.array([0, 0, 1, 1, 2, 2]), [(7,), (3,), (7,)]
    texts = [*CAPTIONS, "a red bird on a branch", "the red bird sings"]
    options = RelevanceOptions(measure=measure, references="class")
    judgements = Judgements.from_pairs(owner, 3)
    truth = GroundTruth(list("abc"), list("uvwxyz"), owner, judgements, texts=texts, labels=classes)
    add_relevance(truth, options)
    # Two classes take the place of three images.
    by_class = relevance_matrix(texts, np.array([1, 1, 0, 0, 1, 1]), 2, measure).dense()
    np.testing.assert_allclose(truth.relevance, by_class[[1, 0, 1]], rtol=1e-5)

    class Split:
        caption_image, labels, num_captions = owner, classes, 6

        def __len__(self):
            return 3

    Split.texts = texts
    in_batch = _batch_relevance(Split(), options)(np.array([2, 1]), np.array([0, 3, 5]))
    np.testing.assert_allclose(in_batch, by_class[[1, 0]][:, [0, 3, 5]], rtol=1e-4, atol=1e-6)
    truth.labels = [(7, 3), (3,), (7,)]
    with pytest.raises(ArgumentError, match="one class per image"):
        add_relevance(truth, options)
