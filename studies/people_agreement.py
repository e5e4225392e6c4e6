"""Agreement between people, and the ranking of one of them by the others."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Literal, get_args

import numpy as np
from intervals import Figure, correlations, mean, statistic
from judged import Judged
from model_answers import SplitAnswers

from keras_xmr.judgements.relation import as_array
from keras_xmr.metrics import evaluate_scores
from keras_xmr.utils.errors import ArgumentError

Level = Literal["nominal", "ordinal", "interval"]

_COUNTS = "counts are a matrix (items, values) of numbers"
_RESAMPLES = 300
METRICS = ("r_precision", "ndcg_10", "bpref")


def agreement(crowd: Judged, experts: Judged) -> Iterator[tuple[str, str, Figure]]:
    """Agreement among experts, among the crowd, and between both.

    Yields:
        Who, what is measured, and the figure.
    """
    scores, votes = experts.values, crowd.values
    for title, of in {
        "Krippendorff's alpha, ordinal": lambda s: krippendorff_alpha(s.astype(float)),
        "Krippendorff's alpha, right or wrong": lambda s: krippendorff_alpha(
            (s >= 3).astype(float), "nominal"
        ),
        "mean kappa of two, quadratic weights": _mean_kappa,
        "two say the same": lambda s: pairwise_agreement(_counts(s)),
    }.items():
        yield (
            "experts",
            title,
            statistic(lambda some, of=of: of(scores[some]), experts.captions, _RESAMPLES),
        )
    for title, of in {
        "Krippendorff's alpha, yes or no": alpha_of_counts,
        "two say the same": pairwise_agreement,
        "all say the same": lambda v: float((v.min(axis=1) == 0).mean()),
    }.items():
        yield (
            "crowd",
            title,
            statistic(lambda some, of=of: of(votes[some]), crowd.captions, _RESAMPLES),
        )
    yield from _both(crowd, experts)


def _both(crowd: Judged, experts: Judged) -> Iterator[tuple[str, str, Figure]]:
    places = [own.images * own.shape[1] + own.captions for own in (crowd, experts)]
    _, left, right = np.intersect1d(*places, return_indices=True)
    if not len(left):
        return
    captions = np.unique(crowd.captions[left], return_inverse=True)[1]
    voted, scored = crowd.right[left], experts.right[right]
    share = crowd.values[left, 0] / crowd.values[left].sum(axis=1)
    who = "crowd and experts, pairs that both judged"
    yield who, "both say right, or both wrong", mean((voted == scored).astype(float), captions)
    yield (
        who,
        "kappa of right or wrong",
        statistic(
            lambda some: weighted_kappa(voted[some].astype(int), scored[some].astype(int), "none"),
            captions,
            _RESAMPLES,
        ),
    )
    scores = experts.values[right].mean(axis=1)
    yield who, "rank correlation of votes and scores", correlations({"": share}, scores)[""]
    for title, some, of in (
        ("right by experts, of those right by the crowd", scored, voted),
        ("right by the crowd, of those right by experts", voted, scored),
    ):
        yield who, title, mean(np.where(of, some, np.nan), captions)


def one_against_others(
    test: SplitAnswers, experts: Judged
) -> Iterator[tuple[str, str, str, Figure]]:
    """Metrics of one expert's scores and of the model, by the other two experts.

    A pair is right if the mean of the other two is 3 or more; own captions count by what the
    experts said alone. An expert gives many equal scores: they count against the expert, which is
    the lower end of what the expert knows, then for, which is the upper end, then at random.

    Yields:
        The side of the queries, who ranks, the metric, and its mean over the three experts.
    """
    random = np.random.default_rng(0)
    gathered: dict[tuple[str, str, str], list[np.ndarray]] = {}
    for left_out in range(3):
        others = np.delete(experts.values, left_out, axis=1).mean(axis=1)
        grades = np.where(others >= 3, others - 2, 0)
        relation = experts.relation(grades)
        said = np.zeros(experts.shape)
        said[experts.images, experts.captions] = experts.values[:, left_out]
        helped = said + 1e-3 * relation.grades.toarray()
        rankings = {
            "model": test.scores,
            "one expert, ties against": said,
            "one expert, ties for": helped,
            "one expert, ties at random": said + 1e-3 * random.random(said.shape),
        }
        for who, scores in rankings.items():
            found = evaluate_scores(scores, relation)
            for side in ("caption", "image"):
                queries = found.text_to_image if side == "caption" else found.image_to_text
                for metric in METRICS:
                    gathered.setdefault((side, who, metric), []).append(queries.values[metric])
    for (side, who, metric), values in gathered.items():
        stacked = np.stack(values)
        known = ~np.isnan(stacked)
        sizes = known.sum(axis=0)
        per_query = np.where(known, stacked, 0).sum(axis=0) / np.where(sizes, sizes, np.nan)
        yield side, who, metric, mean(per_query)


def _mean_kappa(scores: np.ndarray) -> float:
    pairs = itertools.combinations(scores.T, 2)
    return float(np.mean([weighted_kappa(left, right) for left, right in pairs]))


def _counts(scores: np.ndarray) -> np.ndarray:
    return np.stack([(scores == value).sum(axis=1) for value in (1, 2, 3, 4)], axis=1)


def krippendorff_alpha(ratings: np.ndarray, level: Level = "ordinal") -> float:
    """Krippendorff's alpha (Krippendorff 2004, Ch. 11): 1 is perfect, 0 that of chance.

    Args:
        ratings: The rating of each item by each rater, float (items, raters); NaN if missing.
        level: The distance of two ratings: equal for any two ("nominal"), by the number of ratings
            between them ("ordinal"), or their squared difference ("interval").

    Returns:
        Alpha; NaN if no two ratings of an item can be compared, or all ratings are equal.

    Raises:
        ArgumentError: If the ratings are not a matrix of numbers, or the level is unknown.
    """
    ratings = _matrix(ratings, "ratings are a matrix (items, raters) of numbers")
    values = np.unique(ratings[~np.isnan(ratings)])
    counts = (ratings[..., None] == values).sum(axis=1)
    return alpha_of_counts(counts, values, level)


def alpha_of_counts(
    counts: np.ndarray, values: np.ndarray | None = None, level: Level = "nominal"
) -> float:
    """Krippendorff's alpha of the number of raters per value.

    Args:
        counts: The number of raters of each item that gave each value, int (items, values).
        values: The values themselves, for the level "interval".
        level: See `krippendorff_alpha`.

    Raises:
        ArgumentError: If the counts are not a matrix of numbers, or the level is unknown.
    """
    counts = _matrix(counts, _COUNTS)
    if level not in get_args(Level):
        raise ArgumentError(f"the levels are {', '.join(get_args(Level))}, not {level!r}")
    counts = counts[counts.sum(axis=1) > 1].astype(np.float64)
    sizes = counts.sum(axis=1)
    weighted = counts / np.maximum(sizes - 1, 1)[:, None]
    together = weighted.T @ counts - np.diag(weighted.sum(axis=0))
    totals = counts.sum(axis=0)
    apart = _distances(totals, np.arange(len(totals)) if values is None else values, level)
    expected = (np.outer(totals, totals) * apart).sum()
    if not expected:
        return np.nan
    return float(1 - (totals.sum() - 1) * (together * apart).sum() / expected)


def _matrix(given: Any, says: str) -> np.ndarray:
    matrix = as_array(given, says)
    if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
        raise ArgumentError(f"{says}, not {matrix.dtype} of shape {matrix.shape}")
    return matrix


def _distances(totals: np.ndarray, values: np.ndarray, level: Level) -> np.ndarray:
    """The squared distances of values, of which there are `totals`: (values, values)."""
    if level == "nominal":
        return 1 - np.eye(len(totals))
    if level == "interval":
        places = np.asarray(values, np.float64)
    else:
        places = np.cumsum(totals) - totals / 2
    return np.subtract.outer(places, places) ** 2


def weighted_kappa(
    left: np.ndarray,
    right: np.ndarray,
    weights: Literal["none", "linear", "quadratic"] = "quadratic",
) -> float:
    """Kappa of two raters (Cohen 1960 and 1968): 1 is perfect, 0 that of chance.

    Args:
        left: The ratings of the first, whole numbers (items,).
        right: The ratings of the second.
        weights: The disagreement of two ratings: equal for any two, their difference, or its
            square.

    Returns:
        Kappa; NaN if all ratings are equal.

    Raises:
        ArgumentError: If these are not two ratings of each item, or the weights are unknown.
    """
    left, right = as_array(left, "left"), as_array(right, "right")
    kinds = {left.dtype.kind, right.dtype.kind}
    if left.ndim != 1 or left.shape != right.shape or kinds - {*"biuf"}:
        raise ArgumentError(
            "two raters give each item a whole number, but these are "
            f"{left.dtype} of shape {left.shape} and {right.dtype} of shape {right.shape}"
        )
    if weights not in (known := {"none": 0, "linear": 1, "quadratic": 2}):
        raise ArgumentError(f"the weights are {', '.join(known)}, not {weights!r}")
    values = np.unique(np.concatenate([left, right]))
    apart = np.abs(np.subtract.outer(values, values)).astype(np.float64)
    apart = (apart > 0) * apart ** known[weights]
    a, b = np.searchsorted(values, left), np.searchsorted(values, right)
    counts = [np.bincount(ratings, minlength=len(values)) / len(ratings) for ratings in (a, b)]
    expected = (np.outer(*counts) * apart).sum()
    return float(1 - apart[a, b].mean() / expected) if expected else np.nan


def pairwise_agreement(counts: np.ndarray) -> float:
    """The share of pairs of raters of an item that gave the same value, over all items.

    Args:
        counts: The number of raters of each item that gave each value, int (items, values).

    Raises:
        ArgumentError: If the counts are not a matrix of numbers.
    """
    counts = _matrix(counts, _COUNTS).astype(np.float64)
    sizes = counts.sum(axis=1)
    pairs = (sizes * (sizes - 1)).sum()
    return float((counts * (counts - 1)).sum() / pairs) if pairs else np.nan
