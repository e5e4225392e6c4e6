"""Finds the unlabelled pairs that models rank highly: candidates for missing labels.

Judged pairs are a sparse matrix (images, captions): a stored number above 0 is a right pair, a
stored 0 a wrong one. All other pairs are unlabelled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse
from scipy.stats import rankdata

from data_pipelines.processors import in_threads
from keras_xmr.config.schema import AuditOptions
from keras_xmr.evaluation.reporting.table import Table
from keras_xmr.judgements import Judgements
from keras_xmr.metrics import ScoreMatrices
from keras_xmr.reranking.base import refuse_non_finite
from keras_xmr.utils.errors import ArgumentError
from keras_xmr.utils.option_types import Combination
from keras_xmr.utils.vectors import chunks

_ROWS = 128
_LEAD_WEIGHT = np.float32(0.5)
_FIRST = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000)


@dataclass(frozen=True, eq=False)
class Candidates:
    """Unlabelled pairs, those with the highest belief first.

    Attributes:
        images: The image of each pair, int64 (pairs,).
        captions: The caption of each pair, int64 (pairs,).
        belief: Their belief, float32 (pairs,); see `belief_matrix`.
    """

    images: np.ndarray
    captions: np.ndarray
    belief: np.ndarray

    def __len__(self) -> int:
        return len(self.images)


class Vote(NamedTuple):
    """Ranks of a pair by one model, among the unlabelled candidates of the query, from 1.

    Attributes:
        score: The score by which the caption is ranked for the image.
        caption_rank: Rank of the caption for the image.
        annotated_caption_rank: Rank of the last annotated caption of the image.
        image_rank: Rank of the image for the caption.
        annotated_image_rank: Rank of the last annotated image of the caption.
    """

    score: float
    caption_rank: int
    annotated_caption_rank: int
    image_rank: int
    annotated_image_rank: int

    @property
    def agrees(self) -> bool:
        """Whether the model ranks the pair ahead of annotated ones in both directions."""
        return (
            self.caption_rank < self.annotated_caption_rank
            and self.image_rank < self.annotated_image_rank
        )


def find_candidates(
    scores: Mapping[str, ScoreMatrices], judged: scipy.sparse.csr_array, options: AuditOptions
) -> Candidates:
    """Finds the unlabelled pairs with the highest belief.

    Goes through all unlabelled pairs in falling belief, those of equal belief by image and then
    by caption, and takes a pair unless its image, or its caption, has been taken as often as the
    options allow. Exact. Memory: that of `belief_matrix`.

    Args:
        scores: Of each model, by its name.
        judged: Pairs that are judged already, sparse (images, captions).
        options: The most pairs, and how the beliefs of several models are combined.

    Raises:
        ArgumentError: If scores are missing, shapes differ, or a score is not finite.
    """
    belief, pairs = belief_matrix(scores, judged, options.combine), options.pairs
    images_left = np.full(belief.shape[0], options.per_image)
    captions_left = np.full(belief.shape[1], options.per_caption)
    taken: list[tuple[int, int, float]] = []
    while len(taken) < pairs and len(best := _best(belief, 4 * pairs)):
        for image, caption in zip(*np.divmod(best, belief.shape[1]), strict=True):
            if len(taken) < pairs and images_left[image] and captions_left[caption]:
                taken.append((int(image), int(caption), float(belief[image, caption])))
                belief[image, caption] = -np.inf
                images_left[image] -= 1
                captions_left[caption] -= 1
        # Skipped pairs are in a full row or column: none is considered twice.
        belief[images_left == 0] = -np.inf
        belief[:, captions_left == 0] = -np.inf
    images, captions, values = zip(*taken, strict=True) if taken else ((), (), ())
    return Candidates(
        np.array(images, np.int64), np.array(captions, np.int64), np.array(values, np.float32)
    )


def belief_matrix(
    scores: Mapping[str, ScoreMatrices],
    judged: scipy.sparse.csr_array,
    combine: Combination,
) -> np.ndarray:
    """Computes the belief of some models together in each unlabelled pair.

    The belief of a model in a pair is its score in standard deviations from the mean, plus half of
    its lead: how far the model ranks the pair ahead of right ones. Scores alone list near misses
    where captions are exact, leads alone errors of the annotation (docs/results/flickr8k.md). Of a
    query, let r be the rank of an unlabelled candidate, and a that of the last right answer,
    both counted among unlabelled candidates alone; then its lead is log2(a / r), above 0 where
    the candidate has the higher score. The lead of a pair is the lesser of two:
    that of the caption for the image, and that of the image for the caption.
    Ties never help: of candidates with equal scores each has the last of their ranks, and none
    of them is ahead of a right answer with that score. A query without right answers has
    nothing to be ahead of; there a is the rank after all candidates.

    Args:
        scores: Of each model, by its name.
        judged: Pairs that are judged already, sparse (images, captions).
        combine: Whether the belief of several models is their least or their mean.

    Returns:
        Float32 (images, captions); minus infinity where a pair is judged already. In addition,
        one more such matrix is held where there are several models.

    Raises:
        ArgumentError: If scores are missing, shapes differ, or a score is not finite.
    """
    belief = None
    for name, model in scores.items():
        _check(name, model, judged.shape)
        model_belief = least_leads(model, judged)
        model_belief *= _LEAD_WEIGHT
        _add_scores(model_belief, model)
        if belief is None:
            belief = model_belief
        elif combine == "least":
            np.minimum(belief, model_belief, out=belief)
        else:
            belief += model_belief
    if belief is None:
        raise ArgumentError("no scores: use at least one model")
    if combine == "mean":
        belief /= np.float32(len(scores))
    belief[judged.tocoo().coords] = -np.inf
    return belief


def vote(
    scores: ScoreMatrices, judged: scipy.sparse.csr_array, images: np.ndarray, captions: np.ndarray
) -> list[Vote]:
    """Computes the votes of one model on some unlabelled pairs.

    Args:
        scores: Scores of the model.
        judged: Pairs that are judged already, sparse (images, captions).
        images: The image of each pair, int (pairs,).
        captions: The caption of each pair.
    """
    by_image, by_caption = scores.by_query
    columns = (
        by_image[images, captions].tolist(),
        *_ranks_of(by_image, judged, images, captions),
        *_ranks_of(by_caption, judged.T.tocsr(), captions, images),
    )
    return list(map(Vote, *columns))


def _check(name: str, scores: ScoreMatrices, shape: tuple[int, int]) -> None:
    for matrix in _matrices(scores):
        if matrix.shape != shape:
            raise ArgumentError(
                f"the scores of {name} have the shape {matrix.shape}, but there are {shape[0]} "
                f"images and {shape[1]} captions"
            )
        for first in range(0, len(matrix), _ROWS):
            refuse_non_finite(matrix[first : first + _ROWS], first)


def _matrices(scores: ScoreMatrices) -> list[np.ndarray]:
    """The matrices (images, captions) of scores: one, or one for each direction."""
    by_image, by_caption = scores.by_query
    return [by_image] if scores.other is None else [by_image, by_caption.T]


def least_leads(scores: ScoreMatrices, judged: scipy.sparse.csr_array) -> np.ndarray:
    """The lesser lead of every pair by one model, float32 (images, captions).

    Judged pairs have any number; see `belief_matrix`.
    """
    by_image, by_caption = scores.by_query
    leads = np.full(judged.shape, np.inf, np.float32)
    _lower_to_leads(leads, by_image, judged)
    _lower_to_leads(leads.T, by_caption, judged.T.tocsr())
    return leads


def _add_scores(belief: np.ndarray, scores: ScoreMatrices) -> None:
    """Adds scores in standard deviations from their mean, the mean of both directions."""
    matrices = _matrices(scores)
    for matrix in matrices:
        # By rows: NumPy's deviation would hold the whole matrix again.
        mean = float(matrix.mean(dtype=np.float64))
        squares = sum(float(np.square(row - mean, dtype=np.float64).sum()) for row in matrix)
        scale = 1 / max((squares / matrix.size) ** 0.5, 1e-12) / len(matrices)
        for row, values in zip(belief, matrix, strict=True):
            row += (values - mean) * scale


def _lower_to_leads(belief: np.ndarray, scores: np.ndarray, judged: scipy.sparse.csr_array) -> None:
    """Lowers the belief to the leads of the columns, where those are less."""

    def lower(first: int) -> None:
        rows = slice(first, first + _ROWS)
        ranks, annotated = _ranks(scores[rows], judged[rows])
        leads = np.log2(annotated.astype(np.float32))[:, None] - np.log2(ranks.astype(np.float32))
        np.minimum(belief[rows], leads, out=belief[rows])

    in_threads(lower, len(scores), _ROWS)


def _ranks(scores: np.ndarray, judged: scipy.sparse.csr_array) -> tuple[np.ndarray, np.ndarray]:
    """Ranks of candidates among the unlabelled ones of their row, and of its last right answer.

    Of candidates with equal scores each has the last of their ranks.
    """
    block = np.array(scores, order="C")
    places, right = judged.tocoo().coords, judged.data > 0
    last = np.full(len(block), np.inf, block.dtype)
    np.minimum.at(last, places[0][right], block[places][right])
    last[np.isposinf(last)] = -np.inf
    block[places] = -np.inf
    annotated = 1 + np.count_nonzero(block > last[:, None], axis=1)
    return rankdata(-block, method="max", axis=1), annotated


def _ranks_of(
    scores: np.ndarray, judged: scipy.sparse.csr_array, rows: np.ndarray, columns: np.ndarray
) -> tuple[list[int], list[int]]:
    """The result of `_ranks` for some columns in their rows."""
    ranks: list[int] = []
    annotated: list[int] = []
    for pairs in chunks(np.arange(len(rows)), _ROWS):
        of_rows, of_last = _ranks(scores[rows[pairs]], judged[rows[pairs]])
        ranks += of_rows[np.arange(len(pairs)), columns[pairs]].astype(int).tolist()
        annotated += of_last.tolist()
    return ranks, annotated


def _best(belief: np.ndarray, count: int) -> np.ndarray:
    """The flat places of the highest finite beliefs: the highest first, then in their order."""
    places, values = np.empty(0, np.int64), np.empty(0, np.float32)
    for first in range(0, len(belief), _ROWS):
        block = belief[first : first + _ROWS].ravel()
        # Of equal beliefs the earlier places count, and those are in already.
        higher = np.flatnonzero(block > (values[-1] if len(values) == count else -np.inf))
        if len(higher) > count:
            # Equal ones at the edge are all kept, so that their order decides below.
            edge = np.partition(block[higher], len(higher) - count)[len(higher) - count]
            higher = higher[block[higher] >= edge]
        places = np.concatenate([places, higher + first * belief.shape[1]])
        values = np.concatenate([values, block[higher]])
        order = np.argsort(-values, kind="stable")[:count]
        places, values = places[order], values[order]
    return places


@dataclass(frozen=True)
class Precision:
    """The share of right pairs among candidates.

    Attributes:
        shares: Of each list of candidates, by its name: for N, the share among the first N; the
            last N is the length of the list.
        chance: The share among all unlabelled pairs: the expectation of a random list.
    """

    shares: dict[str, dict[int, float]]
    chance: float


def measure_precision(
    lists: Mapping[str, Candidates], truth: Judgements, judged: scipy.sparse.csr_array
) -> Precision:
    """Measures lists of candidates against an exhaustive truth.

    Args:
        lists: At least one candidate per list, by the name of the list.
        truth: The exhaustive judgements.
        judged: Pairs that are judged already, as in `find_candidates`.
    """
    images, captions = judged.shape
    true = _places(truth.grades)
    shares: dict[str, dict[int, float]] = {}
    for name, candidates in lists.items():
        right = np.isin(candidates.images * captions + candidates.captions, true)
        counts = [n for n in _FIRST if n < len(candidates)] + [len(candidates)]
        shares[name] = {n: float(right[:n].mean()) for n in counts}
    missing = np.count_nonzero(~np.isin(true, _places(judged)))
    return Precision(shares, missing / (images * captions - judged.nnz))


def _places(matrix: scipy.sparse.csr_array) -> np.ndarray:
    """The flat places of the stored numbers."""
    return np.ravel_multi_index(matrix.tocoo().coords, matrix.shape)


def precision_table(title: str, precision: Precision) -> Table:
    """Makes a table with a row per list of candidates, and one for chance, in percent.

    Args:
        title: The name of the split.
        precision: The precision of the lists.
    """
    counts = sorted({n for shares in precision.shares.values() for n in shares})
    rows = [
        [name, *(_percent(shares.get(n)) for n in counts)]
        for name, shares in precision.shares.items()
    ]
    rows.append(["chance", *(_percent(precision.chance) for _ in counts)])
    heading = f"{title}: precision of the first N candidates, exhaustive truth"
    return Table(heading, ["", *(f"P@{n}" for n in counts)], rows)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"
