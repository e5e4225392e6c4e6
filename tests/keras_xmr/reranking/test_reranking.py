"""Re-rankers, against the originals' numbers and plain readings of the definitions."""

from __future__ import annotations

import numpy as np
import oracles
import pytest
import scipy.special

from keras_xmr import reranking
from keras_xmr.judgements import Judgements
from keras_xmr.metrics import ScoreMatrices, evaluate_scores
from keras_xmr.reranking import (
    CSLS,
    FastReranking,
    InvertedSoftmax,
    MultiFactor,
    QueryBankNormalization,
    ReciprocalNeighbours,
    fast,
    neighbours,
)
from keras_xmr.utils.errors import ArgumentError

NAMES = ("gamma1", "gamma2", "lambda1", "lambda2")
RERANKERS = [FastReranking(), ReciprocalNeighbours(neighbours=5), MultiFactor(neighbours=12)]
ALL = [*RERANKERS, CSLS(), InvertedSoftmax(), QueryBankNormalization()]


def by_name(rerankers):
    return pytest.mark.parametrize("reranker", rerankers, ids=lambda r: type(r).__name__)


@pytest.fixture
def cosines(random):
    return random.uniform(-1, 1, size=(70, 130))


def ranking(scores):
    return np.argsort(-scores, axis=1, kind="stable")


