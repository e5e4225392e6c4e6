"""Results of studies/birds.py: their file, and the tables of it."""

from __future__ import annotations

import argparse
import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats

from keras_xmr.experiments.config.loader import find_config, load_config

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
PLAIN = {
    "cca": "CCA",
    "cca_csls": "CCA, CSLS",
    "classifier": "classifiers of the training classes",
    "dual_encoder": "linear dual encoder",
    "dual_encoder_csls": "linear dual encoder, CSLS",
}
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
    ("InfoNCE: freed text encoder above frozen", "nt_xent_freed_text", "", "nt_xent", ""),
    ("InfoNCE: freed image encoder above frozen", "nt_xent_freed_image", "", "nt_xent", ""),
)  # fmt: skip
"""Orders, most of them printed on CUB Captions: a row above another, and the configs of both."""


@dataclass(frozen=True)
class Difference:
    """A difference in percent, its standard error and degrees of freedom."""

    value: float
    error: float
    freedom: int

    @classmethod
    def of(cls, values: np.ndarray, variance: float = 0.0) -> Difference:
        """The mean of values that are drawn, whose mean has a further variance, of seeds."""
        error = (values.var(ddof=1) / len(values) + variance) ** 0.5
        return cls(float(values.mean()), float(error), len(values) - 1)

    def _quantile(self, share: float) -> float:
        return float(scipy.stats.t.ppf(share, self.freedom))

    @property
    def half(self) -> float:
        """Half of the 95 % interval."""
        return self._quantile(0.975) * self.error

    @property
    def visible(self) -> float:
        """The smallest difference that a test finds with a probability of 80 %."""
        return (self._quantile(0.975) + self._quantile(0.8)) * self.error

    @property
    def verdict(self) -> str:
        """Whether it is above or below 0."""
        if abs(self.value) <= self.half:
            return "undecided"
        return "confirmed" if self.value > 0 else "reversed"

    def __str__(self) -> str:
        low, high = self.value - self.half, self.value + self.half
        return f"{self.value:+.2f} [{low:+.2f}, {high:+.2f}]"


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

    Classes are drawn, paired, and seeds. The variance over seeds is pooled over all rows that begin
    alike: at CCA, or at random weights.
    """
    of_seeds = {
        key: np.array([50 * (line.figures[0] + line.figures[3]) for line in own])
        for key, own in runs.items()
    }
    pools: dict[bool, list[np.ndarray]] = {True: [], False: []}
    for (name, _), own in of_seeds.items():
        pools[_is_random(name)].append(own.mean(axis=1) - own.mean())

    def variance(name: str) -> float:
        pool = pools[_is_random(name)]
        return sum((own**2).sum() for own in pool) / max(sum(len(own) - 1 for own in pool), 1)

    by_class = np.sum([weight * of_seeds[key].mean(axis=0) for weight, key in terms], axis=0)
    # Closed forms are the same with every seed.
    seeds = [w**2 * variance(key[0]) / len(runs[key]) for w, key in terms if runs[key][0].seed]
    return Difference.of(by_class, sum(seeds))


def _is_random(name: str) -> bool:
    return name.endswith(RANDOM) or name.startswith("dual_encoder")


def gains_of(runs: Runs) -> dict[str, Difference]:
    """R-Precision of every row with annotated pairs, minus CCA with its own correction."""
    gains = {}
    for name, labels in runs:
        if labels == "pairs" and name not in BASELINES and not name.endswith(RANDOM):
            baseline = BASELINES[name.endswith("_csls")], labels
            gains[name] = contrast(runs, (1, (name, labels)), (-1, baseline))
    return gains


def rows_of(runs: Runs) -> list[list[str]]:
    """All rows with annotated pairs as labels, by R-Precision, compared with CCA.

    The last column has the row that begins at random weights, compared with the dual encoder.
    """
    rows, gains = [], gains_of(runs)
    for (name, labels), own in runs.items():
        if labels == "pairs" and not name.endswith(RANDOM):
            figures = 100 * np.mean([line.figures.mean(axis=1) for line in own], axis=0)
            cells = [PLAIN.get(name, f"`{name}`"), *(f"{value:.1f}" for value in figures)]
            gain = gains.get(name)
            against = [str(gain), f"{gain.visible:.2f}"] if gain else ["", ""]
            begun, random = name + RANDOM, ""
            if (begun, labels) in runs:
                random = str(_difference(runs, begun, "dual_encoder"))
            rows.append((figures[[0, 3]].mean(), [*cells, *against, str(len(own)), random]))
    return [row for _, row in sorted(rows, key=lambda row: -row[0])]


def _difference(runs: Runs, above: str, below: str) -> Difference:
    return contrast(runs, (1, (above, "pairs")), (-1, (below, "pairs")))


def orders_of(runs: Runs) -> list[list[str]]:
    """The orders of the papers: as printed, and here from both starts with their verdicts."""
    rows = []
    for text, above, its_config, below, other_config in ORDERS:
        printed = _printed(its_config) - _printed(other_config) if its_config else float("nan")
        cells = [text, f"{printed:+.1f}" if its_config else ""]
        for start in ("", RANDOM):
            if not {(above + start, "pairs"), (below + start, "pairs")} <= runs.keys():
                cells += ["", "", ""]
                continue
            found = _difference(runs, above + start, below + start)
            missing = found.verdict == "undecided" and abs(printed) >= found.visible
            cells += [str(found), f"{found.visible:.2f}"]
            cells.append("not observed" if missing else found.verdict)
        if any(cells[2:]):
            rows.append(cells)
    return rows


def _printed(config: str) -> float:
    """R-Precision of the paper's row that a config aims at, the mean of both directions."""
    paper = load_config(find_config(config)).paper
    if paper is None:
        raise ValueError(f"{config} names no figures of a paper")
    values = paper.figures[0].values
    return (values["i2t_r_precision"] + values["t2i_r_precision"]) / 2


