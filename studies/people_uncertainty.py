"""Correlation of model uncertainty with human disagreement: sigma compared with free baselines."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from intervals import Figure, correlations, statistic
from judged import Judged
from model_answers import SplitAnswers

from keras_xmr.evaluation.uncertainty.assessment import (
    RiskCoverage,
    few_words,
    narrow_gaps,
    risk_coverage,
)
from keras_xmr.judgements import Judgements
from keras_xmr.metrics import evaluate_scores

SIDES = ("caption", "image")
SIGMA = "sigma"
_AREAS = 500  # resamples of areas, which are not vectorised


def uncertainties(test: SplitAnswers, side: str) -> dict[str, np.ndarray]:
    """Uncertainties of each query, by source: larger is less certain.

    Sigma comes first, if there is one. The others take no training: the gap of the first two
    scores, how low the first one is, and how few words a caption has.
    """
    scores = test.scores.T if side == "caption" else test.scores
    found = {"score gap": narrow_gaps(scores), "first score": -scores.max(axis=1)}
    if side == "caption":
        found["few words"] = few_words(test.texts.tolist())
    sigma = getattr(test, f"{side}_log_sigma")
    return found if sigma is None else {SIGMA: sigma, **found}


def against_people(
    test: SplitAnswers, crowd: Judged, experts: Judged
) -> Iterator[tuple[str, str, str, Figure]]:
    """Rank correlations of uncertainties with what people said; own pairs do not count.

    Yields:
        The side of the queries, what people said of them, what is correlated, and the figure.
    """
    for side in SIDES:
        own, others = uncertainties(test, side), ~crowd.own
        sums = crowd.mean_per_query(np.ones(len(others)), side, others)
        share = crowd.mean_per_query(crowd.right.astype(float), side, others)
        queries = (crowd.images if side == "image" else crowd.captions)[others]
        number = np.bincount(queries, crowd.right[others], minlength=len(sums)).astype(float)
        number[np.isnan(sums)] = np.nan
        targets = {
            "share that the crowd calls right": share,
            "number that the crowd calls right": number,
            "disagreement of the crowd": crowd.mean_per_query(crowd.spread, side, others),
            "disagreement of the experts": experts.mean_per_query(
                experts.spread, side, ~experts.own
            ),
        }
        for title, target in targets.items():
            for name, figure in correlations(own, target).items():
                yield side, title, name, figure


def right_answers(test: SplitAnswers, judgements: Judgements) -> dict[str, np.ndarray]:
    """True for queries with a relevant first judged answer, by side; NaN for other items."""
    found = evaluate_scores(test.scores, judgements)
    return {
        "image": found.image_to_text.values["recall_1"],
        "caption": found.text_to_image.values["recall_1"],
    }


def selective(
    test: SplitAnswers, truths: dict[str, Judgements]
) -> Iterator[tuple[str, str, str, Figure]]:
    """AURC gain of uncertainties: from 0, a random order of answers, to 1, that of an oracle.

    Yields:
        The side of the queries, the truth, what orders the answers, and the figure; for sigma also
        its gain minus that of each other.
    """
    for truth, judgements in truths.items():
        for side, correct in right_answers(test, judgements).items():
            photos = np.arange(len(correct)) if side == "image" else test.caption_image
            for name, figure in _gains(uncertainties(test, side), correct, photos):
                yield side, truth, name, figure


def _gains(
    own: dict[str, np.ndarray], correct: np.ndarray, photos: np.ndarray
) -> Iterator[tuple[str, Figure]]:
    """The gain of each uncertainty, and that of sigma minus that of each other.

    Captions of one photo are drawn together.
    """
    known = ~np.isnan(correct)
    right, own = correct[known], {name: values[known] for name, values in own.items()}
    photos = photos[known]
    for name, values in own.items():
        yield (
            name,
            statistic(lambda some, u=values: _gain(u[some], right[some]), photos, _AREAS),
        )
    if (sigma := own.pop(SIGMA, None)) is None:
        return
    for name, values in own.items():

        def difference(some: np.ndarray, other: np.ndarray = values) -> float:
            return _gain(sigma[some], right[some]) - _gain(other[some], right[some])

        yield f"{SIGMA} - {name}", statistic(difference, photos, _AREAS)


def curves(test: SplitAnswers, judgements: Judgements, side: str) -> dict[str, RiskCoverage]:
    """The risk at every coverage, by what orders the answers."""
    correct = right_answers(test, judgements)[side]
    return {n: risk_coverage(u, correct) for n, u in uncertainties(test, side).items()}


def _gain(uncertainty: np.ndarray, correct: np.ndarray) -> float:
    return risk_coverage(uncertainty, correct).gain
