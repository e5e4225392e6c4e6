"""Scores all images with all captions, tile by tile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial

import numpy as np
import tensorflow as tf

from keras_xmr.evaluation.embed import Arrays, Ragged, reordered
from keras_xmr.matchers import Matcher
from keras_xmr.matchers.base import Side
from keras_xmr.metrics import ScoreMatrices, ScoreTiles
from keras_xmr.metrics.score_matrices import TileWork

ON_DEVICE = 2 << 30
"""Maximum bytes of caption embeddings that stay on the device during scoring."""


class MatcherScores(ScoreTiles):
    """Scores of all images (N) with all captions (M), float32 (N, M), in tiles.

    Scores do not depend on the tile. Captions of tokens are taken by length, so that a tile is cut
    to about the length of all its captions, and padding costs nothing.

    Args:
        matcher: The matcher.
        images: The embedding of the images.
        captions: The embedding of the captions.
        tile: Number of images and captions that are scored at once.
        query: The query side, for a matcher that scores by direction. None for others.
    """

    def __init__(
        self,
        matcher: Matcher,
        images: Arrays,
        captions: Arrays,
        tile: tuple[int, int],
        query: Side | None = None,
    ) -> None:
        super().__init__(list(_tiles(images, tile[0])), list(_tiles(captions, tile[1])))
        self._matcher, self._query, self._size = matcher, query, tile
        self._embedded = images, captions
        self._kept: dict[int, dict[str, tf.Tensor]] = {}
        self._keeps = _bytes(captions) <= ON_DEVICE
        self._row: tuple[int, dict[str, tf.Tensor]] = (-1, {})

    def tile(self, row: int, column: int) -> tf.Tensor:
        """Scores of one tile; they are not waited for."""
        if self._row[0] != row:
            self._row = row, _part(self._embedded[0], self.images[row])
        caption = self._kept.get(column)
        if caption is None:
            caption = _part(self._embedded[1], self.captions[column])
            if self._keeps:
                self._kept[column] = caption
        return _scorer(self._matcher, self._query)(self._row[1], caption)

    def select(self, images: np.ndarray, captions: np.ndarray) -> MatcherScores:
        image, caption = (
            {name: reordered(values, items) for name, values in embedding.items()}
            for embedding, items in zip(self._embedded, (images, captions), strict=True)
        )
        return MatcherScores(self._matcher, image, caption, self._size, self._query)

    def for_each(self, work: TileWork, places: Iterable[tuple[int, int]], description: str) -> None:
        try:
            super().for_each(work, places, description)
        finally:
            self._kept.clear()


def score_tiles(
    matcher: Matcher, images: Arrays, captions: Arrays, tile: tuple[int, int]
) -> ScoreMatrices:
    """The scores by which captions are ranked for images, and images for captions, in tiles.

    Args:
        matcher: The matcher.
        images: The embedding of the images (N).
        captions: The embedding of the captions (M).
        tile: Number of images and captions that are scored at once.

    Returns:
        Float32 (N, M); two of them if the matcher scores by direction.
    """
    sides: tuple[Side | None, ...] = ("image", "caption") if matcher.contract.directed else (None,)
    return ScoreMatrices(*(MatcherScores(matcher, images, captions, tile, s) for s in sides))


def score_matrices(
    matcher: Matcher, images: Arrays, captions: Arrays, tile: tuple[int, int]
) -> ScoreMatrices:
    """The same as `score_tiles`, as arrays."""
    return score_tiles(matcher, images, captions, tile).dense()


def score_matrix(
    matcher: Matcher,
    images: Arrays,
    captions: Arrays,
    tile: tuple[int, int],
    query: Side | None = None,
) -> np.ndarray:
    """Scores of all images with all captions as an array; see `MatcherScores`."""
    return np.asarray(MatcherScores(matcher, images, captions, tile, query))


@lru_cache(maxsize=8)
def _scorer(matcher: Matcher, query: Side | None) -> Callable[..., tf.Tensor]:
    """The graph that scores a tile: one per matcher, since each is traced again."""
    # Of a partial, TensorFlow counts the tracings for itself: those of several matchers are not
    # one function that is traced too often.
    return tf.function(partial(_score_tile, matcher, query), reduce_retracing=True, autograph=False)


def _score_tile(
    matcher: Matcher,
    query: Side | None,
    image: dict[str, tf.Tensor],
    caption: dict[str, tf.Tensor],
) -> tf.Tensor:
    options = {} if query is None else {"query": query}
    return matcher(matcher.prepare(image, "image"), matcher.prepare(caption, "caption"), **options)


def _tiles(embedding: Arrays, size: int) -> Iterator[np.ndarray]:
    """The numbers of the items of each tile, in order, or by length where lengths differ."""
    values = next(iter(embedding.values()))
    is_ragged = isinstance(values, Ragged)
    order = np.argsort(values.lengths, kind="stable") if is_ragged else np.arange(len(values))
    for start in range(0, len(order), size):
        yield order[start : start + size]


def _bytes(embedding: Arrays) -> int:
    arrays = (v.values if isinstance(v, Ragged) else v for v in embedding.values())
    return sum(array.nbytes for array in arrays)


def _part(embedding: Arrays, items: np.ndarray) -> dict[str, tf.Tensor]:
    return {name: tf.constant(values[items]) for name, values in embedding.items()}
