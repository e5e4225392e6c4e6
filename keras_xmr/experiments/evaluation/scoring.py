"""Scores all images with all captions, tile by tile, in the memory that is allowed."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial

import numpy as np
import tensorflow as tf
from pydantic import ByteSize

from keras_xmr.experiments.config.evaluation_section import EvaluationOptions
from keras_xmr.experiments.evaluation.split_embeddings import Arrays, Ragged, reordered
from keras_xmr.matchers import Matcher
from keras_xmr.metrics import ScoreMatrices, ScoreTiles
from keras_xmr.metrics.score_matrices import TileWork, place_in
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.sides import SIDES, Side

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
        rows, columns = list(_tiles(images, tile[0])), list(_tiles(captions, tile[1]))
        super().__init__(rows, columns)
        self._matcher, self._query, self._size = matcher, query, tile
        self._embedded = images, captions
        # On the device: one row of tiles, and all columns if they fit. No reference to `self`,
        # which would keep the embeddings in memory until the garbage is collected.
        kept = None if _bytes(captions) <= ON_DEVICE else 1
        self._row = lru_cache(1)(lambda row: _part(images, rows[row]))
        self._column = lru_cache(kept)(lambda column: _part(captions, columns[column]))

    def tile(self, row: int, column: int) -> tf.Tensor:
        """Returns scores of one tile; they are not waited for."""
        return _scorer(self._matcher, self._query)(self._row(row), self._column(column))

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
            self._column.cache_clear()


def score_tiles(
    matcher: Matcher, images: Arrays, captions: Arrays, tile: tuple[int, int]
) -> ScoreMatrices:
    """Returns the scores by which captions are ranked for images, and images for captions, in
    tiles.

    Args:
        matcher: The matcher.
        images: The embedding of the images (N).
        captions: The embedding of the captions (M).
        tile: Number of images and captions that are scored at once.

    Returns:
        Float32 (N, M); two of them if the matcher scores by direction.
    """
    sides: tuple[Side | None, ...] = SIDES if matcher.contract.directed else (None,)
    return ScoreMatrices(*(MatcherScores(matcher, images, captions, tile, s) for s in sides))


@lru_cache(maxsize=8)
def _scorer(matcher: Matcher, query: Side | None) -> Callable[..., tf.Tensor]:
    """Returns the graph that scores a tile: one per matcher, since each is traced again."""
    # Of a partial, TensorFlow counts the tracings for itself: tracings of several matchers are not
    # one function that is traced too often.
    return tf.function(partial(_score_tile, matcher, query), reduce_retracing=True, autograph=False)


def _score_tile(
    matcher: Matcher,
    query: Side | None,
    image: dict[str, tf.Tensor],
    caption: dict[str, tf.Tensor],
) -> tf.Tensor:
    return matcher(image, caption, query=query)


def _tiles(embedding: Arrays, size: int) -> Iterator[np.ndarray]:
    """Yields the numbers of the items of each tile, in order, or by length where lengths differ."""
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


_LOGGER = logging.getLogger(__name__)
# With fewer tiles, an evaluation has ended before one has read how long it takes.
_FEW_TILES = 16


def score_bytes(shape: tuple[int, int], matrices: int = 1) -> int:
    """Bytes of score matrices (images, captions), float32."""
    return 4 * matrices * shape[0] * shape[1]


def fits_in_memory(
    options: EvaluationOptions, shape: tuple[int, int], matrices: int, labels: bool
) -> bool:
    """Checks if the score matrices of an evaluation fit in memory, or are ranked tile by tile.

    Args:
        options: The options of the evaluation.
        shape: Images, captions.
        matrices: Number of score matrices of all matchers.
        labels: Whether the images have label vectors.

    Raises:
        UserError: If they do not fit and an option needs whole matrices.
    """
    read_whole = {
        "evaluation.semantic_precision": options.semantic_precision,
        "evaluation.plausible_match": options.plausible_match and labels,
        "evaluation.metrics": options.metrics,
        "evaluation.rerankers": options.rerankers,
        "evaluation.save_scores": options.save_scores,
    }
    whole = [key for key, is_on in read_whole.items() if is_on]
    # Relevance by two measures, and the two matrices of a re-ranker.
    further = 2 * bool(options.semantic_precision) + 2 * bool(options.rerankers)
    needed = score_bytes(shape, matrices + further)
    if needed <= options.memory_budget:
        return True
    if not whole:
        _LOGGER.info(
            "%s scores take %s, more than evaluation.memory_budget (%s): ranks are counted tile "
            "by tile",
            _size(shape),
            ByteSize(score_bytes(shape, matrices)).human_readable(),
            options.memory_budget.human_readable(),
        )
        return False
    raise UserError(
        f"{_size(shape)} scores and derived matrices take "
        f"{ByteSize(needed).human_readable()}, more than "
        f"evaluation.memory_budget ({options.memory_budget.human_readable()}). Ranks alone need "
        f"no whole matrix, but these do: {', '.join(whole)}. Switch them off, or raise the budget "
        "if this machine has the memory"
    )


def check_time(
    name: str,
    scores: ScoreMatrices,
    caption_image: np.ndarray,
    streamed: bool,
    hours: float | None,
    folds: int = 0,
) -> None:
    """Estimates the time of scoring with a matcher from the time of one tile.

    Args:
        name: The matcher.
        scores: The scores.
        caption_image: The image that each caption was written for, int (captions,).
        streamed: Whether ranks are counted tile by tile.
        hours: The time limit; None for none.
        folds: Number of folds; their tiles are scored again if streamed; 0 for none.

    Raises:
        UserError: If it takes longer.
    """
    tiles, other = scores.tiles()
    if tiles.count <= _FEW_TILES:
        return
    repeated = _share(tiles, caption_image) + (1 / folds if folds else 0)
    passes = 1 + (repeated if streamed else 0)
    seconds = _seconds(tiles) * tiles.count * passes * (1 if tiles is other else 2)
    what = f"{name}: {_size(scores.shape)} scores in {tiles.count:,} tiles take"
    if hours is None or seconds <= 3600 * hours:
        _LOGGER.info("%s about %s", what, _words(seconds))
        return
    raise UserError(
        f"{what} about {_words(seconds)}, more than evaluation.time_limit ({hours:g} h). Give "
        "--yes to evaluate nevertheless, or choose a smaller split (evaluation.splits) or fewer "
        "matchers"
    )


def _share(tiles: ScoreTiles, caption_image: np.ndarray) -> float:
    """Returns the share of the tiles that have the scores of annotated pairs."""
    (row, _), (column, _) = place_in(tiles.images), place_in(tiles.captions)
    places = row[caption_image] * len(tiles.captions) + column
    return len(np.unique(places)) / tiles.count


def _seconds(tiles: ScoreTiles) -> float:
    """Seconds of one tile, of captions of medium length, without the tracing of the first call."""
    for _ in range(2):
        begin = time.perf_counter()
        np.asarray(tiles.tile(0, len(tiles.captions) // 2))
    return time.perf_counter() - begin


def _size(shape: tuple[int, int]) -> str:
    return f"{shape[0]:,} x {shape[1]:,}"


def _words(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes < 1:
        return f"{max(round(seconds), 1)} s"
    return f"{minutes} min" if minutes < 120 else f"{seconds / 3600:,.1f} h"
