"""Pictures of the uncertainty report card."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from keras_xmr.evaluation.damage import Damage
from keras_xmr.evaluation.reliability import Reliability
from keras_xmr.evaluation.report_card import ReportCard, SigmaBins, percent
from keras_xmr.evaluation.selective import RiskCoverage
from keras_xmr.evaluation.uncertainty import COLOURS, SIDES
from keras_xmr.reporting.pictures import Picture, panel

_DAMAGE = {"image": "part of the pixels erased (%)", "caption": "part of the words dropped (%)"}


def card_pictures(card: ReportCard) -> Iterator[Picture]:
    """Every picture that the card has numbers for."""
    for side, selective in card.selective.items():
        yield _risk(side, selective, card.by_gap.get(side))
    for side, bins in card.bins.items():
        yield _bins(side, bins)
    for name, reliability in card.reliability.items():
        yield _reliability(name, reliability)
    for side, damage in card.probes.damage.items():
        yield _damage(side, damage)
    if card.probes.coverage is not None:
        yield _coverage(card.probes.coverage)


def _risk(side: str, found: RiskCoverage, by_gap: RiskCoverage | None) -> Picture:
    drawing, axis = panel(SIDES[side], "queries answered, surest first (%)", "wrong answers (%)")
    coverage = 100 * found.coverage
    axis.plot(
        coverage,
        100 * found.risk,
        color=COLOURS[side],
        label=f"by sigma, mean {percent(found.area)}",
    )
    if by_gap is not None:
        label = f"by the gap of scores, mean {percent(by_gap.area)}"
        axis.plot(100 * by_gap.coverage, 100 * by_gap.risk, color="0.4", label=label)
    label = f"oracle, mean {percent(found.best_area)}"
    axis.plot(coverage, 100 * found.best, "--", color="0.4", label=label)
    label = f"random, {percent(found.random_area)}"
    axis.axhline(100 * found.random_area, ls=":", c="0.4", label=label)
    axis.set_ylim(0, 105)
    axis.legend(fontsize=8)
    see = (
        "Risk and coverage. If sigma knows which queries fail, the line begins far below the "
        f"dotted one; here it is {_gain(found)}."
    )
    columns = [found.coverage, found.risk, found.best]
    header: tuple[str, ...] = ("coverage", "risk", "risk_of_oracle")
    if by_gap is not None:
        see += (
            " By the gap between the first two scores, for which no model needs a sigma, it is "
            f"{_gain(by_gap)}."
        )
        columns.append(by_gap.risk)
        header += ("risk_by_gap",)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    title = f"risk and coverage, {SIDES[side]}"
    return Picture(f"risk_coverage_{side}", title, see, drawing, header, rows)


def _gain(found: RiskCoverage) -> str:
    if found.gain <= 0:
        return "no better than a random order"
    return f"{percent(found.gain, 0)} of the way from a random order to the oracle"


def _bins(side: str, found: SigmaBins) -> Picture:
    drawing, axis = panel(SIDES[side], "bin of sigma, from sure to unsure", "R@1 (%)")
    value = 100 * np.array(found.bins.value)
    # The mean of so few alike answers may lie at an end of its interval.
    error = np.maximum([value - 100 * found.low, 100 * found.high - value], 0)
    places = np.arange(1, len(value) + 1)
    axis.bar(places, value, color=COLOURS[side], yerr=error, capsize=3, ecolor="0.3")
    axis.set_ylim(0, None)
    low, high = found.bins.interval
    see = (
        "R@1 in bins of sigma, with 95 % intervals. Bars that fall to the right say that the model "
        f"knows what it does not know; rank correlation {found.bins.correlation:+.2f} "
        f"({low:+.2f} to {high:+.2f})."
    )
    columns = (found.bins.log_sigma, found.bins.value, found.low.tolist(), found.high.tolist())
    header = ("log_sigma", "recall_1", "low", "high")
    title = f"R@1 in bins of sigma, {SIDES[side]}"
    rows = zip(*columns, strict=True)
    return Picture(f"sigma_bins_{side}", title, see, drawing, header, rows)


def _reliability(name: str, found: Reliability) -> Picture:
    drawing, axis = panel(name, "match probability (%)", "of these, right (%)")
    filled = found.count > 0
    axis.plot([0, 100], [0, 100], ":", color="0.4")
    predicted, observed = 100 * found.predicted[filled], 100 * found.observed[filled]
    low, high = (100 * end[filled] for end in found.interval)
    error = np.maximum([observed - low, high - observed], 0)
    axis.errorbar(predicted, observed, error, fmt="-o", color="tab:green", ms=4, capsize=2)
    share = axis.twinx()
    width = 100 / len(found.count)
    centres = width * (np.arange(len(found.count)) + 0.5)
    share.bar(centres[filled], found.count[filled], 0.9 * width, color="0.6", alpha=0.35)
    share.set(yscale="log", ylabel="answers (grey)", ylim=(0.8, None))
    axis.set(xlim=(0, 100), ylim=(0, 100))
    axis.set_zorder(share.get_zorder() + 1)
    axis.set_frame_on(False)
    see = (
        "Reliability. On the dotted line, a probability of 70 % is right 7 times of 10; below it "
        f"the model is too sure of itself. The mean gap (ECE) is {percent(found.error, 2)}, by the "
        "annotated answers: where many right ones were not annotated, it looks worse than it is. "
        "Thin lines are 95 % intervals."
    )
    columns = (found.count, found.predicted, found.observed, *found.interval)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    header = ("answers", "probability", "right", "low", "high")
    stem = f"reliability_{'_'.join(name.split()[:2])}"
    return Picture(stem, f"reliability, {name}", see, drawing, header, rows)


def _damage(side: str, found: Damage) -> Picture:
    drawing, axis = panel(f"{found.items:,} {side}s", _DAMAGE[side], "sigma, times undamaged")
    shares = 100 * np.array(found.shares)
    axis.plot(shares, found.ratio, "-o", color=COLOURS[side], ms=4)
    axis.fill_between(shares, found.low, found.high, color=COLOURS[side], alpha=0.25, lw=0)
    axis.axhline(1, ls=":", color="0.4")
    # A change of a millionth must not fill the picture.
    axis.set_ylim(min(found.low.min(), 0.95), max(found.high.max(), 1.05))
    verb = "erased" if side == "image" else "dropped"
    meaning = "It does." if found.grows else "Here it does not surely rise by 1 %."
    see = (
        f"Sigma where less of the {side} is left ({verb} at random, 95 % band). A model that knows "
        f"what it cannot see has a line that rises. {meaning}"
    )
    columns = (found.shares, found.ratio.tolist(), found.low.tolist(), found.high.tolist())
    header = ("share", "sigma_ratio", "low", "high")
    title = f"sigma of damaged {side}s"
    rows = zip(*columns, strict=True)
    return Picture(f"sigma_damage_{side}", title, see, drawing, header, rows)


def _coverage(found: Any) -> Picture:
    drawing, axis = panel(
        "answer sets, calibrated on val", "photos in the set (%)", "captions with no larger set (%)"
    )
    sizes = np.sort(100 * found.sizes / found.gallery)
    share = 100 * np.arange(1, len(sizes) + 1) / len(sizes)
    axis.step(sizes, share, where="post", color="tab:purple")
    axis.set(xlim=(0, 100), ylim=(0, 100))
    see = (
        f"Answer sets. {percent(found.kept)} of the captions have at least "
        f"{percent(found.share, 0)} of their right photos in their set; promised were "
        f"{percent(found.confidence, 0)}. What the promise costs: half "
        f"of the sets have more than {np.median(sizes):.0f} % of the photos. The further the "
        "line is to the left, the more a set says."
    )
    rows = zip(found.sizes.tolist(), found.recalls.tolist(), strict=True)
    header = ("photos_in_set", "right_photos_found")
    return Picture("answer_sets", "answer sets", see, drawing, header, rows)
