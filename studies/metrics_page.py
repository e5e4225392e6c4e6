"""The page on what annotated metrics reward; its comparisons are one family.

python studies/result_pages.py metrics_page
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import hub_doses
import metrics_reward as study
import numpy as np
from comparisons import Compared, Difference, Family, Permuted
from methods_table import (
    BY_PEOPLE,
    NO_MODEL,
    RESULTS,
    Method,
    methods_of,
    ranking_of,
    read_lines,
)

HEADER = ("data", "comparison", "difference", "visible from", "p, Holm", "verdict")
STRATA_HEADER = ("R", "captions", "tau, all methods", f"tau, RSUM above {study.GOOD:.0f}",
                 "two halves", "RSUM of other photos", "R-Precision", "deviation", "blind",
                 "chance")  # fmt: skip
TESTED = ("RSUM", "mAP@R")
LABELS = "10,000 labels"
CORRECTED = ("csv_pretrained", "csv_pretrained_trained", "csv_pretrained_unfrozen")
"""Methods with a correction for hubs whose names do not say so."""
SMOOTH_AP = "Smooth-AP"
"""The loss whose place in the order by RSUM and by the truth differs most."""


@cache
def methods() -> list[Method]:
    """All methods on Flickr8K."""
    return methods_of(read_lines(RESULTS))


@cache
def judged(corrected: bool = True) -> study.Judged:
    """R-Precision of methods by what the crowd judged: all, or those without a correction."""
    lines = hub_doses.read_lines(hub_doses.RESULTS)
    right = {line["correction"]: line["right"] for line in lines if not line["seed"]}
    kept = [method for method in methods() if corrected or not is_corrected(method.name)]
    return study.Judged(kept, "crowd", hub_doses.unpack(right["relevant"]))


def is_corrected(name: str) -> bool:
    """Whether a method has a correction for hubs."""
    return name in CORRECTED or name.lower().endswith(("csls", "reranked"))


@cache
def compare() -> Family:
    """All comparisons of the page."""
    family = Family()
    for corrected, data in ((True, "Flickr8K, crowd"), (False, "the same, no correction for hubs")):
        random = np.random.default_rng(0)
        value, share = study.permutation_test(judged(corrected), random)
        drawn = study.resampled_difference(judged(corrected), random)
        found: Compared = Permuted(value, drawn, share)
        family.add(found, data, "tau of RSUM at R = 1 minus tau at R >= 6")
    by_rsum: dict[tuple[float, str], np.ndarray] = {}
    for true, towers, metric, taus in study.scenes_taus(read_lines(study.SCENES)):
        data, losses = (
            f"scenes, {true:.1f} % of the unlabelled pairs true",
            f"losses in {towers} towers",
        )
        if metric == "RSUM":
            by_rsum[true, towers] = taus
        if metric in TESTED:
            family.add(Difference.of(taus), data, f"tau of {metric}, {losses}")
        if metric == LABELS:
            gain = Difference.of(taus - by_rsum[true, towers])
            family.add(gain, data, f"tau of mAP@R with {LABELS} minus tau of RSUM, {losses}")
    for true, towers, metric, taus in study.scenes_taus(read_lines(study.SCENES), SMOOTH_AP):
        if metric == "RSUM":
            data = f"scenes, {true:.1f} % of the unlabelled pairs true, without {SMOOTH_AP}"
            family.add(Difference.of(taus), data, f"tau of {metric}, losses in {towers} towers")
    return family


def scenes_rows() -> list[Sequence[str]]:
    """Taus of all annotated metrics over both towers, with a heading."""
    found: dict[float, dict[str, np.ndarray]] = {}
    for share, towers, metric, taus in study.scenes_taus(read_lines(study.SCENES)):
        if towers == "both":
            found.setdefault(share, {})[metric] = taus
    heading = [""]
    for share in found:
        heading += [f"tau, {share:.1f} % true", "minus RSUM"]
    rows: list[Sequence[str]] = [heading]
    for metric in study.METRICS:
        cells = [metric]
        for by_metric in found.values():
            own, gap = by_metric[metric], by_metric[metric] - by_metric["RSUM"]
            cells += [_cell(own), "" if metric == "RSUM" else _cell(gap, "+")]
        rows.append(cells)
    return rows


def _cell(values: np.ndarray, sign: str = "") -> str:
    return f"{values.mean():{sign}.2f} ± {Difference.of(values).half:.2f}"


def tables() -> dict[str, list[Sequence[str]]]:
    """The tables of the page by their names."""
    models = [method for method in methods() if method.name not in NO_MODEL]
    strata = [["crowd", *row] for row in study.rows_of(judged(), np.random.default_rng(0))]
    return {
        "metrics_comparisons": [HEADER, *compare().rows()],
        "flickr8k_relevant_photos": [("judged by", *STRATA_HEADER), *strata],
        "flickr8k_metric_ranking": [
            ("annotated metric", *BY_PEOPLE.values()),
            *([title, *cells] for title, cells in ranking_of(models)),
        ],
        "scenes_metric_ranking": scenes_rows(),
    }


def draw(folder: Path) -> None:
    """Draws R-Precision of each method against its RSUM, a panel per stratum."""
    import matplotlib.pyplot as plt

    crowd = judged()
    models = [n for n, method in enumerate(crowd.methods) if method.name not in NO_MODEL]
    drawing, axes = plt.subplots(1, len(study.STRATA), figsize=(11, 3.1), sharey=True)
    for axis, name in zip(axes, study.STRATA, strict=True):
        members = crowd.stratum(name)
        for corrected, marker in ((False, "o"), (True, "^")):
            own = [n for n in models if is_corrected(crowd.methods[n].name) == corrected]
            axis.scatter(crowd.rsum[own], crowd.order(members)[own], s=12, marker=marker)
        number = "photo fits" if name == "1" else "photos fit"
        axis.set_title(f"{name} {number}: {len(members)} captions", fontsize=9)
        axis.grid(alpha=0.3)
        axis.set_xlabel("annotated RSUM", fontsize=9)
    axes[0].legend(
        ["no correction for hubs", "with one"], fontsize=7, loc="lower right", handletextpad=0.1
    )
    axes[0].set_ylabel("R-Precision by the crowd (%)", fontsize=9)
    drawing.tight_layout()
    drawing.savefig(folder / "relevant_photos.png", dpi=110)
    plt.close(drawing)
