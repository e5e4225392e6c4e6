"""Agreement between people, and the ranking of one of them by the others."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from intervals import Figure, correlations, mean, statistic
from judged import Judged
from model_answers import SplitAnswers

from keras_xmr.metrics import (
    alpha_of_counts,
    evaluate_scores,
    krippendorff_alpha,
    pairwise_agreement,
    weighted_kappa,
)

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