def test_fast_reranking_matches_golden(golden):
    case = golden("fast_rerank")
    for number, setting in enumerate(case["in_settings"]):
        options = dict(zip(NAMES, map(float, setting), strict=True))
        i2t, t2i = FastReranking(**options)(case["in_A"].astype(np.float64))
        np.testing.assert_allclose(i2t, case["out_log_A_i2t"][number], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(t2i, case["out_log_A_t2i"][number], rtol=1e-9, atol=1e-9)
        np.testing.assert_array_equal(ranking(i2t), case["out_ranking_i2t"][number])
        np.testing.assert_array_equal(ranking(t2i.T), case["out_ranking_t2i"][number])


def test_fast_reranking_in_float32_ranks_as_golden_but_for_rounding(golden):
    case = golden("fast_rerank")
    for number, setting in enumerate(case["in_settings"]):
        options = dict(zip(NAMES, map(float, setting), strict=True))
        i2t, t2i = FastReranking(**options)(case.f32("in_A"))
        assert i2t.dtype == t2i.dtype == np.float32
        for found, exact, order in (
            (i2t, case["out_log_A_i2t"][number], case["out_ranking_i2t"][number]),
            (t2i.T, case["out_log_A_t2i"][number].T, case["out_ranking_t2i"][number]),
        ):
            np.testing.assert_allclose(found, exact, rtol=2e-6, atol=2e-6 * max(setting))
            # The exact values, in the order that was found, fall but for what rounding allows.
            exact_in_found_order = np.take_along_axis(exact, ranking(found), axis=1)
            assert np.diff(exact_in_found_order).max() < 2e-7 * max(setting)
            assert (ranking(found) != order).mean() < 0.01


def test_large_scales_neither_overflow_nor_vanish(cosines):
    scores = (30 * cosines).astype(np.float32)
    exact = scores.astype(float)
    for scale in (1e-3, 1.0, 1e3, 1e6):
        i2t, t2i = FastReranking(gamma1=scale, gamma2=scale, lambda1=scale, lambda2=scale)(scores)
        # As fine as float32 scores can be told apart, times the scale.
        atol = max(scale, 1) * np.spacing(scores.max())
        for found, axis in ((i2t, 0), (t2i, 1)):
            log_sum = scipy.special.logsumexp(scale * exact, axis=axis, keepdims=True)
            np.testing.assert_allclose(found, scale * exact - log_sum, rtol=1e-6, atol=atol)


def test_presets_are_those_of_the_paper_and_scales_override_them():
    cub = FastReranking(preset="cub", lambda2=3)
    assert [getattr(cub, name) for name in NAMES] == [9, 8, 8, 3]
    assert [getattr(FastReranking(), name) for name in NAMES] == [25, 25, 20, 20]
    for wrong in (0.0, -1.0, float("inf"), float("nan"), "a"):
        with pytest.raises(ValueError, match="above 0"):
            FastReranking(gamma1=wrong)


@pytest.mark.slow
@by_name(
    [
        ReciprocalNeighbours(neighbours=1, caption_neighbours=1),
        ReciprocalNeighbours(neighbours=6),
        ReciprocalNeighbours(neighbours=1000, caption_neighbours=3),
        MultiFactor(neighbours=9),
        MultiFactor(neighbours=9, significance=500.0, reverse=0.2, decay=0.3),
        MultiFactor(neighbours=1000, significance=50.0),
    ]
)
@pytest.mark.parametrize("kind", ["plain", "positive", "tied"])
def test_neighbours_equal_a_plain_reading(cosines, reranker, kind):
    scores = cosines[:30, :50]
    scores = scores if kind == "plain" else np.abs(scores)
    if kind == "tied":
        scores = np.round(4 * scores)
    for dtype in (np.float32, np.float64):
        i2t, t2i = reranker(scores.astype(dtype))
        assert i2t.dtype == t2i.dtype == dtype
        if isinstance(reranker, MultiFactor):
            weights = reranker.significance, reranker.reverse, reranker.decay
            first = [
                oracles.multi_factor(s, reranker.neighbours, *weights)
                for s in (scores.astype(dtype), scores.astype(dtype).T)
            ]
        else:
            first = [
                oracles.reciprocal_neighbours(scores.astype(dtype), reranker.neighbours),
                oracles.reciprocal_neighbours(scores.astype(dtype).T, reranker.caption_neighbours),
            ]
        for before, after, order in ((scores, i2t, first[0]), (scores.T, t2i.T, first[1])):
            before = before.astype(dtype)
            for query in range(len(before)):
                # The sorted scores of the query, handed out in the new order.
                expected = np.empty_like(before[query])
                expected[order[query]] = np.sort(before[query])[::-1]
                np.testing.assert_array_equal(after[query], expected)


@by_name(RERANKERS)
def test_tiles_do_not_matter(cosines, reranker, monkeypatch):
    scores = cosines.astype(np.float32)
    whole = reranker(scores)
    monkeypatch.setattr(fast, "_ROWS", 3)
    monkeypatch.setattr(fast, "_COLUMNS", 7)
    monkeypatch.setattr(fast, "_WRITTEN_ROWS", 1)
    monkeypatch.setattr(fast, "_SAFE", (np.inf, 0.0))
    monkeypatch.setattr(neighbours, "_QUERIES", 3)
    for found, expected in zip(reranker(scores), whole, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@by_name(ALL)
def test_scores_are_left_alone_and_equal_ones_stay_equal(cosines, reranker):
    kept = cosines.copy()
    reranker(cosines)
    np.testing.assert_array_equal(cosines, kept)
    judgements = Judgements.from_pairs(np.arange(100) // 5, 20)
    i2t, t2i = reranker(np.full((20, 100), 0.3, np.float32))
    summary = evaluate_scores(ScoreMatrices(i2t, t2i), judgements).summary
    assert summary["rsum"] == 0


@by_name(ALL)
def test_what_is_not_finite_is_refused_with_its_place(cosines, reranker):
    for wrong in (np.nan, np.inf, -np.inf):
        cosines[66, 101] = wrong
        with pytest.raises(ValueError, match=f"image 66 and caption 101 is {wrong}"):
            reranker(cosines)


@by_name(ALL)
def test_odd_shapes_and_types(reranker):
    for shape in ((1, 1), (1, 9), (9, 1)):
        for found in reranker(np.linspace(0, 1, 9)[: shape[0] * shape[1]].reshape(shape)):
            assert found.shape == shape
            assert np.isfinite(found).all()
    assert reranker(np.arange(12).reshape(3, 4)).image_to_text.dtype == np.float32
    with pytest.raises(ValueError, match=r"\(5,\)"):
        reranker(np.zeros(5))
    with pytest.raises(ValueError, match=r"\(0, 5\)"):
        reranker(np.zeros((0, 5)))
    for scores in ([[1j]], [["1"]], [[None]]):
        with pytest.raises(ValueError, match="scores must be numbers, got"):
            reranker(np.array(scores))
    for count in (0, 2.5, True, "5"):
        with pytest.raises(ArgumentError, match="a whole number and at least 1"):
            reranking.ReciprocalNeighbours(neighbours=count)


def test_fast_re_ranking_of_scores_that_are_too_large_is_refused(random):
    large = random.uniform(-1, 1, (6, 9)) * 3e38
    with pytest.raises(ArgumentError, match="too large for float32; divide the scores"):
        FastReranking()(large.astype(np.float32))
    small, exact = FastReranking()((large / 1e3).astype(np.float32)), FastReranking()(large)
    for found, right in zip(small, exact, strict=True):
        assert np.isfinite(found).all()
        np.testing.assert_allclose(found, right / 1e3, rtol=1e-5, atol=1e30)


def test_options_that_are_out_of_range_are_refused():
    for wrong in (-1, np.nan, "a", None, [1]):
        for name in ("significance", "reverse", "decay"):
            with pytest.raises(ArgumentError, match=f"{name} must be .* and finite, got"):
                MultiFactor(**{name: wrong})
    with pytest.raises(ArgumentError, match="preset must be one of coco, flickr30k, cub, got 'x'"):
        FastReranking(preset="x")
