"""Scores all images with all captions, tile by tile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial

import numpy as np
import tensorflow as tf

from data_pipelines.progress import Progress
from keras_xmr.evaluation.embed import Arrays
from keras_xmr.evaluation.ragged import Ragged
from keras_xmr.matchers import Matcher
from keras_xmr.matchers.base import Side
from keras_xmr.metrics import ScoreMatrices


def score_matrices(
    matcher: Matcher, images: Arrays, captions: Arrays, tile: tuple[int, int]
) -> ScoreMatrices:
    """The scores by which captions are ranked for images, and images for captions.

    Args:
        matcher: The matcher.
        images: The embedding of the images.
        captions: The embedding of the captions.
        tile: How many images and captions are scored at once.

    Returns:
        Float32 (N, M); two of them if the matcher scores by direction.
    """
    if not matcher.DIRECTED:
        return ScoreMatrices(score_matrix(matcher, images, captions, tile))
    return ScoreMatrices(
        score_matrix(matcher, images, captions, tile, "image"),
        score_matrix(matcher, images, captions, tile, "caption"),
    )


def score_matrix(
    matcher: Matcher,
    images: Arrays,
    captions: Arrays,
    tile: tuple[int, int],
    query: Side | None = None,
) -> np.ndarray:
    """Scores of all images (N) with all captions (M).

    Only one tile is computed at a time, so memory follows the answer. Scores do not depend on
    the tile. Captions of tokens are taken by length, so that a tile is cut to about the length of
    all its captions, and padding costs nothing.

    Args:
        matcher: The matcher.
        images: The embedding of the images.
        captions: The embedding of the captions.
        tile: How many images and captions are scored at once.
        query: Of a matcher that scores by direction: which side asks. None elsewhere.

    Returns:
        Float32 (N, M).
    """
    num_images, num_captions = _length(images), _length(captions)
    scores = np.empty((num_images, num_captions), np.float32)
    score = _scorer(matcher, query)
    with Progress("  scoring", num_images * num_captions, "pairs", unit_scale=True) as bar:
        for rows in _tiles(images, tile[0]):
            image = _part(images, rows)
            for columns in _tiles(captions, tile[1]):
                part = score(image, _part(captions, columns)).numpy()
                scores[np.ix_(rows, columns)] = part
                bar.update(part.size)
    return scores


@lru_cache(maxsize=8)
def _scorer(matcher: Matcher, query: Side | None) -> Callable[..., tf.Tensor]:
    """What scores a tile: one for each matcher, since it is traced anew wherever it is made."""
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


def _length(embedding: Arrays) -> int:
    return len(next(iter(embedding.values())))


def _tiles(embedding: Arrays, size: int) -> Iterator[np.ndarray]:
    """The numbers of the items of each tile, in order, or by length where lengths differ."""
    order = np.arange(_length(embedding))
    values = next(iter(embedding.values()))
    if isinstance(values, Ragged):
        order = np.argsort(values.lengths, kind="stable")
    for start in range(0, len(order), size):
        yield order[start : start + size]


def _part(embedding: Arrays, items: np.ndarray) -> dict[str, tf.Tensor]:
    return {name: tf.constant(values[items]) for name, values in embedding.items()}
