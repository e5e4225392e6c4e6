"""Ranking metrics and judgements."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from folds import evaluate_folds

from keras_xmr import compare, metrics, reranking
from keras_xmr.judgements import Judgements
from keras_xmr.metrics import (
    ScoreMatrices,
    by_positives,
    evaluate_scores,
    positive_ranks,
    recall,
    retrieval,
)
from keras_xmr.metrics.query_metrics import ReciprocalRank
from keras_xmr.utils.errors import ArgumentError

GOLDEN_NAMES = {
    "r_precision": ("eccv_rprecision", "r_precision"),
    "map_at_r": ("eccv_map_at_r", "map_r"),
    "median_rank": ("medr",),
    "mean_rank": ("meanr",),
}


def check(summary, case, tag="", percent=1.0):
    """Compares every metric that a case has; returns how many there were."""
    compared = 0
    for direction in ("i2t", "t2i"):
        for name in [key[4:] for key in summary if key.startswith(direction)]:
            for golden_name in GOLDEN_NAMES.get(name, (name,)):
                key = f"out_{tag}{direction}_{golden_name}"
                if key in case:
                    factor = percent if name.startswith("recall") else 1.0
                    found = factor * summary[f"{direction}_{name}"]
                    np.testing.assert_allclose(found, case[key], rtol=1e-9, err_msg=key)
                    compared += 1
    return compared


def test_coco_metrics_match_golden(golden):
    case = golden("retrieval_metrics_coco")
    scores, owner = case["in_S"], case["in_caption_label"]
    judgements = Judgements.from_pairs(owner, 50)
    summary = evaluate_scores(scores, judgements).summary
    assert check(summary, case, percent=100) == 14
    np.testing.assert_allclose(summary["rsum"], case["out_rsum"])
    folds = evaluate_folds(scores, judgements, owner, 5)
    assert check(folds, case, "fold_", percent=100) == 10
    np.testing.assert_allclose(folds["rsum"], case["out_fold_rsum"])


def test_metrics_of_many_right_answers_match_golden(golden):
    case = golden("retrieval_metrics_coco")
    judgements = Judgements(scipy.sparse.csr_array(case["in_multi_gt"]))
    summary = evaluate_scores(case["in_S"], judgements).summary
    for direction in ("i2t", "t2i"):
        for name, key in (("r_precision", "eccv_rprecision"), ("map_at_r", "eccv_map_at_r")):
            expected = case[f"out_multi_{direction}_{key}"]
            np.testing.assert_allclose(summary[f"{direction}_{name}"], expected)


def test_cub_metrics_match_golden(golden):
    case = golden("retrieval_metrics_cub")
    judgements = Judgements.from_classes(case["in_image_class"], case["in_caption_class"])
    metrics = evaluate_scores(case["in_S"], judgements, [5, 10, 50, 100])
    assert check(metrics.summary, case) >= 20
    np.testing.assert_allclose(
        metrics.text_to_image.values["r_precision"], case["out_t2i_r_precision_per_query"]
    )


@pytest.fixture
def tied(random):
    """Scores with many ties, and judgements of which some queries have none."""
    scores = random.integers(0, 4, size=(23, 31)).astype(np.float32)
    right = random.random((23, 31)) < 0.15
    right[4] = False
    right[:, 7] = False
    return scores, right


def test_a_second_matrix_ranks_images(tied, random):
    scores, right = tied
    judgements = Judgements(scipy.sparse.csr_array(right))
    other = random.normal(size=scores.shape)
    mixed = evaluate_scores(ScoreMatrices(scores, other), judgements).summary
    plain, second = (evaluate_scores(s, judgements).summary for s in (scores, other))
    for name in plain:
        if name != "rsum":
            assert mixed[name] == (plain if name.startswith("i2t") else second)[name]
    recalls = [mixed[f"{side}_recall_{k}"] for side in ("i2t", "t2i") for k in (1, 5, 10)]
    np.testing.assert_allclose(mixed["rsum"], 100 * sum(recalls))


def test_breakdown_counts_every_answered_query_once(random):
    right = random.random((60, 90)) < random.random((60, 1)) ** 3
    right[3] = False
    right[4] = False
    right[4, 11] = True
    scores = random.normal(size=right.shape) + right
    metrics = evaluate_scores(scores, Judgements(scipy.sparse.csr_array(right)))
    bins = by_positives(metrics.image_to_text)
    counts = right.sum(axis=1)
    assert sum(part.queries for part in bins) == np.count_nonzero(counts)
    assert (bins[0].least, bins[0].most) == (1, 1)
    for part in bins:
        inside = (counts >= part.least) & (counts <= part.most)
        assert part.queries == inside.sum()
        for name, mean in part.means.items():
            expected = metrics.image_to_text.values[name][inside].mean()
            np.testing.assert_allclose(mean, expected)
    nobody = evaluate_scores(scores, Judgements(scipy.sparse.csr_array(right.shape)))
    assert by_positives(nobody.image_to_text) == []


def test_nan_and_wrong_shapes_are_refused():
    judgements = Judgements.from_pairs(np.arange(6) // 2, 3)
    scores = np.zeros((3, 6), np.float32)
    scores[1, 2] = np.nan
    with pytest.raises(ValueError, match="query 1 is NaN"):
        evaluate_scores(scores, judgements)
    # Also where the image is no query, and is not ranked.
    others = Judgements(judgements.grades, np.array([True, False, True]))
    with pytest.raises(ValueError, match="query 1 is NaN"):
        positive_ranks(scores, others)
    with pytest.raises(ValueError, match=r"\(3, 5\)"):
        evaluate_scores(np.zeros((3, 5), np.float32), judgements)
    with pytest.raises(ValueError, match="2 folds of one size"):
        evaluate_folds(np.zeros((3, 6), np.float32), judgements, np.arange(6) // 2, 2)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Judgements.from_grades([(0, 5)], [1], (2, 2)), "not of 2 images and 2 captions"),
        (lambda: Judgements.from_grades([(0, -1)], [1], (2, 2)), "numbers begin at 0"),
        (lambda: Judgements.from_grades([(0.5, 1)], [1], (2, 2)), "whole numbers"),
        (lambda: Judgements.from_grades([(0, 1, 1)], [1], (2, 2)), "whole numbers"),
        (lambda: Judgements.from_grades([(0, 1)], [1, 2], (2, 2)), "each has a grade"),
        (lambda: Judgements.from_grades([(0, 1)], ["1"], (2, 2)), "grades are numbers, not <U1"),
        (lambda: Judgements.from_grades([(0, 1)], [1], (2.0, 2)), "do not fit"),
        (
            lambda: Judgements.from_grades([(0, 1), (0, 0), (0, 1)], [1, 1, 2], (2, 2)),
            "image 0 and caption 1 have 2 grades",
        ),
        (lambda: Judgements.from_grades([(0, 1), (0, 0)], [1, -1], (2, 2)), "below 0 or NaN"),
        (lambda: Judgements.from_grades([(0, 1)], [np.nan], (2, 2)), "below 0 or NaN"),
        (lambda: Judgements.from_pairs([True, False], 2), "names an image for each caption"),
        (lambda: Judgements(np.eye(2), np.array([0, 1])), "True or False for each query"),
        (lambda: Judgements.from_pairs([0, 2], 2), "not of 2 images"),
        (lambda: Judgements.from_pairs([[0], [1]], 2), "an image for each caption"),
        (lambda: Judgements.from_pairs([0, 1], "2"), "do not fit"),
        (lambda: Judgements.from_pairs([], -1), "cannot be of shape"),
        (lambda: Judgements("a"), "a sparse matrix"),
        (lambda: Judgements(np.ones(3)), "a matrix"),
        (lambda: Judgements(np.eye(2), np.ones(3, bool)), "not one of 2 queries"),
        (lambda: recall([[1, 2], [3]], [0, 1]), "scores: .*inhomogeneous"),
        (lambda: recall(np.eye(2), [[0, 1], [1]]), "judgements: .*inhomogeneous"),
        (lambda: reranking.FastReranking()([[1, 2], [3]]), "scores: .*inhomogeneous"),
        (lambda: recall(np.ones((4, 2)), [0, 0, 1, 1]), "the sides look transposed"),
        (lambda: recall(np.ones((4, 2)), np.ones((2, 4))), "the scores look transposed"),
    ],
)
def test_judgements_and_scores_that_are_none_are_refused(make, says):
    with pytest.raises(ArgumentError, match=says):
        make()


def test_judgements_take_any_relation():
    classes = Judgements.from_classes(np.array([7, 3, 7]), np.array([3, 7, 9]))
    expected = [[0, 1, 0], [1, 0, 0], [0, 1, 0]]
    np.testing.assert_array_equal(classes.grades.toarray(), expected)
    np.testing.assert_array_equal(classes.counts(), [1, 1, 1])
    np.testing.assert_array_equal(classes.transpose().counts(), [1, 2, 0])
    chosen = classes.select(np.array([1, 0]), np.array([0, 1]))
    np.testing.assert_array_equal(chosen.grades.toarray(), [[1, 0], [0, 1]])
    with pytest.raises(ValueError, match="below 0"):
        Judgements(scipy.sparse.csr_array(np.array([[1.0, -1.0]])))


def test_reciprocal_rank_is_that_of_the_best_right_answer():
    scores = np.array([[4.0, 3.0, 2.0], [1.0, 3.0, 2.0]])
    right = Judgements(scipy.sparse.csr_array(np.array([[0, 1, 1], [0, 0, 0]])))
    np.testing.assert_allclose(ReciprocalRank()(scores, right), [1 / 2, np.nan])


def test_every_metric_takes_image_ids_by_name(random):
    scores, rows = random.normal(size=(40, 80)), np.arange(80) // 2
    for metric in (metrics.recall, metrics.retrieval, metrics.ndcg, metrics.bpref):
        assert metric(scores, image_ids=rows) == metric(scores, rows)
        with pytest.raises(ArgumentError, match="pass one of them"):
            metric(scores, rows, image_ids=rows)
    per_query = metrics.per_query(scores, image_ids=rows)
    np.testing.assert_equal(per_query, metrics.per_query(scores, rows))
    found = compare(scores, -scores, image_ids=rows, resamples=20)
    assert found == compare(scores, -scores, rows, resamples=20)


def test_recall_takes_one_k_or_several_whole_ones():
    scores = np.eye(3)
    assert recall(scores, k=2) == recall(scores, k=[2]) == {"i2t_recall_2": 1, "t2i_recall_2": 1}
    assert recall(scores, k=np.int64(2)) == recall(scores, k=range(2, 3)) == recall(scores, k=2)
    for k in (1.5, [1.5], [1, 0], -1, True, [], None, "5", [[1]]):
        with pytest.raises(ArgumentError, match="k must be a whole number from 1 on"):
            recall(scores, k=k)


def test_recall_leaves_out_a_direction_without_queries():
    nothing = np.zeros((2, 3))
    assert recall(np.ones((2, 0)), np.zeros((2, 0))) == {}
    for text in ([["a"]], [[None]], [[1j]]):
        with pytest.raises(ArgumentError, match="scores must be numbers, got"):
            recall(text)
    assert recall(np.ones((2, 3)), nothing) == {}
    assert np.isnan(retrieval(np.ones((2, 3)), nothing)["rsum"])
    right = Judgements(np.array([[1, 0, 0], [0, 1, 0]]), image_query_mask=np.zeros(2, bool))
    found = recall(np.ones((2, 3)), right)
    assert set(found) == {f"t2i_recall_{k}" for k in (1, 5, 10)}
    whole = retrieval(np.ones((2, 3)), right)
    assert found.items() <= whole.items()
    assert np.isnan(whole["rsum"]), "not the sum of three recalls"


def test_recall_takes_what_a_reranker_returns(random):
    scores = random.normal(size=(6, 6))
    reranked = reranking.FastReranking()(scores)
    found = recall(reranked, k=[1, 5])
    assert found.items() <= retrieval(reranked).items()
    assert found == recall(ScoreMatrices.of(reranked), k=[1, 5])
    assert recall(((1, 0), (0, 1)), k=1) == {"i2t_recall_1": 1, "t2i_recall_1": 1}
    assert retrieval(((1, 0), (0, 1)))["i2t_recall_1"] == 1
    with pytest.raises(ValueError, match="shape"):
        recall((scores, scores[:3]))
