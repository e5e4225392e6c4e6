"""Tables of what studies/flickr8k_methods.py has measured."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from baselines import recalls

from keras_xmr.metrics import chance_from_counts
from keras_xmr.metrics.bootstrap import Estimate, Seeds, resampled_means

RESULTS = Path(__file__).parent / "results" / "flickr8k_methods.jsonl"
SHORTEST_FIRST = "shortest_first"
NO_MODEL = ("chance", SHORTEST_FIRST)
WITHOUT_SEEDS = ("ridge", "cca", "cca_csls", SHORTEST_FIRST)
JUDGED = ("r_precision", "map_at_r")
PEOPLE = ("crowd", "experts")
SIDES = {"i2t": "image_to_text", "t2i": "text_to_image"}
RECALLS = tuple(f"{side} R@{k}" for side in SIDES for k in (1, 5, 10))
_LABELS = {
    "chance": "chance",
    SHORTEST_FIRST: "captions ordered by length (ignores the image)",
    "ridge": "ridge regression",
    "cca": "CCA",
    "cca_csls": "CCA, CSLS",
    "dual_encoder": "linear dual encoder, tuned",
    "dual_encoder_csls": "linear dual encoder, tuned, CSLS",
}

# What a part of a method is worth: the part, the method with it, and without.
PARTS = (
    ("PCME: match probability of samples, not cosines of means", "pcme", "mean_only"),
    ("PCME++: its loss of sampled distances, not InfoNCE of cosines", "pcmepp", "nt_xent"),
    ("PCME++: CSLS", "pcmepp_csls", "pcmepp"),
    ("InfoNCE: CSLS", "csv_pretrained", "nt_xent"),
    ("PCME++: its loss, not InfoNCE, both with CSLS", "pcmepp_csls", "csv_pretrained"),
    ("PCME++: its text encoder freed at the end", "pcmepp_unfrozen", "pcmepp"),
    ("The same, with CSLS", "unfrozen", "pcmepp_csls"),
    ("MSRM: distribution loss", "msrm", "msrm_no_distribution"),
    ("MSRM: hypergraph loss", "msrm", "msrm_no_hypergraph"),
    ("MSRM: hypergraph loss in residual form", "msrm", "msrm_literal"),
    ("MSRM: distributions, not means", "msrm", "msrm_mean_only"),
    ("DAA: its loss added to that of PCME", "daa", "pcme"),
    ("DAA: its loss added to that of SAF", "saf_daa", "saf"),
    ("DAA: its loss added to that of SGR", "sgr_daa", "sgr"),
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
    ("SAF: its matcher, not averages trained alike", "saf", "saf_average"),
    ("SGR: its matcher and loss, not InfoNCE of averages", "sgr", "nt_xent_local"),
    ("VSRN: its graph of places, not InfoNCE of averages", "vsrn_nt_xent", "nt_xent_local"),
    (
        "VSRN: its graph of places, not averages trained alike",
        "vsrn_nt_xent",
        "vsrn_nt_xent_average",
    ),
    ("VSRN: Smooth-AP, not InfoNCE", "vsrn_smooth_ap", "vsrn_nt_xent"),
    ("VSRN: the hardest negative, not all", "vsrn_hardest", "vsrn_triplet"),
    ("Hardest negative, not all", "vsepp", "vse0"),
    ("Smooth-AP, not the hardest negative", "smooth_ap", "vsepp"),
    ("InfoNCE, not the hardest negative", "nt_xent", "vsepp"),
)

# Pairs of methods whose differences have a table: the first minus the second.
PAIRS = (
    ("csv_pretrained", "nt_xent"),
    ("csv_pretrained", "pcmepp_csls"),
    ("pcmepp", "nt_xent"),
    ("msrm", "pcmepp"),
    ("msrm", "nt_xent"),
    ("pcmepp_unfrozen", "pcmepp"),
    ("unfrozen", "pcmepp_csls"),
    ("smooth_ap", "vse0"),
    ("vsepp", "vse0"),
    ("saf", "nt_xent"),
)


@dataclass(frozen=True, eq=False)
class Runs:
    """A metric of the runs of a method, in percent.

    Attributes:
        values: Of each run (runs,).
        resampled: The same over photos that are resampled with their captions (resamples, runs).
        random: Whether another seed would change it.
    """

    values: np.ndarray
    resampled: np.ndarray
    random: bool

    @property
    def mean(self) -> Estimate:
        """The mean over runs, over photos alone."""
        return Estimate(float(self.values.mean()), self.resampled.mean(axis=1))


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

    @property
    def val(self) -> float | None:
        """Mean RSUM on the validation split; None of what chooses nothing."""
        values = [line["val"] for line in self.lines]
        return None if None in values else float(np.mean(values))


def rsum_of(methods: Sequence[Method]) -> dict[str, Runs]:
    """RSUM of methods, by their names."""
    sides = []
    for number in range(len(SIDES)):
        ranks = [_ranks(line)[number] for method in methods for line in method.lines]
        hits = np.stack(ranks, axis=1)[..., None] <= [1, 5, 10]
        sides.append(100.0 * hits.sum(axis=-1))
    return _over_photos(methods, sides)


def r_precision_of(methods: Sequence[Method], people: str, side: str) -> dict[str, Runs]:
    """R-Precision among the pairs that people judged."""
    lines = [line for method in methods for line in method.lines]
    values = [judged_values(line, people, "r_precision", side) for line in lines]
    return _over_photos(methods, [100 * np.stack(values, axis=1)])


def _over_photos(methods: Sequence[Method], sides: Sequence[np.ndarray]) -> dict[str, Runs]:
    """The sum over sides of means of queries (queries, runs of all methods)."""
    photos = len(methods[0].lines[0]["ranks"][0])
    drawn, values = 0.0, 0.0
    for side in sides:
        drawn += resampled_means(side, np.arange(len(side)) * photos // len(side), photos)
        values += np.nanmean(side, axis=0)
    ends = np.cumsum([len(method.lines) for method in methods])[:-1]
    parts = zip(methods, np.split(values, ends), np.split(drawn, ends, axis=1), strict=True)
    return {m.name: Runs(*own, m.name not in (*WITHOUT_SEEDS, "chance")) for m, *own in parts}


def pooled_seeds(all_runs: Iterable[Runs]) -> Seeds | None:
    """The variance of one run over seeds, pooled over the methods that have several.

    Returns:
        None where no method has several.
    """
    several = [runs for runs in all_runs if runs.random and len(runs.values) > 1]
    freedom = sum(len(runs.values) - 1 for runs in several)
    if not freedom:
        return None
    variance = sum(runs.values.var() * len(runs.values) for runs in several) / freedom
    # What seeds change on single photos: resamples of photos have it, too. By chance it can be
    # estimated above the whole variance, of which it is a part.
    on_photos = sum(
        np.nanmean((runs.resampled - runs.values).var(axis=1)) * len(runs.values)
        for runs in several
    )
    return Seeds(float(variance), min(float(on_photos) / freedom, float(variance)), float(freedom))


def apart(pooled: Seeds | None, first: Runs, other: Runs | None = None) -> Estimate:
    """The first, minus the other one, over photos and seeds."""
    both = [first] if other is None else [first, other]
    estimate = first.mean if other is None else first.mean - other.mean
    share = sum(1 / len(runs.values) for runs in both if runs.random)
    if pooled is None or not share:
        return estimate
    seeds = Seeds(pooled.variance * share, pooled.interaction * share, pooled.freedom)
    return Estimate(estimate.value, estimate.resampled, (seeds,))


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
    return sorted(methods, key=lambda method: -method.recalls[:, -1].mean())


def groups_of(methods: Sequence[Method], rsum: Mapping[str, Runs]) -> list[int]:
    """The group of each method, which are in the order of RSUM.

    A method begins a new group if its difference from the first one of the group is significant.
    """
    groups, first, pooled = [], None, pooled_seeds(rsum.values())
    for method in methods:
        own = rsum[method.name]
        if first is None or apart(pooled, first, own).difference().low > 0:
            first = own
            groups.append(groups[-1] + 1 if groups else 1)
        else:
            groups.append(groups[-1])
    return groups


def rows_of(methods: Sequence[Method]) -> Iterator[dict[str, str]]:
    """A row per method, of cells by the title of their column."""
    rsum = rsum_of(methods)
    pooled = pooled_seeds(rsum.values())
    judged = {
        (people, side): r_precision_of(methods, people, side) for people in PEOPLE for side in SIDES
    }
    encoder = "dual_encoder"
    for method, group in zip(methods, groups_of(methods, rsum), strict=True):
        name = method.name
        row = {"group": str(group), "method": method.label}
        expected = method.lines[0].get("expected")
        means = _chance_recalls(method) if expected else method.recalls.mean(axis=0)
        row |= dict(zip(RECALLS, (f"{v:.1f}" for v in means), strict=False))
        row["RSUM"] = f"{means[-1]:.1f}" if expected else _cell(apart(pooled, rsum[name]))
        for other in ("cca", encoder):
            if other in rsum and other != name and not expected:
                row[f"to {_LABELS[other]}"] = _cell(apart(pooled, rsum[name], rsum[other]), "+")
        for (people, side), runs in judged.items():
            mean = 100 * expected[people][side] if expected else runs[name].mean.value
            row[f"{people} {side} R-P"] = f"{mean:.1f}"
            if people == "crowd" and encoder in runs and encoder != name and not expected:
                found = apart(pooled_seeds(runs.values()), runs[name], runs[encoder])
                row[f"crowd {side} R-P to dual encoder"] = _cell(found, "+")
        row["val RSUM"] = "" if method.val is None else f"{method.val:.1f}"
        row["CPU seconds"] = f"{np.median([line['processor_s'] for line in method.lines]):.0f}"
        row["seeds"] = "" if expected else str(len(method.lines))
        yield row


def parts_of(methods: Sequence[Method]) -> Iterator[dict[str, str]]:
    """A row per part of a method that was measured with and without it."""
    rsum = rsum_of(methods)
    for part, *names in PARTS:
        pair = [rsum.get(config_name(name)) for name in names]
        if None in pair:
            continue
        with_it, without = pair
        found = apart(pooled_seeds(rsum.values()), with_it, without)
        yield {
            "part": part,
            "with": f"{with_it.mean.value:.1f}",
            "without": f"{without.mean.value:.1f}",
            "difference of RSUM": _cell(found, "+"),
            "visible from": f"{found.smallest_effect():.1f}",
            "seeds": f"{len(with_it.values)} and {len(without.values)}",
        }


def pairs_of(methods: Sequence[Method]) -> Iterator[dict[str, str]]:
    """A row per pair of methods of `PAIRS`: differences of RSUM and of R-P by the crowd."""
    metrics = {"RSUM": rsum_of(methods)} | {
        f"crowd {side} R-P": r_precision_of(methods, "crowd", side) for side in SIDES
    }
    for names in PAIRS:
        pair = [config_name(name) for name in names]
        if all(name in metrics["RSUM"] for name in pair):
            yield {"method": f"`{names[0]}` minus `{names[1]}`"} | {
                title: _cell(apart(pooled_seeds(runs.values()), *map(runs.get, pair)), "+")
                for title, runs in metrics.items()
            }


def seeds_of(methods: Sequence[Method]) -> Iterator[dict[str, str]]:
    """A row per method: the deviation over seeds, and RSUM minus that of both dual encoders."""
    rsum = rsum_of(methods)
    pooled = pooled_seeds(rsum.values())
    for method in methods:
        values, own = method.recalls[:, -1], rsum[method.name]
        row = {"method": method.label, "RSUM": f"{values.mean():.1f}"}
        row["deviation over seeds"] = f"{values.std(ddof=1):.1f}" if len(values) > 1 else ""
        row["seeds"] = str(len(values))
        for other in ("dual_encoder", "dual_encoder_csls"):
            if other in rsum and method.name not in (other, "chance"):
                row[f"to {_LABELS[other]}"] = _cell(apart(pooled, own, rsum[other]), "+")
        yield row


def config_name(name: str) -> str:
    """The config of a method by its name in tables."""
    return name if name == "csv_pretrained" else f"csv_pretrained_{name}"


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


def _cell(estimate: Estimate, sign: str = "") -> str:
    found = estimate.difference()
    return f"{found.value:{sign}.1f} [{found.low:{sign}.1f}, {found.high:{sign}.1f}]"


def _ranks(line: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    images, captions = map(np.array, line["ranks"])
    return images, captions


def _chance_recalls(method: Method) -> np.ndarray:
    """Expected recalls and RSUM of a random order, in percent, (7,)."""
    images, captions = map(len, method.lines[0]["ranks"])
    right = np.full(images, captions // images), np.ones(captions, int)
    summary = chance_from_counts(*right)
    names = [f"{side}_recall_{k}" for side in SIDES for k in (1, 5, 10)]
    return 100 * np.array([summary[name] for name in (*names, "rsum")])
