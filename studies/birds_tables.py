"""Results of studies/birds.py: their file, and the tables of it."""

from __future__ import annotations

import argparse
import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from comparisons import Difference, variance_of_seeds

from keras_xmr.experiments.config.loader import load_config
from keras_xmr.experiments.config.packaged_configs import find_config

METRICS = tuple(f"{s}_{m}" for s in ("i2t", "t2i") for m in ("r_precision", "recall_1", "map_at_r"))
_RUN = ("kind", "row", "labels", "seed", "rate", "knob", "epoch", "val", "seconds")
COLUMNS = (*_RUN, "commit", *METRICS)


@dataclass
class Line:
    """A run: of kind "tune" with a validation figure alone, or of kind "test".

    Attributes:
        figures: Percentages by class of `METRICS`, as fractions (6, classes); empty for "tune".
    """

    kind: str
    row: str
    labels: str
    seed: int
    rate: float = 0
    knob: float = 0
    epoch: int = 0
    val: float = 0
    seconds: float = 0
    figures: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))

    @property
    def key(self) -> tuple[Any, ...]:
        """What identifies the run."""
        return (self.kind, self.row, self.labels, self.seed, self.rate, self.knob)

    def summary(self) -> list[str]:
        """Means over the classes, in percent."""
        return [f"{100 * values.mean():.2f}" for values in self.figures]

    def cells(self, commit: str) -> list[Any]:
        """The cells of the file: by metric the figures of all classes, in tenths of percent."""
        run = [getattr(self, name) for name in _RUN]
        run[-2:] = f"{self.val:.3f}", f"{self.seconds:.0f}"
        figures = [" ".join(f"{1000 * v:.0f}" for v in values) for values in self.figures]
        return [*run, commit, *(figures or [""] * len(METRICS))]


def read_lines(path: Path) -> list[Line]:
    """Reads the results; none if there is no file."""
    if not path.exists():
        return []
    lines = []
    with path.open(newline="") as file:
        for cells in csv.DictReader(file):
            figures = [[int(v) / 1000 for v in cells[name].split()] for name in METRICS]
            lines.append(
                Line(
                    *(cells[name] for name in _RUN[:3]),
                    int(cells["seed"]),
                    *(float(cells[name]) for name in ("rate", "knob")),
                    int(cells["epoch"]),
                    *(float(cells[name]) for name in ("val", "seconds")),
                    np.array(figures),
                )
            )
    return lines


BASELINES = ("cca", "cca_csls")
"""Every row is compared with the one that has its own correction for hubs."""
NAMES = {
    "cca": "CCA",
    "classifier": "classifiers of the training classes",
    "dual_encoder": "linear InfoNCE",
    "info_nce": "InfoNCE",
    "info_nce_freed_text": "InfoNCE, last text layers train",
    "info_nce_freed_image": "InfoNCE, last image layers train",
    "vse0": "triplet, all negatives (VSE0)",
    "vsepp": "triplet, hardest negative, no warm-up (VSE++)",
    "smooth_ap": "Smooth-AP",
    "pcme": "PCME",
    "mean_only": "PCME, means alone",
    "pcme_daa": "PCME with DAA",
    "pcme_smooth_ap": "PCME with Smooth-AP",
    "pcmepp": "PCME++",
    "msrm": "MSRM",
    "msrm_no_hypergraph": "MSRM without hypergraph loss",
    "msrm_no_distribution": "MSRM without distribution loss",
    "msrm_mean_only": "MSRM, means alone",
    "msrm_literal": "MSRM, residual hypergraph loss",
    **{f"dvse_k{k}": f"DVSE, K = {k}" for k in (1, 2, 4, 8)},
    **{f"pvse_k{k}": f"PVSE, K = {k}" for k in (1, 2, 4)},
}
"""Names of methods by rows."""
RANDOM = "_random"
"""Ends the name of a row that begins at random weights; others begin at CCA."""
_MSRM = "cub_msrm_seen"
ORDERS = (
    ("PCME above its means alone", "pcme", "cub_pcme", "mean_only", "cub_pcme_mean_only"),
    ("PCME above VSE0", "pcme", "cub_pcme", "vse0", "cub_vse0"),
    ("PCME above PVSE, K = 1", "pcme", "cub_pcme", "pvse_k1", "cub_pvse_k1"),
    ("PVSE: K = 1 above K = 4", "pvse_k1", "cub_pvse_k1", "pvse_k4", "cub_pvse_k4"),
    ("VSE0 above PVSE, K = 2", "vse0", "cub_vse0", "pvse_k2", "cub_pvse_k2"),
    ("DAA above PCME", "pcme_daa", "cub_pcme_bert_daa", "pcme", "cub_pcme_bert"),
    ("MSRM above PCME", "msrm", "cub_msrm", "pcme", "cub_pcme"),
    ("MSRM above its means alone", "msrm", _MSRM, "msrm_mean_only", f"{_MSRM}_mean_only"),
    ("MSRM above without L_d", "msrm", _MSRM, "msrm_no_distribution", f"{_MSRM}_no_distribution"),
    ("MSRM above without L_h", "msrm", _MSRM, "msrm_no_hypergraph", f"{_MSRM}_no_hypergraph"),
    ("DVSE: K = 4 above K = 1", "dvse_k4", "cub_dvse_k4", "dvse_k1", "cub_dvse_k1"),
    ("DVSE: K = 8 above K = 2", "dvse_k8", "cub_dvse", "dvse_k2", "cub_dvse_k2"),
)  # fmt: skip
"""Orders, most of them printed on CUB Captions: a row above another, and the configs of both."""


