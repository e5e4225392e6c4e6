"""The uncertainty report: the worth of the predicted variances and probabilities of a model."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from keras_xmr.config.registry import components
from keras_xmr.evaluation.results import Evaluation
from keras_xmr.reporting.pictures import SIDES
from keras_xmr.reporting.table import Table
from keras_xmr.uncertainty.assessment import (
    Bins,
    Reliability,
    RiskCoverage,
    bin_intervals,
    few_words,
    narrow_gaps,
    reliability_of_best,
    reliability_of_pairs,
    risk_coverage,
)
from keras_xmr.uncertainty.probes import Probes

WORDS = {
    "sigma": "the uncertainty of an item: the geometric mean of the standard deviations of its "
    "embedding",
    "AURC": "the mean share of wrong first answers, over all shares of queries that are answered, "
    "the most certain first; 0 is best",
    "ECE": "the mean distance of match probabilities from the share of answers that are right",
}
"""The meaning of the words of the report."""


@dataclass(frozen=True, eq=False)
class UncertaintyReport:
    """Uncertainty compared with correctness.

    Attributes:
        selective: For "image" and "caption" queries, risk and coverage in the order of sigma.
        by_gap: The same in the order of the gap between the first two scores.
        by_words: The same for captions in the order of their length; empty without texts.
        spread: The 90th percentile of sigma of each side, as a multiple of its 10th.
        bins: Recall at 1 of each side in bins of sigma (Chun et al. 2021, Fig. 6).
        intervals: The lower and the upper ends of the 95 % intervals of these bins.
        reliability: The reliability of "all pairs" and of the first answers of each side.
        probes: The results of embedding changed items.
    """

    selective: dict[str, RiskCoverage] = field(default_factory=dict)
    by_gap: dict[str, RiskCoverage] = field(default_factory=dict)
    by_words: dict[str, RiskCoverage] = field(default_factory=dict)
    spread: dict[str, float] = field(default_factory=dict)
    bins: dict[str, Bins] = field(default_factory=dict)
    intervals: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    reliability: dict[str, Reliability] = field(default_factory=dict)
    probes: Probes = field(default_factory=Probes)

    def table(self) -> Table:
        """A row per question, with its answer and a value to compare it with."""
        rows = [row for side in self.selective for row in self._selective_rows(side)]
        for name, reliability in self.reliability.items():
            answers = f"0 is best; {reliability.count.sum():,} answers"
            rows.append([f"ECE, {name}", percent(reliability.error, 2), answers])
        for side, occlusion in self.probes.occlusion.items():
            removed = f"{percent(occlusion.shares[-1], 0)} {REMOVED[side]}"
            interval = f"95 % interval {occlusion.low[-1]:.3f} to {occlusion.high[-1]:.3f}; "
            interval += "it grows" if occlusion.grows else "no significant growth by 1 %"
            rows.append(
                [f"sigma of {side}s, {removed}", f"times {occlusion.ratio[-1]:.3f}", interval]
            )
        if (coverage := self.probes.coverage) is not None:
            name = f"prediction sets with {percent(coverage.share, 0)} of the relevant photos"
            guarantee = f"guaranteed {percent(coverage.confidence, 0)}"
            rows.append([name, percent(coverage.kept), guarantee])
        return Table("Uncertainty report", ["question", "result", "to compare"], rows)

    def _selective_rows(self, side: str) -> list[list[str]]:
        title, selective, bins = SIDES[side], self.selective[side], self.bins[side]
        bounds = f"random {percent(selective.random_area)}, oracle {percent(selective.best_area)}"
        low, high = bins.interval
        interval = f"95 % interval {low:+.2f} to {high:+.2f}; informative below 0"
        rows = [["AURC", percent(selective.area), bounds]]
        rows.append(["gain over a random order", _signed(selective.gain), "100 % is the oracle"])
        if side in self.by_gap:
            gap = self.by_gap[side]
            name = "the same by the gap of the first two scores"
            rows.append([name, _signed(gap.gain), f"AURC {percent(gap.area)}; needs no sigma"])
        if side in self.by_words:
            words, name = self.by_words[side], "the same by the length of captions"
            rows.append([name, _signed(words.gain), f"AURC {percent(words.area)}; needs no model"])
        rows.append(["rank correlation of sigma and R@1", f"{bins.correlation:+.2f}", interval])
        spread = f"times {self.spread[side]:.3f}"
        rows.append(["spread of sigma, 10th to 90th percentile", spread, "1 if all are equal"])
        return [[f"{title}: {name}", *cells] for name, *cells in rows]


REMOVED = {"image": "erased", "caption": "dropped"}
"""The treatment of parts of images and of words of captions."""


def percent(fraction: float, digits: int = 1) -> str:
    """A fraction in percent."""
    return f"{100 * fraction:.{digits}f} %"


def _signed(fraction: float) -> str:
    return f"{100 * fraction:+.1f} %"


def uncertainty_report(evaluation: Evaluation) -> UncertaintyReport:
    """The uncertainty report of an evaluation; empty without both sigma and log-odds.

    Args:
        evaluation: The evaluation, with its probes; see `keras_xmr.index.calibration`.
    """
    report = UncertaintyReport(
        reliability=_reliability(evaluation), probes=evaluation.probes or Probes()
    )
    metrics, captions_image = evaluation.matchers[0].metrics, evaluation.ground_truth.caption_image
    for side, sigma in evaluation.embedded.log_sigma().items():
        queries = metrics.image_to_text if side == "image" else metrics.text_to_image
        correct = queries.values["recall_1"]
        groups = np.arange(evaluation.images) if side == "image" else captions_image
        report.selective[side] = risk_coverage(sigma, correct)
        low, high = np.quantile(sigma, [0.1, 0.9])
        report.spread[side] = float(np.exp(high - low))
        if side == "caption" and any(texts := evaluation.ground_truth.texts):
            report.by_words[side] = risk_coverage(few_words(texts), correct)
        if (scores := _scores(evaluation, side)) is not None:
            report.by_gap[side] = risk_coverage(narrow_gaps(scores), correct)
        report.bins[side] = evaluation.uncertainty_bins[side]
        report.intervals[side] = bin_intervals(sigma, correct, groups)
    return report


def _scores(evaluation: Evaluation, side: str) -> np.ndarray | None:
    """Scores (queries, candidates) of a side; None if not in memory, or of a single candidate."""
    matrices = evaluation.matchers[0].scores
    if not matrices.is_dense:
        return None
    scores: np.ndarray = matrices.by_query[0 if side == "image" else 1]
    return scores if scores.shape[1] > 1 else None


def _reliability(evaluation: Evaluation) -> dict[str, Reliability]:
    """The reliability of log-odds; empty for other scores, and for those not in memory."""
    matcher, judgements = evaluation.matchers[0], evaluation.judgements
    part = components("matcher").get(matcher.name)
    are_log_odds = part is not None and part.contract.log_odds
    if not (evaluation.embedded.images and are_log_odds and matcher.scores.is_dense):
        return {}
    captions, images = matcher.scores.by_query
    return {
        "all pairs": reliability_of_pairs(captions, judgements),
        "first caption of each image": reliability_of_best(captions, judgements),
        "first image of each caption": reliability_of_best(images, judgements.transpose()),
    }
