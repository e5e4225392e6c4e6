"""Ranks that are counted tile by tile, against those of the whole matrix."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import scipy.sparse

from keras_xmr.judgements import GroundTruth, Judgements
from keras_xmr.metrics import Measured, ScoreMatrices, ScoreTiles, measure, write_queries

IMAGES, CAPTIONS = 30, 60
OWNER = np.arange(CAPTIONS) % IMAGES // 3 * 3 + np.arange(CAPTIONS) % 3


class TilesOf(ScoreTiles):
    """Tiles of an array, which are counted."""

    def __init__(self, scores, images, captions):
        super().__init__(images, captions)
        self.scores, self.asked = scores, []

    def tile(self, row, column):
        self.asked.append((row, column))
        return self.scores[np.ix_(self.images[row], self.captions[column])]

    def select(self, images, captions):
        return tiled(self.scores[np.ix_(images, captions)], (4, 4))


def tiled(scores, size, order=None):
    """Tiles of so many images and captions; the captions in some order, the last tiles smaller."""
    images, captions = map(np.arange, scores.shape)
    captions = captions if order is None else order
    return TilesOf(
        scores,
        [images[i : i + size[0]] for i in range(0, len(images), size[0])],
        [captions[i : i + size[1]] for i in range(0, len(captions), size[1])],
    )


@pytest.fixture
def truth(random):
    """Pairs, and with them graded, nested and empty relations, of which some ask not everybody."""
    ids = [list(map(str, range(count))) for count in (IMAGES, CAPTIONS)]
    truth = GroundTruth(*ids, OWNER, Judgements.from_pairs(OWNER, IMAGES))
    grades = random.integers(0, 4, (IMAGES, CAPTIONS)) * (random.random((IMAGES, CAPTIONS)) < 0.1)
    some = random.random(IMAGES) < 0.5, random.random(CAPTIONS) < 0.5
    truth.extra = {
        "graded": Judgements(scipy.sparse.csr_array(grades)),
        "nested": Judgements(
            scipy.sparse.csr_array(np.maximum(grades, truth.judgements.grades.toarray()))
        ),
        "classes": Judgements.from_classes(np.arange(IMAGES) % 2, OWNER % 2),
        "masked": Judgements(truth.judgements.grades, *some),
        "partly judged": Judgements(
            scipy.sparse.csr_array(grades),
            *some,
            scipy.sparse.csr_array(random.random((IMAGES, CAPTIONS)) < 0.4),
        ),
        "nothing": Judgements(scipy.sparse.csr_array((IMAGES, CAPTIONS))),
    }
    return truth


def summaries(measured: Measured) -> list:
    """All figures of a score matrix."""
    by_kind = [measured.metrics, *measured.extra.values()]
    return [measured.folds, *(metrics.summary for metrics in by_kind)]


@pytest.mark.slow
@pytest.mark.parametrize("size", [(256, 1024), (7, 11), (1, 60), (30, 1)])
@pytest.mark.parametrize("directed", [False, True])
def test_ranks_are_those_of_the_whole_matrix(truth, random, size, directed, tmp_path):
    # Rounded, so that many scores are tied; and at the ends of what floats can say.
    scores, other = np.round(random.normal(size=(2, IMAGES, CAPTIONS)), 1).astype(np.float32)
    scores[3], scores[5, ::2], scores[:, 7] = np.inf, -np.inf, -0.0
    order = random.permutation(CAPTIONS)
    second = tiled(other, size, order) if directed else None
    found = measure(ScoreMatrices(tiled(scores, size, order), second), truth, folds=3)
    expected = measure(ScoreMatrices(scores, other if directed else None), truth, folds=3)
    np.testing.assert_equal(summaries(found), summaries(expected))
    assert found.extra.keys() == truth.extra.keys()
    for name, metrics in {"": expected.metrics, **expected.extra}.items():
        own = found.extra.get(name, found.metrics)
        for side in ("image_to_text", "text_to_image"):
            for key, values in getattr(metrics, side).values.items():
                np.testing.assert_array_equal(getattr(own, side).values[key], values, key)
            for key, values in getattr(metrics, side).chance.items():
                np.testing.assert_array_equal(getattr(own, side).chance[key], values, key)
            np.testing.assert_array_equal(getattr(own, side).judged, getattr(metrics, side).judged)
    write_queries(tmp_path / "queries.npz", {"scores": found}, truth)


def test_only_tiles_with_right_answers_are_scored_twice(truth, random):
    scores = random.normal(size=(IMAGES, CAPTIONS)).astype(np.float32)
    truth.extra = {}
    tiles = tiled(scores, (3, 3))
    measure(tiles, truth)
    assert len(tiles.asked) == tiles.count + CAPTIONS // 3


def test_what_reads_scores_gets_the_whole_matrix(truth, random):
    scores = random.normal(size=(IMAGES, CAPTIONS)).astype(np.float32)
    truth.relevance = random.random((IMAGES, CAPTIONS))
    found, expected = measure(tiled(scores, (7, 11)), truth), measure(scores, truth)
    assert "i2t_asp" in found.metrics.summary
    np.testing.assert_equal(summaries(found), summaries(expected))


def test_nan_and_wrong_shapes_are_refused(truth, random):
    scores = random.normal(size=(IMAGES, CAPTIONS)).astype(np.float32)
    with pytest.raises(ValueError, match=r"\(30, 59\), judgements of \(30, 60\)"):
        measure(tiled(scores[:, :59], (4, 4)), truth)
    scores[17, 3] = np.nan
    with pytest.raises(ValueError, match="query 17 is NaN"):
        measure(tiled(scores, (4, 4)), truth)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_matrix():
    images, owner = 1500, np.repeat(np.arange(1500), 2)
    scores = np.random.default_rng(0).normal(size=(images, len(owner))).astype(np.float32)
    ids = [[""] * images, [""] * len(owner)]
    truth = GroundTruth(*ids, owner, Judgements.from_pairs(owner, images))
    tiles = tiled(scores, (100, 100))
    tracemalloc.start()
    measured = measure(tiles, truth)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # The matrix has 18 MB.
    assert peak < 4e6
    assert measured.metrics.summary == measure(scores, truth).metrics.summary
