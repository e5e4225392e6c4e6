"""Base class of re-rankers."""

from __future__ import annotations

import abc
from numbers import Integral, Real
from typing import NamedTuple

import numpy as np

from keras_xmr.metrics.score_matrices import real_numbers
from keras_xmr.utils.errors import ArgumentError


class Reranked(NamedTuple):
    """Two score matrices (images, captions), of the dtype of the scores they come from.

    Attributes:
        image_to_text: Scores, whose rows rank captions for an image.
        text_to_image: Scores, whose columns rank images for a caption.
    """

    image_to_text: np.ndarray
    text_to_image: np.ndarray


class Reranker(abc.ABC):
    """Base class of re-rankers of a score matrix.

    Options of a re-ranker are the keyword-only parameters of its constructor. The whole query set
    is used at once (transductive): a score depends on the other images and captions.
    """

    def __call__(self, scores: np.ndarray) -> Reranked:
        """Re-ranks both directions.

        Args:
            scores: Scores (images, captions), larger is better. Float32 and float64 are
                kept, others become float32 if it holds them exactly, or else float64. They are
                not changed.

        Raises:
            ValueError: If it is not a matrix of numbers, or a score is NaN or infinite.
            ArgumentError: If `rerank` does not return `Reranked`.
        """
        scores = real_numbers(scores, "scores")
        if scores.ndim != 2 or not scores.size:
            raise ValueError(
                f"scores have the shape {scores.shape}; use a matrix that is not empty"
            )
        if scores.dtype not in (np.float32, np.float64):
            single = scores.astype(np.float32)
            scores = single if np.array_equal(single, scores) else scores.astype(np.float64)
        reranked = self.rerank(scores)
        if not isinstance(reranked, Reranked) or any(
            not isinstance(side, np.ndarray) or side.shape != scores.shape for side in reranked
        ):
            raise ArgumentError(
                f"{type(self).__name__}.rerank must return "
                f"Reranked(image_to_text, text_to_image), two matrices of the shape {scores.shape}"
            )
        return reranked

    @abc.abstractmethod
    def rerank(self, scores: np.ndarray) -> Reranked:
        """Re-ranks both directions of a filled float32 or float64 matrix."""


def check_count(name: str, value: object) -> None:
    """Refuses an option that is not a whole number from 1 on."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise ArgumentError(f"{name} must be a whole number and at least 1, got {value!r}")


def check_scale(name: str, value: object, from_zero: bool = False) -> None:
    """Refuses an option that is not a finite number above 0, or from 0 on."""
    number = float(value) if isinstance(value, Real) else np.nan
    if not 0 <= number < np.inf or (number == 0 and not from_zero):
        least = "at least 0" if from_zero else "above 0"
        raise ArgumentError(f"{name} must be {least} and finite, got {value!r}")


def refuse_non_finite(
    block: np.ndarray,
    first: int = 0,
    left: int = 0,
    names: tuple[str, str] = ("image", "caption"),
) -> None:
    """Raises an error if a block of scores has NaN or an infinity.

    Args:
        block: A part of the score matrix.
        first: The image of its first row.
        left: The caption of its first column.
        names: What a row and a column are, in the error.

    Raises:
        ArgumentError: With the place of the score.
    """
    # Finite if all scores are, unless it overflows; no other reduction is as fast.
    if np.isfinite(np.einsum("ij->", block)):
        return
    for row, column in np.argwhere(~np.isfinite(block)):
        raise ArgumentError(
            f"the score of {names[0]} {first + row} and {names[1]} {left + column} is "
            f"{block[row, column]}"
        )
