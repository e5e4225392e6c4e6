"""Methods on photos: comparisons of Flickr8K and of birds, which are corrected as one family.

python studies/result_pages.py methods_page
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import birds_tables
import methods_table
import numpy as np
import proportions
from birds_tables import ORDERS, RANDOM, against, name_of, printed_difference
from comparisons import ALPHA, Compared, Difference, Estimated, Family, format_p
from methods_table import apart, pooled_seeds, rsum_by_photo, rsum_of

BIRDS = methods_table.RESULTS.with_name("birds.csv")
TRAINING_PHOTOS = 5996
CURVE_METHODS = {
    "cca_csls": "CCA, CSLS",
    "dual_encoder_csls": "linear InfoNCE, CSLS",
    "sum_csls": "CCA + linear InfoNCE, CSLS",
    "csv_pretrained": "InfoNCE with CCA, CSLS (`csv_pretrained`)",
    "csv_pretrained_256_pixels": "`csv_pretrained` at 256 pixels",
    "csv_pretrained_trained": "`csv_pretrained_trained`: both encoders train",
    "csv_pretrained_trained_352_pixels": "`csv_pretrained_trained` at 352 pixels",
}
CURVE_GAINS = (
    ("csv_pretrained", "cca_csls"),
    ("csv_pretrained", "sum_csls"),
    ("csv_pretrained_trained", "csv_pretrained"),
    ("csv_pretrained_trained", "csv_pretrained_256_pixels"),
    ("csv_pretrained_trained_352_pixels", "csv_pretrained"),
    ("csv_pretrained_trained", "sum_csls"),
)
FLICKR8K = {
    "csv_pretrained": "InfoNCE with CCA, CSLS (`csv_pretrained`)",
    "csv_pretrained_pcmepp_csls": "PCME++ with CCA, CSLS",
    "csv_pretrained_msrm, CSLS": "MSRM with CCA, CSLS",
    "csv_pretrained_trained": "InfoNCE with CCA, CSLS, both encoders train",
    "csv_pretrained_unfrozen": "PCME++ with CCA, CSLS, text encoder trains (one seed)",
    "csv_pretrained_info_nce": "InfoNCE with CCA",
    "csv_pretrained_pcmepp": "PCME++ with CCA",
    "csv_pretrained_msrm": "MSRM with CCA",
    "csv_pretrained_pcme": "PCME with CCA",
    "csv_pretrained_smooth_ap": "Smooth-AP with CCA",
    "csv_pretrained_vsepp": "triplet, hardest negative, no warm-up, with CCA",
    "csv_pretrained_vse0": "triplet, all negatives, with CCA",
}
"""Methods that are compared with the sum of two baselines that has their correction for hubs."""
FLICKR8K_TITLE = "Flickr8K, RSUM minus CCA + linear InfoNCE with the same correction"
BIRDS_TITLE = "birds from random weights, R-Precision minus linear InfoNCE"
ORDERS_TITLE = "birds, orders of the papers"
FREED_TITLE = "birds, R-Precision minus the frozen encoder"
PROPORTIONS_TITLE = "700 photos, RSUM in proportions minus squashed"
FREED = {
    "last text layers train": "info_nce_freed_text",
    "last image layers train": "info_nce_freed_image",
}
HEADER = ("data", "comparison", "printed", "difference", "visible from", "p, Holm", "verdict")


@cache
def compare() -> tuple[Family, dict[tuple[str, ...], float | None]]:
    """The comparisons of the page, and the printed differences of some."""
    family, printed = Family(), {}

    def add(difference: Compared, *name: str, paper: float | None = None) -> None:
        family.add(difference, *name)
        printed[name] = paper

    methods = methods_table.methods_of(methods_table.read_lines(methods_table.RESULTS))
    rsum = rsum_of(methods)
    pooled = pooled_seeds(rsum.values())
    corrections = {method.name: method.correction for method in methods}
    for config, title in FLICKR8K.items():
        found = apart(pooled, rsum[config], rsum["sum" + corrections[config]])
        add(Estimated(found), FLICKR8K_TITLE, title)
    runs = birds_tables.runs_of(birds_tables.read_lines(BIRDS))
    begun = {row for row, labels in runs if labels == "pairs" and row.endswith(RANDOM)}
    for row in sorted(begun):
        add(against(runs, row, "dual_encoder"), BIRDS_TITLE, name_of(row))
    for text, above, config, below, other in ORDERS:
        if {above + RANDOM, below + RANDOM} <= begun:
            paper = printed_difference(config, other)
            found_here = against(runs, above + RANDOM, below + RANDOM)
            add(found_here, ORDERS_TITLE, text, paper=paper)
    for text, row in FREED.items():
        add(against(runs, row, "info_nce"), FREED_TITLE, text)
    photos = methods_table.read_lines(proportions.RESULTS)
    for correction in proportions.CORRECTIONS:
        title = "CCA, CSLS" if correction else "CCA"
        add(proportions.gain(photos, correction), PROPORTIONS_TITLE, title)
    return family, printed


def rows_of() -> list[list[str]]:
    """A row per comparison."""
    family, printed = compare()
    p_values, rows = family.p_values(), []
    for name, difference in family.differences.items():
        paper = printed[name]
        cells = [*name, "" if paper is None else f"{paper:+.1f}", str(difference)]
        cells += [f"{difference.visible:.2f}", format_p(p_values[name])]
        rows.append([*cells, family.verdict(*name, expected=paper)])
    return rows


def tables() -> dict[str, list[Sequence[str]]]:
    """The tables of the page by their names."""
    methods = methods_table.methods_of(methods_table.read_lines(methods_table.RESULTS))
    runs = birds_tables.runs_of(birds_tables.read_lines(BIRDS))
    return {
        "methods_comparisons": [HEADER, *rows_of()],
        "flickr8k_methods": _listed(list(methods_table.rows_of(methods))),
        "flickr8k_parts": _listed(list(methods_table.parts_of(methods))),
        "proportions": proportions.rows_of(methods_table.read_lines(proportions.RESULTS)),
        "flickr8k_curve": curve_rows(),
        "trained_losses": trained_losses_rows(),
        "scenes_methods": scenes_rows(),
        "dvse_mask": dvse_mask_rows(),
        "later_methods": later_rows(),
        "birds_methods": [birds_tables.ROWS_HEADER, *birds_tables.rows_of(runs)],
    }


def curve_rows() -> list[Sequence[str]]:
    """RSUM by the number of training photos, and gains of trained maps and encoders.

    Parts of the photos have one seed; all 5,996 have the mean of their seeds, and its variance.
    """
    all_photos = methods_table.read_lines(methods_table.RESULTS)
    parts = {count: _by_photo(methods_table.read_lines(few)) for count, few in _parts_of_photos()}
    found = parts | {TRAINING_PHOTOS: _by_photo(all_photos)}
    rows: list[Sequence[str]] = [["training photos", *map(str, found)]]
    for method, title in CURVE_METHODS.items():
        means = [f"{of[method].mean():.1f}" if method in of else "" for of in found.values()]
        rows.append([title, *means])
    rsum = rsum_of(methods_table.methods_of(all_photos))
    pooled = pooled_seeds(rsum.values())
    for method, other in CURVE_GAINS:
        pair = {method, other}
        gains = [
            _one_digit(Difference.of(of[method] - of[other])) if pair <= of.keys() else ""
            for of in parts.values()
        ]
        if pair <= rsum.keys():
            gains.append(str(Estimated(apart(pooled, rsum[method], rsum[other]))))
        else:
            gains.append("")
        rows.append([f"{CURVE_METHODS[method]} minus {CURVE_METHODS[other]}", *gains])
    return rows


def trained_losses_rows() -> list[Sequence[str]]:
    """RSUM of losses with encoders that train, with one seed, and their gains over InfoNCE."""
    folder = methods_table.RESULTS.parent
    rows: list[Sequence[str]] = [("training photos", "loss", "RSUM", "minus InfoNCE")]
    for count, few in _parts_of_photos():
        if not (losses := methods_table.read_lines(folder / f"trained_losses_{count}.jsonl")):
            continue
        base = _by_photo(methods_table.read_lines(few))["csv_pretrained_trained"]
        rows.append((str(count), "InfoNCE", f"{base.mean():.1f}", ""))
        for name, values in _by_photo(losses).items():
            gain = _one_digit(Difference.of(values - base))
            rows.append((str(count), name, f"{values.mean():.1f}", gain))
    return rows


def _parts_of_photos() -> list[tuple[int, Path]]:
    """The files of results with part of the training photos, by their number."""
    files = methods_table.RESULTS.parent.glob("flickr8k_*_photos.jsonl")
    return sorted((int(file.name.split("_")[1]), file) for file in files)


def _by_photo(lines: Iterable[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """What each photo adds to RSUM, (N,), by method: the mean of its seeds."""
    found: dict[str, list[np.ndarray]] = {}
    for line in lines:
        found.setdefault(line["method"], []).append(rsum_by_photo(line))
    return {method: np.mean(values, axis=0) for method, values in found.items()}


def _one_digit(found: Difference) -> str:
    low, high = found.value - found.half, found.value + found.half
    return f"{found.value:+.1f} [{low:+.1f}, {high:+.1f}]"


def scenes_rows() -> list[Sequence[str]]:
    """RSUM by the truth of configs on the scenes: mean and deviation of two seeds."""
    by_config: dict[str, list[float]] = {}
    for line in methods_table.read_lines(methods_table.RESULTS.with_name("scenes_methods.jsonl")):
        by_config.setdefault(line["method"], []).append(float(rsum_by_photo(line).mean()))
    rows = sorted(by_config.items(), key=lambda item: -float(np.mean(item[1])))
    cells = [[name, f"{np.mean(v):.1f} ± {np.std(v, ddof=1):.1f}", str(len(v))] for name, v in rows]
    return [("config", "RSUM by the truth", "seeds"), *cells]


def dvse_mask_rows() -> list[Sequence[str]]:
    """RSUM of DVSE with K sub-embeddings, with and without its mask, with one seed of each."""
    found: dict[tuple[str, int, bool], np.ndarray] = {}
    for path in (methods_table.RESULTS, methods_table.RESULTS.with_name("dvse_mask.jsonl")):
        for line in methods_table.read_lines(path):
            parts = re.fullmatch(r"(.+)_dvse(?:_k(\d))?(_no_mask)?", line["method"])
            if parts:
                data, k, no_mask = parts.groups()
                found.setdefault((data, int(k or 6), not no_mask), rsum_by_photo(line))
    rows: list[Sequence[str]] = [("configs", "K", "with mask", "without", "difference")]
    for data, k in sorted({(data, k) for data, k, _ in found}):
        both = found[data, k, True], found[data, k, False]
        gain = _one_digit(Difference.of(both[0] - both[1]))
        by = ", by the truth" if data == "scenes" else ""
        rows.append((f"{data}_dvse{by}", str(k), *(f"{v.mean():.1f}" for v in both), gain))
    return rows


def later_rows() -> list[Sequence[str]]:
    """RSUM of first runs of later methods, with one seed."""
    rows: list[Sequence[str]] = [("config", "test images", "RSUM")]
    for line in methods_table.read_lines(methods_table.RESULTS.with_name("later_methods.jsonl")):
        values = rsum_by_photo(line)
        found = Difference.of(values)
        low, high = found.value - found.half, found.value + found.half
        rows.append([line["name"], str(len(values)), f"{found.value:.1f} [{low:.1f}, {high:.1f}]"])
    return rows


def _listed(rows: Sequence[Mapping[str, str]]) -> list[Sequence[str]]:
    columns = list(dict.fromkeys(column for row in rows for column in row))
    return [columns, *([row.get(column, "") for column in columns] for row in rows)]


def draw(folder: Path) -> None:
    """Draws the comparisons of methods with baselines, with their intervals."""
    family, _ = compare()
    forest(family, (FLICKR8K_TITLE, BIRDS_TITLE), folder / "methods.png")


def forest(family: Family, titles: Sequence[str], path: Path) -> None:
    """Draws differences with intervals, a panel per title; filled are those that Holm leaves."""
    from matplotlib.figure import Figure

    p_values = family.p_values()
    panels: list[list[tuple[str, Any, bool]]] = []
    for title in titles:
        own = [name for name in family.differences if name[0] == title]
        own.sort(key=lambda name: family.differences[name].value)
        panels.append(
            [
                (name[1].replace("`", ""), family.differences[name],
                 p_values[name] < ALPHA)
                for name in own
            ]
        )  # fmt: skip
    heights = [len(panel) + 2 for panel in panels]
    figure = Figure((8.2, 0.27 * sum(heights) + 0.4), layout="constrained")
    every = figure.subplots(len(panels), 1, height_ratios=heights, squeeze=False)[:, 0]
    for axes, title, panel in zip(every, titles, panels, strict=True):
        for place, (_, difference, sure) in enumerate(panel):
            axes.errorbar(
                difference.value, place, xerr=difference.half, fmt="o", color="C0", capsize=3,
                markerfacecolor="C0" if sure else "white",
            )  # fmt: skip
        axes.axvline(0, color="0.6", linewidth=0.8)
        axes.set_yticks(range(len(panel)), [name for name, *_ in panel], fontsize=8)
        axes.set_ylim(-0.7, len(panel) - 0.3)
        axes.set_xlabel(title, fontsize=9)
    figure.savefig(path, dpi=120)
