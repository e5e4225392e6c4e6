"""The uncertainty report card: what the sigma and the probabilities of a model are worth."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from keras_xmr.config.registry import components
from keras_xmr.evaluation.damage import Probes
from keras_xmr.evaluation.reliability import (
    Reliability,
    reliability_of_best,
    reliability_of_pairs,
)
from keras_xmr.evaluation.results import Evaluation
from keras_xmr.evaluation.selective import (
    RiskCoverage,
    bin_intervals,
    narrow_gaps,
    risk_coverage,
)
from keras_xmr.evaluation.uncertainty import SIDES, Bins, few_words, log_sigma
from keras_xmr.reporting.table import Table

WORDS = {
    "sigma": "how unsure the model is of an item: the geometric mean of the standard deviations of "
    "its embedding",
    "AURC": "the mean share of wrong first answers, over all shares of queries that are answered, "
    "surest first; 0 is best",
    "ECE": "how far match probabilities are from the share of answers that are right, on average",
}
"""What the words of the card mean."""


@dataclass(frozen=True, eq=False)
class SigmaBins:
    """Recall at 1 in bins of growing sigma (Chun et al. 2021, Fig. 6), with 95 % intervals.

    Attributes:
        bins: The bins.
        low: Lower end of the interval of each.
        high: Its upper end.
    """

    bins: Bins
    low: np.ndarray
    high: np.ndarray


@dataclass(frozen=True)
class ReportCard:
    """What was found.

    Attributes:
        selective: For "image" and "caption" queries: what sigma says about wrong first answers.
        by_gap: For each, what the gap between the first two scores says about them.
        by_words: What the fewness of words says about captions; None where texts are not known.
        spread: For each, how many times the 10th percentile of sigma its 90th is.
        bins: For each, recall at 1 in bins of sigma.
        reliability: For "all pairs" and the first answers of each side, what probabilities say.
        probes: What was found by embedding again.
    """

    selective: dict[str, RiskCoverage] = field(default_factory=dict)
    by_gap: dict[str, RiskCoverage] = field(default_factory=dict)
    by_words: RiskCoverage | None = None
    spread: dict[str, float] = field(default_factory=dict)
    bins: dict[str, SigmaBins] = field(default_factory=dict)
    reliability: dict[str, Reliability] = field(default_factory=dict)
    probes: Probes = field(default_factory=Probes)

    def table(self) -> Table:
        """A row for each question, its answer, and how to read it."""
        rows = [*self._selective_rows(), *self._reliability_rows(), *self._damage_rows()]
        if (found := self.probes.coverage) is not None:
            promise = f"answer sets with {percent(found.share, 0)} of the right photos"
            rows.append([promise, percent(found.kept), f"promised {percent(found.confidence, 0)}"])
        return Table("Uncertainty report card", ["question", "found", "to compare"], rows)

    def _selective_rows(self) -> list[list[str]]:
        rows = []
        for side, found in self.selective.items():
            title, bins = SIDES[side], self.bins[side].bins
            compare = f"random {percent(found.random_area)}, oracle {percent(found.best_area)}"
            rows.append([f"{title}: AURC", percent(found.area), compare])
            gain = f"{100 * found.gain:+.1f} %"
            rows.append([f"{title}: gain over a random order", gain, "100 % is the oracle"])
            if side in self.by_gap:
                gap = self.by_gap[side]
                name = f"{title}: the same by the gap of the first two scores"
                compare = f"AURC {percent(gap.area)}; needs no sigma"
                rows.append([name, f"{100 * gap.gain:+.1f} %", compare])
            if side == "caption" and self.by_words is not None:
                name = f"{title}: the same by how few words a caption has"
                compare = f"AURC {percent(self.by_words.area)}; needs no model"
                rows.append([name, f"{100 * self.by_words.gain:+.1f} %", compare])
            low, high = bins.interval
            interval = f"95 % interval {low:+.2f} to {high:+.2f}; below 0 it tells something"
            name = f"{title}: rank correlation of sigma and R@1"
            rows.append([name, f"{bins.correlation:+.2f}", interval])
            found_spread = f"times {self.spread[side]:.3f}"
            name = f"{title}: spread of sigma, 10th to 90th percentile"
            rows.append([name, found_spread, "1 says that it is as unsure of all"])
        return rows

    def _reliability_rows(self) -> list[list[str]]:
        return [
            [f"ECE, {name}", percent(found.error, 2), f"0 is best; {found.count.sum():,} answers"]
            for name, found in self.reliability.items()
        ]

    def _damage_rows(self) -> list[list[str]]:
        names = {"image": "erased", "caption": "dropped"}
        return [
            [
                f"sigma of {side}s, {percent(found.shares[-1], 0)} {names[side]}",
                f"times {found.ratio[-1]:.3f}",
                f"95 % interval {found.low[-1]:.3f} to {found.high[-1]:.3f}; "
                f"{'it grows' if found.grows else 'it does not surely grow by 1 %'}",
            ]
            for side, found in self.probes.damage.items()
        ]


def percent(fraction: float, digits: int = 1) -> str:
    """A fraction as it is shown."""
    return f"{100 * fraction:.{digits}f} %"


def report_card(evaluation: Evaluation, probes: Probes) -> ReportCard:
    """What an evaluation tells of uncertainty; empty where there is neither sigma nor log-odds.

    Args:
        evaluation: The evaluation.
        probes: What was found by embedding again; see `keras_xmr.index.uncertainty_probes`.
    """
    selective, by_gap, by_sigma, spread = {}, {}, {}, {}
    by_words = None
    for side, found in evaluation.uncertainty_bins.items():
        uncertainty = log_sigma(getattr(evaluation.embedded, f"{side}s"))
        if uncertainty is not None:
            correct, groups = _recall(evaluation, side), _groups(evaluation, side)
            selective[side] = risk_coverage(uncertainty, correct)
            low, high = np.quantile(uncertainty, [0.1, 0.9])
            spread[side] = float(np.exp(high - low))
            if side == "caption" and any(texts := evaluation.ground_truth.texts):
                by_words = risk_coverage(few_words(texts), correct)
            if (scores := _scores(evaluation, side)) is not None:
                by_gap[side] = risk_coverage(narrow_gaps(scores), correct)
            by_sigma[side] = SigmaBins(found, *bin_intervals(uncertainty, correct, groups))
    said = _reliability(evaluation)
    return ReportCard(selective, by_gap, by_words, spread, by_sigma, said, probes)


def _scores(evaluation: Evaluation, side: str) -> np.ndarray | None:
    """The scores of the queries of a side; None if they are not in memory, or one answers all."""
    scores = evaluation.matchers[0].scores
    if not scores.is_dense:
        return None
    found: np.ndarray = scores.by_query[0 if side == "image" else 1]
    return found if found.shape[1] > 1 else None


def _reliability(evaluation: Evaluation) -> dict[str, Reliability]:
    """What probabilities say; nothing of scores that are too many to be in memory."""
    own, judgements = evaluation.matchers[0], evaluation.judgements
    if not (evaluation.embedded.images and _are_log_odds(own.name) and own.scores.is_dense):
        return {}
    captions, images = own.scores.by_query
    return {
        "all pairs": reliability_of_pairs(captions, judgements),
        "first caption of each image": reliability_of_best(captions, judgements),
        "first image of each caption": reliability_of_best(images, judgements.transpose()),
    }


def _recall(evaluation: Evaluation, side: str) -> np.ndarray:
    metrics = evaluation.matchers[0].metrics
    queries = metrics.image_to_text if side == "image" else metrics.text_to_image
    return queries.values["recall_1"]


def _groups(evaluation: Evaluation, side: str) -> np.ndarray:
    if side == "image":
        return np.arange(evaluation.images)
    return evaluation.ground_truth.caption_image


def _are_log_odds(matcher: str) -> bool:
    known = components("matcher").get(matcher)
    return known is not None and known.contract.log_odds
