"""Tables of what studies/flickr8k_methods.py has measured."""

from __future__ import annotations

import csv
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from baselines import recalls
from real_tables import resampled_photos

from keras_xmr.metrics.bootstrap import Difference, Estimate, mean_of_runs

RESULTS = Path(__file__).parent / "results" / "flickr8k_methods.jsonl"
SHORTEST_FIRST = "shortest_first"
NO_MODEL = ("chance", SHORTEST_FIRST)
JUDGED = ("r_precision", "map_at_r")
SIDES = {"i2t": "image_to_text", "t2i": "text_to_image"}
RECALLS = tuple(f"{side} R@{k}" for side in SIDES for k in (1, 5, 10))
_LABELS = {
    "chance": "chance",
    SHORTEST_FIRST: "captions ordered by length (ignores the image)",
    "ridge": "ridge regression",
    "cca": "CCA",
    "dual_encoder": "linear dual encoder, tuned",
}

# What a part of a method is worth: the part, the method with it, and without.
PARTS = (
    ("PCME: match probability of samples, not cosines of means", "pcme", "mean_only"),
    ("PCME++: its loss of sampled distances, not InfoNCE of cosines", "pcmepp", "nt_xent"),
    ("PCME++: its text encoder freed at the end", "unfrozen", "pcmepp"),
    ("MSRM: distribution loss", "msrm", "msrm_no_distribution"),
    ("MSRM: hypergraph loss", "msrm", "msrm_no_hypergraph"),
    ("MSRM: hypergraph loss in residual form", "msrm", "msrm_literal"),
    ("MSRM: distributions, not means", "msrm", "msrm_mean_only"),
    ("DAA: its loss beside that of PCME", "daa", "pcme"),
    ("DAA: its loss beside that of SAF", "saf_daa", "saf"),
    ("DAA: its loss beside that of SGR", "sgr_daa", "sgr"),
    ("PVSE: its heads and losses, not InfoNCE of averages", "pvse", "nt_xent_local"),
    ("PVSE: two embeddings, not one", "pvse", "pvse_k1"),
    ("DVSE: its head and losses, not InfoNCE of averages", "dvse", "nt_xent_local"),
    ("DVSE: six sub-embeddings, not one", "dvse", "dvse_k1"),
    ("DVSE: dynamic orthogonal loss", "dvse", "dvse_no_orthogonality"),
    ("DVSE: dynamic mask", "dvse", "dvse_no_mask"),
    ("DVSE: variance-aware weights", "dvse", "dvse_no_variance"),
    ("DiVE: its heads and losses, not InfoNCE of averages", "dive", "nt_xent_local"),
    ("DiVE: two slots, not one", "dive", "dive_k1"),
    ("SAF: its matcher and loss, not InfoNCE of averages", "saf", "nt_xent_local"),
    ("SGR: its matcher and loss, not InfoNCE of averages", "sgr", "nt_xent_local"),
    ("VSRN: its graph of places, not InfoNCE of averages", "vsrn_nt_xent", "nt_xent_local"),
    ("Hardest negative, not all", "vsepp", "vse0"),
    ("Smooth-AP, not the hardest negative", "smooth_ap", "vsepp"),
    ("InfoNCE, not the hardest negative", "nt_xent", "vsepp"),
)


@dataclass(frozen=True, eq=False)
class Method:
    """The runs of a method.

    Attributes:
        name: Its name.
        lines: Its lines in the file of results, one per seed.
    """

    name: str
    lines: Sequence[Mapping[str, Any]]

    @property
    def label(self) -> str:
        """Its name in tables."""
        return _LABELS.get(self.name, f"`{self.name.removeprefix('csv_pretrained_')}`")

    @cached_property
    def recalls(self) -> np.ndarray:
        """R@1, R@5, R@10 of both directions and RSUM, in percent, (runs, 7)."""
        values = np.array([recalls(_ranks(line)) for line in self.lines])
        return np.c_[values, values.sum(axis=1)]

    @cached_property
    def rsum(self) -> Estimate:
        """RSUM over photos that are resampled with their captions, and over seeds."""
        resampled = [resampled_photos(*map(_hits, _ranks(line))) for line in self.lines]
        return mean_of_runs(self.recalls[:, -1], np.stack(resampled, axis=1))

    @property
    def val(self) -> float | None:
        """Mean RSUM on the validation split; None of what chooses nothing."""
        values = [line["val"] for line in self.lines]
        return None if None in values else float(np.mean(values))

    def judged(self, people: str, metric: str, side: str) -> float:
        """The mean of a judged metric over queries and runs, in percent."""
        values = [judged_values(line, people, metric, side) for line in self.lines]
        return 100 * float(np.nanmean(values))


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a file of results; none if there is no such file."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def judged_values(line: Mapping[str, Any], people: str, metric: str, side: str) -> np.ndarray:
    """A judged metric of every query of a run; NaN where nobody judged an item relevant."""
    known = line["judged"][people][metric][side]
    values = np.full(len(line["ranks"][list(SIDES).index(side)]), np.nan)
    values[known["queries"]] = known["values"]
    return values


