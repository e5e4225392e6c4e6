"""The uncertainty report: the worth of the predicted variances and probabilities of a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from keras_xmr.experiments.evaluation.split_evaluation import Evaluation
from keras_xmr.experiments.evaluation.uncertainty.assessment import (
    Bins,
    Reliability,
    RiskCoverage,
    bin_intervals,
    narrow_gaps,
    reliability_of_best,
    reliability_of_pairs,
    risk_coverage,
)
from keras_xmr.experiments.evaluation.uncertainty.probes import Occlusion, Probes, WordEffect
from keras_xmr.experiments.reports.pages import explain, percent
from keras_xmr.experiments.reports.pictures import COLOURS, QUESTIONS, SIZE, Picture, columns, panel
from keras_xmr.parts.registry import components
from keras_xmr.utils.sides import ITEMS
from keras_xmr.utils.tables import Table

WORDS = {
    "sigma": "the uncertainty of an item: the geometric mean of the standard deviations of its "
    "embedding",
    "AURC": "the mean share of wrong first answers, over all shares of queries that are answered, "
    "the most certain first; 0 is best",
    "ECE": "the mean distance of match probabilities from the share of answers that are right",
}
"""The meaning of the words of the report."""

_REMOVED = {"image": "erased", "text": "dropped"}
"""The treatment of parts of images and of words of captions."""

_WORDS = 14
"""Words of the picture of words: half with the smallest ratios, half with the largest."""

_SHARES = {"image": "share of the pixels erased (%)", "text": "share of the words dropped (%)"}


class SideReport:
    """Uncertainty of the images or captions, as queries, compared with correctness.

    Args:
        evaluation: The evaluation.
        side: The queries, "image" or "text".
        sigma: The uncertainties.

    Attributes:
        selective: Risk and coverage in the order of sigma.
        by_gap: The same in the order of the gap between the first two scores; None if these are
            not in memory.
        bins: Recall at 1 in bins of sigma (Chun et al. 2021, Fig. 6).
        intervals: The lower and the upper ends of the 95 % intervals of these bins.
    """

    def __init__(self, evaluation: Evaluation, side: str, sigma: np.ndarray) -> None:
        matcher, truth = evaluation.matchers[0], evaluation.ground_truth
        number, queries = 0, matcher.metrics.image_to_text
        groups = np.arange(evaluation.images)
        if side == "text":
            number, queries, groups = 1, matcher.metrics.text_to_image, truth.caption_image
        correct = queries.values["recall_1"]
        self.selective = risk_coverage(sigma, correct)
        self.by_gap = None
        if matcher.scores.is_dense:
            scores = matcher.scores.by_query[number]
            # A single candidate has no gap.
            if scores.shape[1] > 1:
                self.by_gap = risk_coverage(narrow_gaps(scores), correct)
        self.bins = evaluation.uncertainty_bins[side]
        self.intervals = bin_intervals(sigma, correct, groups)

    def rows(self) -> Iterator[list[str]]:
        """Yields questions, each with its answer and a value to compare it with."""
        selective, (low, high) = self.selective, self.bins.interval
        bounds = f"random {percent(selective.random_area)}, oracle {percent(selective.best_area)}"
        yield ["AURC", percent(selective.area), bounds]
        yield ["gain over a random order", _gain(selective), "100 % is the oracle"]
        if self.by_gap is not None:
            area = f"AURC {percent(self.by_gap.area)}; needs no sigma"
            yield ["the same by the gap of the first two scores", _gain(self.by_gap), area]
        interval = f"95 % interval {low:+.2f} to {high:+.2f}; informative below 0"
        yield ["rank correlation of sigma and R@1", f"{self.bins.correlation:+.2f}", interval]


def _gain(curve: RiskCoverage) -> str:
    return f"{100 * curve.gain:+.1f} %"


class UncertaintyReport:
    """Uncertainty compared with correctness; empty without both sigma and log-odds.

    Args:
        evaluation: The evaluation, with its probes; see `keras_xmr.experiments.export.calibration`.

    Attributes:
        sides: The uncertainty of "image" and "text" queries; without those that have no sigma.
        reliability: The reliability of "all pairs" and of the first answers of each side.
        probes: The results of embedding changed items.
    """

    def __init__(self, evaluation: Evaluation) -> None:
        sigmas = evaluation.embedded.log_sigma().items()
        self.sides = {side: SideReport(evaluation, side, sigma) for side, sigma in sigmas}
        self.reliability = _reliability(evaluation)
        self.probes = evaluation.probes or Probes()

    def table(self) -> Table:
        """Returns a row per question, with its answer and a value to compare it with."""
        rows = [
            [f"{QUESTIONS[side]}: {question}", *answers]
            for side, report in self.sides.items()
            for question, *answers in report.rows()
        ]
        for name, reliability in self.reliability.items():
            answers = f"0 is best; {reliability.count.sum():,} answers"
            rows.append([f"ECE, {name}", percent(reliability.error, 2), answers])
        for side, occlusion in self.probes.occlusion.items():
            removed = f"{percent(occlusion.shares[-1], 0)} {_REMOVED[side]}"
            interval = f"95 % interval {occlusion.low[-1]:.3f} to {occlusion.high[-1]:.3f}; "
            interval += "it grows" if occlusion.grows else "no significant growth by 1 %"
            sigma = f"sigma of {ITEMS[side]}s, {removed}"
            rows.append([sigma, f"times {occlusion.ratio[-1]:.3f}", interval])
        return Table("Uncertainty report", ["question", "result", "to compare"], rows)


def _reliability(evaluation: Evaluation) -> dict[str, Reliability]:
    """Returns the reliability of log-odds; empty for other scores, and for those not in memory."""
    matcher, judgements = evaluation.matchers[0], evaluation.judgements
    part = components("matcher").get(matcher.name)
    are_log_odds = part is not None and part.CONTRACT.log_odds
    if not (evaluation.embedded.images and are_log_odds and matcher.scores.is_dense):
        return {}
    captions, images = matcher.scores.by_query
    return {
        "all pairs": reliability_of_pairs(captions, judgements),
        "first caption of each image": reliability_of_best(captions, judgements),
        "first image of each caption": reliability_of_best(images, judgements.transpose()),
    }


def uncertainty_pictures(report: UncertaintyReport) -> Iterator[Picture]:
    """Yields all pictures for which the report has numbers."""
    for side, of_side in report.sides.items():
        yield _risk(side, of_side.selective, of_side.by_gap)
    for side, of_side in report.sides.items():
        yield _bins(side, of_side.bins, *of_side.intervals)
    for name, reliability in report.reliability.items():
        yield _reliability_picture(name, reliability)
    for side, occlusion in report.probes.occlusion.items():
        yield _occlusion(side, occlusion)
    if report.probes.words:
        yield _words(report.probes.words)


def _risk(side: str, curve: RiskCoverage, by_gap: RiskCoverage | None) -> Picture:
    title = QUESTIONS[side]
    drawing, axis = panel(title, "queries answered, most certain first (%)", "wrong answers (%)")
    label = f"by sigma, mean {percent(curve.area)}"
    axis.plot(100 * curve.coverage, 100 * curve.risk, color=COLOURS[side], label=label)
    table = {"coverage": curve.coverage, "risk": curve.risk, "risk_of_oracle": curve.best}
    if by_gap is not None:
        label = f"by the gap of scores, mean {percent(by_gap.area)}"
        axis.plot(100 * by_gap.coverage, 100 * by_gap.risk, color="0.4", label=label)
        table["risk_by_gap"] = by_gap.risk
    label = f"oracle, mean {percent(curve.best_area)}"
    axis.plot(100 * curve.coverage, 100 * curve.best, "--", color="0.4", label=label)
    label = f"random, {percent(curve.random_area)}"
    axis.axhline(100 * curve.random_area, ls=":", c="0.4", label=label)
    axis.set_ylim(0, 105)
    axis.legend(fontsize=8)
    title, see = f"risk and coverage, {title}", explain("risk_coverage", curve, by_gap)
    return Picture(f"risk_coverage_{ITEMS[side]}", title, see, drawing, *columns(**table))


def _bins(side: str, bins: Bins, low: np.ndarray, high: np.ndarray) -> Picture:
    drawing, axis = panel(QUESTIONS[side], "bin of sigma, from certain to uncertain", "R@1 (%)")
    value = np.array(bins.value)
    # The mean of a few equal answers may lie at an end of its interval.
    error = 100 * np.maximum([value - low, high - value], 0)
    places = np.arange(1, len(value) + 1)
    axis.bar(places, 100 * value, color=COLOURS[side], yerr=error, capsize=3, ecolor="0.3")
    axis.set_ylim(0, None)
    table = columns(log_sigma=bins.log_sigma, recall_1=bins.value, low=low, high=high)
    title, see = f"R@1 in bins of sigma, {QUESTIONS[side]}", explain("sigma_bins", bins)
    return Picture(f"sigma_bins_{ITEMS[side]}", title, see, drawing, *table)


def _reliability_picture(name: str, bins: Reliability) -> Picture:
    drawing, axis = panel(name, "match probability (%)", "of these, right (%)")
    filled, (low, high) = bins.count > 0, bins.interval
    axis.plot([0, 100], [0, 100], ":", color="0.4")
    error = np.maximum([bins.observed - low, high - bins.observed], 0)[:, filled]
    predicted, observed = 100 * bins.predicted[filled], 100 * bins.observed[filled]
    axis.errorbar(predicted, observed, 100 * error, fmt="-o", color="tab:green", ms=4, capsize=2)
    share = axis.twinx()
    width = 100 / len(bins.count)
    centres = width * (np.arange(len(bins.count)) + 0.5)
    share.bar(centres[filled], bins.count[filled], 0.9 * width, color="0.6", alpha=0.35)
    share.set(yscale="log", ylabel="answers (grey)", ylim=(0.8, None))
    axis.set(xlim=(0, 100), ylim=(0, 100))
    axis.set_zorder(share.get_zorder() + 1)
    axis.set_frame_on(False)
    table = columns(
        answers=bins.count, probability=bins.predicted, right=bins.observed, low=low, high=high
    )
    stem = f"reliability_{'_'.join(name.split()[:2])}"
    return Picture(stem, f"reliability, {name}", explain("reliability", bins), drawing, *table)


def _occlusion(side: str, growth: Occlusion) -> Picture:
    item = ITEMS[side]
    drawing, axis = panel(f"{growth.items:,} {item}s", _SHARES[side], "sigma, times unchanged")
    shares = 100 * np.array(growth.shares)
    axis.plot(shares, growth.ratio, "-o", color=COLOURS[side], ms=4)
    axis.fill_between(shares, growth.low, growth.high, color=COLOURS[side], alpha=0.25, lw=0)
    axis.axhline(1, ls=":", color="0.4")
    # A change of a millionth must not fill the picture, nor can the interval of a single item.
    ends = np.concatenate([growth.low, growth.high, growth.ratio, [0.95, 1.05]])
    ends = ends[np.isfinite(ends)]
    axis.set_ylim(ends.min(), ends.max())
    table = columns(share=growth.shares, sigma_ratio=growth.ratio, low=growth.low, high=growth.high)
    title = f"sigma of {item}s with parts {_REMOVED[side]}"
    see = explain("sigma_damage", item, _REMOVED[side], growth.grows)
    return Picture(f"sigma_damage_{item}", title, see, drawing, *table)


def _words(effects: Sequence[WordEffect]) -> Picture:
    """Draws the words with the smallest and the largest effects; the table has all."""
    shown = effects
    if len(effects) > _WORDS:
        shown = [*effects[: _WORDS // 2], *effects[-_WORDS // 2 :]]
    label = "sigma of captions with the word,\ntimes sigma without it"
    drawing, axis = panel("words", label, "", (SIZE[0], 0.26 * len(shown) + 1.2))
    ratio, low, high = (np.array(column) for column in list(zip(*shown, strict=True))[1:4])
    places = np.arange(len(shown))
    error = np.maximum([ratio - low, high - ratio], 0)
    axis.errorbar(ratio, places, xerr=error, fmt="o", color=COLOURS["text"], ms=4, capsize=2)
    axis.axvline(1, ls=":", color="0.4")
    axis.set_yticks(places, [f"{effect.word} ({effect.captions})" for effect in shown], fontsize=8)
    axis.invert_yaxis()
    title, see = "sigma and single words", explain("sigma_words")
    return Picture("sigma_words", title, see, drawing, WordEffect._fields, effects)
