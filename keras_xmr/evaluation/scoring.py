"""Scores all images with all captions, tile by tile."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from data_pipelines.progress import Progress
from keras_xmr.evaluation.embed import Arrays
from keras_xmr.matchers import Matcher


def score_matrix(
    matcher: Matcher, images: Arrays, captions: Arrays, tile: tuple[int, int]
) -> np.ndarray:
    """Scores of all images (N) with all captions (M).

    Only one tile is computed at a time, so memory follows the answer. Scores do not depend on
    the tile.

    Args:
        matcher: The matcher.
        images: The embedding of the images.
        captions: The embedding of the captions.
        tile: How many images and captions are scored at once.

    Returns:
        Float32 (N, M).
    """
    num_images, num_captions = _length(images), _length(captions)
    scores = np.empty((num_images, num_captions), np.float32)

    @tf.function(reduce_retracing=True)
    def score(image: dict[str, tf.Tensor], caption: dict[str, tf.Tensor]) -> tf.Tensor:
        return matcher(matcher.prepare(image, "image"), matcher.prepare(caption, "caption"))

    with Progress("  scoring", num_images * num_captions, "pairs", unit_scale=True) as bar:
        for row in range(0, num_images, tile[0]):
            image = _part(images, row, tile[0])
            for column in range(0, num_captions, tile[1]):
                caption = _part(captions, column, tile[1])
                part = score(image, caption).numpy()
                scores[row : row + tile[0], column : column + tile[1]] = part
                bar.update(part.size)
    return scores


def _length(embedding: Arrays) -> int:
    return len(next(iter(embedding.values())))


def _part(embedding: Arrays, start: int, size: int) -> dict[str, tf.Tensor]:
    return {name: tf.constant(values[start : start + size]) for name, values in embedding.items()}
