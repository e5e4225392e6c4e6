"""Pictures of the uncertainty report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from keras_xmr.reporting.pictures import COLOURS, SIDES, Picture, columns, panel
from keras_xmr.reporting.uncertainty_report import REMOVED, UncertaintyReport, percent
from keras_xmr.uncertainty.assessment import Bins, Reliability, RiskCoverage
from keras_xmr.uncertainty.probes import Occlusion

_REMOVED = {"image": "share of the pixels erased (%)", "caption": "share of the words dropped (%)"}


def uncertainty_pictures(report: UncertaintyReport) -> Iterator[Picture]:
    """All pictures for which the report has numbers."""
    for side, selective in report.selective.items():
        yield _risk(side, selective, report.by_gap.get(side))
    for side, bins in report.bins.items():
        yield _bins(side, bins, *report.intervals[side])
    for name, reliability in report.reliability.items():
        yield _reliability(name, reliability)
    for side, occlusion in report.probes.occlusion.items():
        yield _occlusion(side, occlusion)
    if report.probes.coverage is not None:
        yield _coverage(report.probes.coverage)


def _risk(side: str, curve: RiskCoverage, by_gap: RiskCoverage | None) -> Picture:
    title = SIDES[side]
    drawing, axis = panel(title, "queries answered, most certain first (%)", "wrong answers (%)")
    label = f"by sigma, mean {percent(curve.area)}"
    axis.plot(100 * curve.coverage, 100 * curve.risk, color=COLOURS[side], label=label)
    see = (
        "Risk and coverage. If sigma predicts which queries fail, the line begins far below the "
        f"dotted one; here it is {_gain(curve)}."
    )
    table = {"coverage": curve.coverage, "risk": curve.risk, "risk_of_oracle": curve.best}
    if by_gap is not None:
        label = f"by the gap of scores, mean {percent(by_gap.area)}"
        axis.plot(100 * by_gap.coverage, 100 * by_gap.risk, color="0.4", label=label)
        see += f" The gap between the first two scores, which needs no sigma, is {_gain(by_gap)}."
        table["risk_by_gap"] = by_gap.risk
    label = f"oracle, mean {percent(curve.best_area)}"
    axis.plot(100 * curve.coverage, 100 * curve.best, "--", color="0.4", label=label)
    label = f"random, {percent(curve.random_area)}"
    axis.axhline(100 * curve.random_area, ls=":", c="0.4", label=label)
    axis.set_ylim(0, 105)
    axis.legend(fontsize=8)
    title = f"risk and coverage, {title}"
    return Picture(f"risk_coverage_{side}", title, see, drawing, *columns(**table))


def _gain(curve: RiskCoverage) -> str:
    if curve.gain <= 0:
        return "no better than a random order"
    return f"{percent(curve.gain, 0)} of the way from a random order to the oracle"


def _bins(side: str, bins: Bins, low: np.ndarray, high: np.ndarray) -> Picture:
    drawing, axis = panel(SIDES[side], "bin of sigma, from certain to uncertain", "R@1 (%)")
    value = np.array(bins.value)
    # The mean of a few equal answers may lie at an end of its interval.
    error = 100 * np.maximum([value - low, high - value], 0)
    places = np.arange(1, len(value) + 1)
    axis.bar(places, 100 * value, color=COLOURS[side], yerr=error, capsize=3, ecolor="0.3")
    axis.set_ylim(0, None)
    interval = "{:+.2f} to {:+.2f}".format(*bins.interval)
    see = (
        "R@1 in bins of sigma, with 95 % intervals. Bars that fall to the right mean that sigma is "
        f"informative; rank correlation {bins.correlation:+.2f} ({interval})."
    )
    table = columns(log_sigma=bins.log_sigma, recall_1=bins.value, low=low, high=high)
    title = f"R@1 in bins of sigma, {SIDES[side]}"
    return Picture(f"sigma_bins_{side}", title, see, drawing, *table)


def _reliability(name: str, bins: Reliability) -> Picture:
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
    see = (
        "Reliability. On the dotted line, a probability of 70 % is right 7 times of 10; below it "
        f"the model is overconfident. The mean gap (ECE) is {percent(bins.error, 2)}, by the "
        "annotated pairs: where many relevant items were not annotated, it is overestimated. "
        "Thin lines are 95 % intervals."
    )
    table = columns(
        answers=bins.count, probability=bins.predicted, right=bins.observed, low=low, high=high
    )
    stem = f"reliability_{'_'.join(name.split()[:2])}"
    return Picture(stem, f"reliability, {name}", see, drawing, *table)


def _occlusion(side: str, growth: Occlusion) -> Picture:
    drawing, axis = panel(f"{growth.items:,} {side}s", _REMOVED[side], "sigma, times unchanged")
    shares = 100 * np.array(growth.shares)
    axis.plot(shares, growth.ratio, "-o", color=COLOURS[side], ms=4)
    axis.fill_between(shares, growth.low, growth.high, color=COLOURS[side], alpha=0.25, lw=0)
    axis.axhline(1, ls=":", color="0.4")
    # A change of a millionth must not fill the picture.
    axis.set_ylim(min(growth.low.min(), 0.95), max(growth.high.max(), 1.05))
    meaning = "It rises." if growth.grows else "Here it does not rise significantly by 1 %."
    see = (
        f"Sigma of {side}s with parts {REMOVED[side]} at random, with a 95 % band. It should rise "
        f"with the share that is removed. {meaning}"
    )
    table = columns(share=growth.shares, sigma_ratio=growth.ratio, low=growth.low, high=growth.high)
    title = f"sigma of {side}s with parts {REMOVED[side]}"
    return Picture(f"sigma_damage_{side}", title, see, drawing, *table)


def _coverage(coverage: Any) -> Picture:
    title = "prediction sets, calibrated on val"
    drawing, axis = panel(title, "photos in the set (%)", "captions with no larger set (%)")
    sizes = np.sort(100 * coverage.sizes / coverage.gallery)
    share = 100 * np.arange(1, len(sizes) + 1) / len(sizes)
    axis.step(sizes, share, where="post", color="tab:purple")
    axis.set(xlim=(0, 100), ylim=(0, 100))
    see = (
        f"Conformal prediction sets. The sets of {percent(coverage.kept)} of the captions have at "
        f"least {percent(coverage.share, 0)} of their relevant photos; the coverage guarantee is "
        f"{percent(coverage.confidence, 0)}. Half of the sets have more than "
        f"{np.median(sizes):.0f} % of the photos: the further the line is to the left, the "
        "smaller the sets."
    )
    table = columns(photos_in_set=coverage.sizes, right_photos_found=coverage.recalls)
    return Picture("answer_sets", "prediction sets", see, drawing, *table)