Runs = Mapping[tuple[str, str], Sequence[Line]]


def runs_of(lines: Sequence[Line]) -> Runs:
    """The tested runs of each row and labels, with the setting that is best on validation."""
    best: dict[tuple[str, str], Line] = {}
    for line in lines:
        key = line.row, line.labels
        if line.kind == "tune" and (key not in best or line.val > best[key].val):
            best[key] = line
    runs: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        tuned = best.get((line.row.removesuffix("_csls"), line.labels), line)
        if line.kind == "test" and (line.rate, line.knob) == (tuned.rate, tuned.knob):
            runs.setdefault((line.row, line.labels), []).append(line)
    return runs


def contrast(runs: Runs, *terms: tuple[float, tuple[str, str]]) -> Difference:
    """A weighted sum of the R-Precision of rows (mean of both directions), such as a difference.

    Classes are drawn, paired, and seeds, of which each row has its own variance.
    """
    by_class: np.ndarray = np.zeros(1)
    parts = []
    for weight, key in terms:
        values = weight * np.array([50 * (line.figures[0] + line.figures[3]) for line in runs[key]])
        by_class = by_class + values.mean(axis=0)
        # Closed forms are the same with every seed.
        parts += variance_of_seeds(values.mean(axis=1)) if runs[key][0].seed else []
    return Difference.of(by_class, *parts)


def name_of(row: str) -> str:
    """The name of a method, without its start."""
    plain = row.removesuffix(RANDOM)
    corrected = plain.endswith("_csls")
    return NAMES[plain.removesuffix("_csls")] + (", CSLS" if corrected else "")


def starts_at_random(row: str) -> bool:
    """Whether a row begins at random weights."""
    return row.endswith(RANDOM) or row.startswith("dual_encoder")


def rows_of(runs: Runs) -> list[list[str]]:
    """All rows with annotated pairs as labels, by R-Precision, the mean of both directions."""
    rows = []
    for (name, labels), own in runs.items():
        if labels == "pairs":
            figures = 100 * np.mean([line.figures.mean(axis=1) for line in own], axis=0)
            start = "random" if starts_at_random(name) else "CCA"
            start = start if own[0].seed else "closed form"
            cells = [name_of(name), start, *(f"{value:.1f}" for value in figures), str(len(own))]
            rows.append((figures[[0, 3]].mean(), cells))
    return [row for _, row in sorted(rows, key=lambda row: -row[0])]


ROWS_HEADER = (
    "method",
    "start",
    *(f"{side} {metric}" for side in ("i2t", "t2i") for metric in ("R-P", "R@1", "mAP@R")),
    "seeds",
)


def against(runs: Runs, above: str, below: str) -> Difference:
    """R-Precision of a row with annotated pairs, minus another."""
    return contrast(runs, (1, (above, "pairs")), (-1, (below, "pairs")))


def printed_difference(above: str, below: str) -> float | None:
    """The difference of two configs in their paper; None if no paper has it."""
    return _printed(above) - _printed(below) if above else None


def _printed(config: str) -> float:
    """R-Precision of the paper's row that a config aims at, the mean of both directions."""
    paper = load_config(find_config(config)).paper
    if paper is None:
        raise ValueError(f"{config} names no figures of a paper")
    values = paper.figures[0].values
    return (values["i2t_r_precision"] + values["t2i_r_precision"]) / 2


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints rows in Markdown, if there are some."""
    if rows:
        rule = ["---", *("---:" for _ in header[1:])]
        print(*("| " + " | ".join(cells) + " |" for cells in (header, rule, *rows)), "", sep="\n")


def append_row(path: Path, header: Sequence[str], cells: Sequence[Any]) -> None:
    """Appends a row to a CSV file, which begins with its header."""
    new = not path.exists()
    with path.open("a", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([header] * new + [cells])


def add_paths(parser: argparse.ArgumentParser, results: Path) -> argparse.ArgumentParser:
    """Adds the options that the studies of photos share."""
    parser.add_argument("--work", type=Path, default=Path("data") / results.stem)
    parser.add_argument("--results", type=Path, default=results)
    parser.add_argument("--image-preset", default="efficientnet_lite0_ra_imagenet")
    parser.add_argument("--text-preset", default="hf://sentence-transformers/all-MiniLM-L6-v2")
    return parser
