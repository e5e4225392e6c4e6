"""Re-ranking by normalised rows and columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from keras_xmr.reranking.base import Reranked, Reranker, check_scale, refuse_non_finite
from keras_xmr.utils.errors import ArgumentError
from keras_xmr.utils.processors import in_threads

if TYPE_CHECKING:
    from keras_xmr.parts.option_types import PositiveFloat

# A block of scores and its exponentials stay in the cache of a core.
_ROWS = 256
_COLUMNS = 1024
_WRITTEN_ROWS = 8

# Sums of exponentials between these have neither overflowed nor lost significant terms.
_SAFE = (1e-25, 1e30)


class FastReranking(Reranker):
    """Fast re-ranking (FR): every score against all rivals in the other direction.

    Image-to-text, a score is compared with the scores of its caption and all images; text-to-image,
    with the scores of its image and all captions (Eq. 14 and 15; in Eq. 13 and 14 the sum runs
    over the images l of column j):

        image_to_text[i, j] = gamma2 A_ij - log sum_l exp(gamma1 A_lj)
        text_to_image[i, j] = lambda2 A_ij - log sum_l exp(lambda1 A_il)

    The formulas are the logarithms of Eq. 14, so the ranking is the same, and safe for any scale.
    With gamma1 = gamma2, exp(image_to_text) is a softmax over images, and likewise for lambda. Sums
    are kept in float64 between blocks; memory holds the two results and about 1% more.

    The presets are for cosines. For scores of another range, such as log-odds, the scales
    must be searched: `tune`.

    Source: "Dynamic Visual Semantic Sub-Embeddings and Fast Re-Ranking" (DVSE), Eq. 13 to 15.

    Args:
        preset: The scales that are not set otherwise: as in the paper for cosines
            on MS-COCO and Flickr30K (gamma1 = gamma2 = 25, lambda1 = lambda2 = 20), or on CUB
            (gamma1 = 9, gamma2 = 8, lambda1 = 8, lambda2 = 17).
        gamma1: Image-to-text, scale in the sum over images: how near it comes to the best rival.
        gamma2: Image-to-text, scale of the score itself: how much it weighs against that.
        lambda1: Text-to-image, scale in the sum over captions.
        lambda2: Text-to-image, scale of the score itself.
    """

    PRESETS: ClassVar[dict[str, tuple[float, float, float, float]]] = {
        "coco": (25.0, 25.0, 20.0, 20.0),
        "flickr30k": (25.0, 25.0, 20.0, 20.0),
        "cub": (9.0, 8.0, 8.0, 17.0),
    }

    gamma1: float
    gamma2: float
    lambda1: float
    lambda2: float

    def __init__(
        self,
        *,
        preset: Literal["coco", "flickr30k", "cub"] = "coco",
        gamma1: PositiveFloat | None = None,
        gamma2: PositiveFloat | None = None,
        lambda1: PositiveFloat | None = None,
        lambda2: PositiveFloat | None = None,
    ) -> None:
        if not isinstance(preset, str) or preset not in self.PRESETS:
            raise ArgumentError(f"preset must be one of {', '.join(self.PRESETS)}, got {preset!r}")
        given = {"gamma1": gamma1, "gamma2": gamma2, "lambda1": lambda1, "lambda2": lambda2}
        for (name, scale), default in zip(given.items(), self.PRESETS[preset], strict=True):
            scale = default if scale is None else scale
            check_scale(name, scale)
            setattr(self, name, float(scale))

    def rerank(self, scores: np.ndarray) -> Reranked:
        sums = log_sums(scores, {0: self.gamma1, 1: self.lambda1})
        with np.errstate(over="ignore"):
            caption_offset = (sums[0] / self.gamma2).astype(scores.dtype)
            image_offset = (sums[1] / self.lambda2).astype(scores.dtype)[:, None]
        result = Reranked(
            np.empty(scores.shape, scores.dtype), np.empty(scores.shape, scores.dtype)
        )

        def write(begin: int) -> None:
            for first in range(begin, begin + _ROWS, _WRITTEN_ROWS):
                rows = slice(first, first + _WRITTEN_ROWS)
                for offset, scale, target in (
                    (caption_offset, self.gamma2, result.image_to_text[rows]),
                    (image_offset[rows], self.lambda2, result.text_to_image[rows]),
                ):
                    # The scale is applied last: it would cost digits of the difference.
                    with np.errstate(over="ignore", invalid="ignore"):
                        np.subtract(scores[rows], offset, out=target)
                        np.multiply(target, scores.dtype.type(scale), out=target)
                    if not np.isfinite(target).all():
                        raise ArgumentError(
                            f"re-ranked scores are too large for {scores.dtype}; divide the scores "
                            "by a constant, and search the scales again with tune"
                        )

        in_threads(write, len(scores), _ROWS)
        return result


def log_sums(scores: np.ndarray, scales: Mapping[int, float]) -> dict[int, np.ndarray]:
    """Computes log sum exp(scale * scores) along rows, columns, or both, in one pass over the
    scores.

    Args:
        scores: Scores (images, captions), float32 or float64.
        scales: The scale of each axis that is summed over: 0 sums over images, 1 over captions.

    Returns:
        For each of these axes float64, (captions,) or (images,).

    Raises:
        ValueError: If a score is NaN or infinite.
    """
    images, captions = scores.shape
    shapes = {0: (-(-images // _ROWS), captions), 1: (images, -(-captions // _COLUMNS))}
    partial = {axis: np.empty(shapes[axis]) for axis in scales}

    def add(first: int) -> None:
        buffer = np.empty((_ROWS, _COLUMNS), scores.dtype)
        for left in range(0, captions, _COLUMNS):
            block = scores[first : first + _ROWS, left : left + _COLUMNS]
            refuse_non_finite(block, first, left)
            for axis, scale in scales.items():
                power = buffer[: block.shape[0], : block.shape[1]]
                sums = _block_log_sums(block, scale, axis, power)
                if axis == 0:
                    partial[0][first // _ROWS, left : left + _COLUMNS] = sums
                else:
                    partial[1][first : first + _ROWS, left // _COLUMNS] = sums

    in_threads(add, images, _ROWS)
    return {axis: _block_log_sums(blocks, 1, axis) for axis, blocks in partial.items()}


def _block_log_sums(
    block: np.ndarray, scale: float, axis: int, out: np.ndarray | None = None
) -> np.ndarray:
    """Computes log sum exp(scale * block) along one axis, float64.

    Args:
        block: Numbers (rows, columns), finite.
        scale: The scale.
        axis: The axis that is summed over.
        out: Buffer of the exponentials, of the shape and dtype of the block.
    """
    factor = block.dtype.type(scale)
    with np.errstate(over="ignore"):
        sums = _exp_sums(np.multiply(block, factor, out=out), axis)
    if _SAFE[0] < sums.min() and sums.max() < _SAFE[1]:
        return np.log(sums, dtype=np.float64)
    highest = block.max(axis=axis, keepdims=True)
    with np.errstate(over="ignore"):  # The exponential of what overflows is 0 all the same.
        power = np.subtract(block, highest, out=out)
        sums = _exp_sums(np.multiply(power, factor, out=power), axis)
    return np.log(sums, dtype=np.float64) + scale * highest.squeeze(axis).astype(np.float64)


def _exp_sums(power: np.ndarray, axis: int) -> np.ndarray:
    """Computes sum exp(power) along one axis; the exponentials take the place of the powers."""
    return np.einsum(np.exp(power, out=power), [0, 1], [1 - axis])
