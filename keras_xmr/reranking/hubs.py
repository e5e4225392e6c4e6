"""Re-ranking against hubs: items of the gallery that are near to too many queries.

What is taken off the scores of an item is computed of a bank: scores of other queries, such as
captions for training, with the gallery. Without one, the scores themselves are the bank.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from keras_xmr.linear.hubness import highest, hubness, in_blocks
from keras_xmr.reranking.base import (
    Reranked,
    Reranker,
    check_count,
    check_scale,
    refuse_non_finite,
)
from keras_xmr.reranking.fast import log_sums
from keras_xmr.utils.errors import ArgumentError
from keras_xmr.utils.foreign_arrays import as_array

if TYPE_CHECKING:
    from keras_xmr.parts.option_types import PositiveFloat, PositiveInt


@dataclass(eq=False)
class ScoreBank:
    """Scores of a bank of queries with the gallery, float32 or float64; others become float32.

    Attributes:
        image_to_text: Scores (bank images, captions) with the captions that are ranked.
        text_to_image: Scores (bank captions, images) with the images that are ranked.

    Raises:
        ArgumentError: If one is not a filled matrix of numbers, or a score is NaN or infinite.
    """

    image_to_text: np.ndarray
    text_to_image: np.ndarray

    def __post_init__(self) -> None:
        pair = ("image", "caption")
        for name, of in (("image_to_text", pair), ("text_to_image", pair[::-1])):
            bank = as_array(getattr(self, name), name)
            if bank.ndim != 2 or not bank.size or bank.dtype.kind not in "biuf":
                raise ArgumentError(
                    f"{name} is {bank.dtype} of the shape {bank.shape}; use numbers, (bank "
                    f"{of[0]}s, {of[1]}s)"
                )
            if bank.dtype not in (np.float32, np.float64):
                bank = bank.astype(np.float32)
            refuse_non_finite(bank, names=(f"bank {of[0]}", of[1]))
            setattr(self, name, bank)


class _HubReranker(Reranker):
    def __init__(self, bank: ScoreBank | None, neighbours: int = 1) -> None:
        check_count("neighbours", neighbours)
        if bank is not None and not isinstance(bank, ScoreBank):
            raise ArgumentError(
                "bank is ScoreBank(image_to_text, text_to_image) or None, not a "
                f"{type(bank).__name__}"
            )
        self.bank, self.neighbours = bank, neighbours

    def rerank(self, scores: np.ndarray) -> Reranked:
        refuse_non_finite(scores)
        bank = self.bank
        i2t, t2i = (scores, scores.T) if bank is None else (bank.image_to_text, bank.text_to_image)
        if (gallery := (t2i.shape[1], i2t.shape[1])) != scores.shape:
            raise ArgumentError(
                f"the bank has a gallery of {gallery} images and captions, but the scores are of "
                f"{scores.shape}; score the queries of the bank with these"
            )
        return Reranked(
            self.direction(scores, i2t, "images"), self.direction(scores.T, t2i, "captions").T
        )

    @abstractmethod
    def direction(self, scores: np.ndarray, bank: np.ndarray, queries: str) -> np.ndarray:
        """Returns the new scores of "images" or "captions" with items, by a bank (bank
        queries, items).
        """


class CSLS(_HubReranker):
    """Cross-domain similarity local scaling (CSLS): a score less the mean scores of both sides.

    For query q and item j, with the mean m of the k highest scores (of all, if they are fewer)
    and the scores B of the bank,

        2 A[q, j] - m(A[q, :]) - gate[q] m(B[:, j])

    The mean of the query changes no ranking; it makes the scores of queries comparable.

    Source: Conneau et al. 2018, "Word Translation Without Parallel Data".

    Args:
        bank: The scores of a bank of queries; None for the scores themselves.
        gate: Weights of the mean of an item: for images as queries (images,), and for captions
            as queries (captions,); None for 1. At 0, the query is ranked as before.
        neighbours: k, the number of highest scores in a mean.
    """

    def __init__(
        self,
        bank: ScoreBank | None = None,
        gate: tuple[np.ndarray | None, np.ndarray | None] = (None, None),
        *,
        neighbours: PositiveInt = 10,
    ) -> None:
        super().__init__(bank, neighbours)
        if not isinstance(gate, tuple) or len(gate) != 2:
            raise ArgumentError("gate must be a tuple: the weights of images, then of captions")
        self.gate = dict(zip(("images", "captions"), gate, strict=True))

    def direction(self, scores: np.ndarray, bank: np.ndarray, queries: str) -> np.ndarray:
        gate = self.gate[queries]
        weights = np.ones(len(scores)) if gate is None else as_array(gate, "gate")
        numbers = weights.dtype.kind in "biuf" and np.isfinite(weights).all()
        if weights.shape != (len(scores),) or not numbers:
            raise ArgumentError(
                f"the gate of {queries} has the shape {weights.shape}; use a finite number for "
                f"each of the {len(scores)} {queries}"
            )
        of_query = hubness(scores, self.neighbours)[:, None]
        of_item = hubness(bank.T, self.neighbours)
        result = np.empty_like(scores)

        def write(of: slice) -> None:
            offset = of_query[of] + weights[of, None].astype(np.float64) * of_item
            result[of] = 2 * scores[of] - offset

        in_blocks(write, len(scores))
        return result


class InvertedSoftmax(_HubReranker):
    """Inverted softmax: a score less the soft maximum of the scores of its item.

    For query q and item j, with the temperature T and the scores B of the bank, it is

        A[q, j] - T log sum_l exp(B[l, j] / T),

    T times the logarithm of the softmax over queries: the ranking is the same, and safe for any
    scale. Without a bank, fast re-ranking with all scales at 1 / T ranks alike.

    Source: Smith et al. 2017, "Offline Bilingual Word Vectors, Orthogonal Transformations and the
    Inverted Softmax".

    Args:
        bank: The scores of a bank of queries; None for the scores themselves.
        temperature: T, in the unit of the scores; the default is for cosines.
    """

    def __init__(self, bank: ScoreBank | None = None, *, temperature: PositiveFloat = 0.05) -> None:
        super().__init__(bank)
        check_scale("temperature", temperature)
        self.temperature = float(temperature)

    def direction(self, scores: np.ndarray, bank: np.ndarray, queries: str) -> np.ndarray:
        of_item = self.temperature * log_sums(bank, {0: 1 / self.temperature})[0]
        return np.subtract(scores, of_item, out=np.empty_like(scores), casting="same_kind")


class QueryBankNormalization(_HubReranker):
    """Query bank normalization (QB-Norm): inverted softmax where the best item may be a hub.

    An item may be a hub if a query of the bank has it among its k best, or tied with them. A
    query whose best item (or one of several equal ones) may be a hub gets the scores of
    `InvertedSoftmax`; all others keep theirs. Without a bank, an item has to be among the k best
    of another query, since every best item is among the best of its own query.

    Source: Bogolin et al. 2022, "Cross Modal Retrieval with Querybank Normalisation", dynamic
    inverted softmax; the released code has k = 1 and 1 / T = 20, as here.

    Args:
        bank: The scores of a bank of queries; None for the scores themselves.
        temperature: T of the softmax, in the unit of the scores.
        neighbours: k, the number of best items of a query of the bank.
    """

    def __init__(
        self,
        bank: ScoreBank | None = None,
        *,
        temperature: PositiveFloat = 0.05,
        neighbours: PositiveInt = 1,
    ) -> None:
        super().__init__(bank, neighbours)
        self.softmax = InvertedSoftmax(bank, temperature=temperature)

    def direction(self, scores: np.ndarray, bank: np.ndarray, queries: str) -> np.ndarray:
        def counts(of: slice) -> np.ndarray:
            return (bank[of] >= highest(bank[of], self.neighbours)[:, :1]).sum(axis=0)

        hubs = np.sum(in_blocks(counts, len(bank)), axis=0) > (1 if self.bank is None else 0)

        def kept(of: slice) -> np.ndarray:
            best = scores[of] == scores[of].max(axis=1, keepdims=True)
            return ~(best & hubs).any(axis=1, keepdims=True)

        result = self.softmax.direction(scores, bank, queries)
        np.copyto(result, scores, where=np.concatenate(in_blocks(kept, len(scores))))
        return result