def methods_of(lines: Sequence[Mapping[str, Any]]) -> list[Method]:
    """The methods of some lines, by their RSUM, the highest first."""
    by_name: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for line in lines:
        by_name[line["method"]].append(line)
    methods = [Method(name, own) for name, own in by_name.items()]
    return sorted(methods, key=lambda method: -method.rsum.value)


def groups_of(methods: Sequence[Method]) -> list[int]:
    """The group of each method, which are in the order of RSUM.

    A method begins a new group if its difference from the first one of the group is significant.
    """
    groups, first = [], None
    for method in methods:
        if first is None or (first.rsum - method.rsum).difference().low > 0:
            first = method
            groups.append(groups[-1] + 1 if groups else 1)
        else:
            groups.append(groups[-1])
    return groups


def rows_of(methods: Sequence[Method]) -> Iterator[dict[str, str]]:
    """A row per method, of cells by the title of their column."""
    others = {method.name: method for method in methods}
    for method, group in zip(methods, groups_of(methods), strict=True):
        row = {"group": str(group), "method": method.label}
        row |= dict(zip(RECALLS, (f"{v:.1f}" for v in method.recalls.mean(axis=0)), strict=False))
        row["RSUM"] = _cell(method.rsum.difference())
        for name in ("cca", "dual_encoder"):
            if name in others and name != method.name:
                row[f"to {_LABELS[name]}"] = _cell(
                    (method.rsum - others[name].rsum).difference(), "+"
                )
        for people in ("crowd", "experts"):
            for side in SIDES:
                row[f"{people} {side} R-P"] = f"{method.judged(people, 'r_precision', side):.1f}"
        row["val RSUM"] = "" if method.val is None else f"{method.val:.1f}"
        row["CPU seconds"] = f"{np.mean([line['processor_s'] for line in method.lines]):.0f}"
        row["seeds"] = str(len(method.lines))
        yield row


def parts_of(methods: Sequence[Method]) -> Iterator[dict[str, str]]:
    """A row per part of a method that was measured with and without it."""
    by_name = {method.name: method for method in methods}
    for part, *names in PARTS:
        pair = [by_name.get(f"csv_pretrained_{name}") for name in names]
        if None in pair:
            continue
        with_it, without = pair
        found = with_it.rsum - without.rsum
        yield {
            "part": part,
            "with": f"{with_it.rsum.value:.1f}",
            "without": f"{without.rsum.value:.1f}",
            "difference of RSUM": _cell(found.difference(), "+"),
            "visible from": f"{found.smallest_effect():.1f}",
            "seeds": f"{len(with_it.lines)} and {len(without.lines)}",
        }


def print_table(rows: Sequence[Mapping[str, str]]) -> None:
    """Prints some columns of `rows_of` or `parts_of` in Markdown; `write_csv` has all."""
    hidden = (*RECALLS, f"to {_LABELS['cca']}", "val RSUM")
    shown = [column for column in _columns(rows) if column not in hidden]
    print(f"| {' | '.join(shown)} |")
    rules = ("---" if column in ("method", "part") else "---:" for column in shown)
    print(f"| {' | '.join(rules)} |")
    for row in rows:
        print(f"| {' | '.join(row.get(column, '') for column in shown)} |")


def write_csv(rows: Sequence[Mapping[str, str]], path: Path) -> None:
    """Writes the rows of `rows_of` as CSV."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, _columns(rows), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _columns(rows: Sequence[Mapping[str, str]]) -> list[str]:
    return list(dict.fromkeys(column for row in rows for column in row))


def _cell(found: Difference, sign: str = "") -> str:
    return f"{found.value:{sign}.1f} [{found.low:{sign}.1f}, {found.high:{sign}.1f}]"


def _ranks(line: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    images, captions = map(np.array, line["ranks"])
    return images, captions


def _hits(ranks: np.ndarray) -> np.ndarray:
    """The sum of R@1, R@5 and R@10 of each query, in percent."""
    return 100.0 * (ranks[:, None] <= [1, 5, 10]).sum(axis=1)
