"""Matcher in which words without a region count against a pair (Zhang et al. 2022)."""

from __future__ import annotations

from typing import Any, Unpack

from keras_xmr.embeddings.kinds import Tensor, Tokens
from keras_xmr.layers import l2_normalize
from keras_xmr.layers.backend import assign_statistics, read_variables
from keras_xmr.layers.operations import ops
from keras_xmr.matchers.alignment import attention_logits, score_in_tiles, softmax
from keras_xmr.matchers.base import Matcher
from keras_xmr.parts.contracts import MatcherContract, SearchContract
from keras_xmr.parts.option_types import LayerOptions, PositiveFloat, PositiveInt

_RELATED = 5.0
"""Factor of the cosines of words with one another; released code."""

_MOVED = 0.7
"""Weight of a batch in the boundaries; released code."""

_STATISTICS = 5


class NAAF(Matcher):
    """Negative-aware attention of words to regions (Zhang et al. 2022, section 3.2 and 3.3).

    A word without a region above a boundary b of the cosine is a mismatch, and adds its best cosine
    minus b, which is negative. All words add the cosine with the mean of those regions that are
    above b, weights softmax(smoothing * cosine), and the mean of the cosines with all regions,
    weighted as in `SCAN`. The score is the mean over the words.

    b is learned in training by its definition: where the best cosines of words in matching pairs,
    as a normal distribution, are `penalty` times as dense as in mismatching ones. Evaluation has
    another, three deviations below the mean of the matching, and takes the sign of a word's
    difference from it after a mean over related words of its caption: as in the released code.

    Adapted: for each caption, the image that scores highest of the batch is taken as matching, and
    the one that scores lowest as mismatching. The released code leaves out captions for which the
    first is another image than its own, which a matcher does not know.

    Args:
        smoothing: Factor of the attention logits.
        penalty: alpha, how much worse it is to take a mismatching word as matching.
        captions_at_once: Captions of a tile.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = MatcherContract(accepts=("tokens",), tileable=False)
    SEARCH = SearchContract(augmentation="token_means")

    def __init__(
        self,
        *,
        smoothing: PositiveFloat = 20.0,
        penalty: PositiveFloat = 2.0,
        captions_at_once: PositiveInt = 4,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.smoothing = smoothing
        self.penalty = penalty
        self.captions_at_once = captions_at_once
        # Every replica sees the global batch, so any of them has the statistics.
        kept = {"trainable": False, "aggregation": "only_first_replica"}
        self.boundary = self.add_scalar("boundary", 0.0, **kept)
        self.test_boundary = self.add_scalar("test_boundary", 0.0, **kept)

    def call(self, image: Tokens, caption: Tokens, training: bool = False) -> Tensor:
        def score(weights: Any, image: Tokens, caption: Tokens) -> list[Tensor]:
            return self._score(weights[0], image, caption, training)

        image, caption = self.checked(image, "image"), self.checked(caption, "text")
        # A copy: gradients are computed after the boundary has moved.
        read = read_variables(self.boundary if training else self.test_boundary)
        weights = [ops.copy(boundary) for boundary in read]
        count = _STATISTICS if training else 0
        scores, *statistics = score_in_tiles(
            score, weights, image, caption, self.captions_at_once, training, count
        )
        if training:
            totals = (ops.sum(ops.stop_gradient(numbers)) for numbers in statistics)
            self._move(*(ops.cast(total, self.boundary.dtype) for total in totals))
        return scores

    def _score(
        self, boundary: Tensor, image: Tokens, caption: Tokens, training: bool
    ) -> list[Tensor]:
        """Returns the scores (N, C) of a tile, and in training what `_move` adds up, (C,) each."""
        regions, words = l2_normalize(image["tokens"]), l2_normalize(caption["tokens"])
        there, mask = image["mask"][:, None, None, :] > 0, caption["mask"]
        # Not by `matmul`: TensorFlow's on a CPU corrupts memory where it repeats an axis of 1.
        cosines = ops.einsum("cld,nrd->nclr", words, regions)
        best = ops.amax(ops.where(there, cosines, -1.0), axis=-1)
        apart = best - boundary
        sign = apart if training else ops.einsum("clk,nck->ncl", _relations(words, mask), apart)
        total = ops.where(sign < 0.0, apart, 0.0)
        total = total + self._aggregated(cosines, there & (cosines > boundary), regions)
        total = total + self._relevance(cosines, there, mask)
        length = ops.sum(mask, axis=-1)
        scores = ops.sum(total * mask, axis=-1) / ops.maximum(length, 1.0)
        if not training:
            return [scores]
        numbers = [length]
        for place in (ops.argmax(scores, axis=0), ops.argmin(scores, axis=0)):
            taken = ops.take_along_axis(best, place[None, :, None], axis=0)[0] * mask
            numbers += [ops.sum(taken, axis=-1), ops.sum(taken * taken, axis=-1)]
        return [scores, *numbers]

    def _aggregated(self, cosines: Tensor, matching: Tensor, regions: Tensor) -> Tensor:
        """Compares words with the mean of the matching regions: (N, C, L), 0 without any."""
        weights = softmax(ops.where(matching, self.smoothing * cosines, -1e9))
        weights = ops.where(matching, weights, 0.0)
        # |w V|^2 = w (V V^T) w, and w V t = w cosines: no vector of a pair is made.
        similar = ops.matmul(regions, ops.swapaxes(regions, 1, 2))
        squares = ops.sum(ops.einsum("nclr,nrs->ncls", weights, similar) * weights, axis=-1)
        return ops.sum(weights * cosines, axis=-1) * ops.rsqrt(ops.maximum(squares, 1e-12))

    def _relevance(self, cosines: Tensor, there: Tensor, mask: Tensor) -> Tensor:
        """Averages cosines of words with regions by the attention of `SCAN`: (N, C, L)."""
        cosines, there = (ops.swapaxes(values, -1, -2) for values in (cosines, there))
        logits = attention_logits(cosines, mask[:, None, :], there, self.smoothing)
        return ops.sum(softmax(logits, axis=-2) * cosines, axis=-2)

    def _move(self, words: Tensor, *sums: Tensor) -> None:
        """Moves the boundaries by the best cosines of a batch: sums, and sums of squares."""
        (mean, variance), (other_mean, other_variance) = (
            _moments(words, *sums[first : first + 2]) for first in (0, 2)
        )
        a = variance - other_variance
        b = 2.0 * (mean * other_variance - other_mean * variance)
        ratio = 0.5 * (ops.log(other_variance) - ops.log(variance)) - ops.log(self.penalty)
        c = other_mean**2 * variance - mean**2 * other_variance
        c = c + 2.0 * variance * other_variance * ratio
        root = b * b - 4.0 * a * c
        # The root of a t^2 + b t + c between the means, without a difference of like numbers.
        found = -2.0 * c / ops.maximum(b + ops.sqrt(ops.maximum(root, 0.0)), 1e-12)
        found = ops.where(root > 0.0, found, ops.convert_to_tensor(self.boundary))
        for kept, value in (
            (self.boundary, found),
            (self.test_boundary, mean - 3.0 * ops.sqrt(variance)),
        ):
            within = ops.where((value < 0.0) | (value > 1.0), 0.0, value)
            assign_statistics(kept, _MOVED * within + (1.0 - _MOVED) * kept)


def _relations(words: Tensor, mask: Tensor) -> Tensor:
    """Says how far each word of a caption is related to the others, (C, L, L), sums of 1."""
    cosines = _RELATED * ops.matmul(words, ops.swapaxes(words, 1, 2))
    return softmax(ops.where(mask[:, None, :] > 0, cosines, -1e9))


def _moments(count: Tensor, total: Tensor, squares: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the mean and the variance of numbers with these sums."""
    count = ops.maximum(count, 2.0)
    mean = total / count
    return mean, ops.maximum((squares - count * mean * mean) / (count - 1.0), 1e-8)