def labels_of(runs: Runs) -> list[list[str]]:
    """The hardest negative minus all negatives, by labels and start, and their interaction."""
    rows = []
    for start, title in (("", "start at CCA"), (RANDOM, "random start")):
        known, unknown = (
            ((1, (f"vsepp{start}", labels)), (-1, (f"vse0{start}", labels)))
            for labels in ("classes", "pairs")
        )
        if not {key for _, key in (*known, *unknown)} <= runs.keys():
            continue
        opposite = tuple((-weight, key) for weight, key in unknown)
        named = {"class labels": known, "instance labels": unknown}
        for name, own in (named | {"difference of the two": (*known, *opposite)}).items():
            found, means = contrast(runs, *own), ["", ""]
            if len(own) == 2:
                means = [f"{contrast(runs, (1, key)).value:.1f}" for _, key in own]
            rows.append([f"{title}, {name}", *means, str(found), f"{found.visible:.2f}"])
    return rows


def print_tables(lines: Sequence[Line]) -> None:
    """Prints the table of rows, the orders of the papers, and the two kinds of labels."""
    runs = runs_of(lines)
    difference = "R-P of both minus CCA", "visible from"
    sides = [f"{side} {metric}" for side in ("i2t", "t2i") for metric in ("R-P", "R@1", "mAP@R")]
    if all((name, "pairs") in runs for name in BASELINES):
        random = "from random weights, minus linear dual encoder"
        print_table(["row", *sides, *difference, "seeds", random], rows_of(runs))
    starts = [(start, "visible from", "verdict") for start in ("start at CCA", "random start")]
    print_table(["order", "printed", *starts[0], *starts[1]], orders_of(runs))
    header = ["labels", "hardest negative", "all negatives", "difference", "visible from"]
    print_table(header, labels_of(runs))


def draw_rows(runs: Runs, path: Path) -> None:
    """Draws the difference of every row from CCA, with its interval."""
    from matplotlib.figure import Figure

    gains = sorted(gains_of(runs).items(), key=lambda item: item[1].value)
    figure = Figure((6.2, 0.3 * len(gains) + 1), layout="constrained")
    axes = figure.subplots()
    for place, (_, gain) in enumerate(gains):
        axes.errorbar(gain.value, place, xerr=gain.half, fmt="ok", capsize=3)
    axes.axvline(0, color="0.6")
    axes.set_yticks(range(len(gains)), [PLAIN.get(name, name) for name, _ in gains])
    axes.set_xlabel("R-Precision (%), mean of both directions, minus CCA")
    figure.savefig(path, dpi=110)


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
