"""Tables of what studies/flickr8k_methods.py has measured.

The command prints which annotated metric ranks methods as people do.
Kendall's tau-b between the order of methods by an annotated metric and that by what the crowd or
the experts judged, both means of the two directions. In brackets is the range of 95 % of resampled
test photos, each with its captions, on which both sides are measured anew. It is no confidence
interval: resamples add noise to both orders (docs/explanation/statistics.md). The last rows say
what can be reached: the order by people on one half of the photos against that on the other half.

    python studies/methods_table.py
"""

from __future__ import annotations

import argparse
import csv
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from birds_tables import print_table

from keras_xmr.experiments.config.fidelity import fidelity_text
from keras_xmr.experiments.config.loader import load_config
from keras_xmr.experiments.config.packaged_configs import find_config
from keras_xmr.experiments.config.schema import Config
from keras_xmr.metrics import chance_from_counts
from keras_xmr.metrics.bootstrap import Estimate, Seeds, mean_of_runs, resampled_means

RESULTS = Path(__file__).parent / "results" / "flickr8k_methods.jsonl"
SHORTEST_FIRST = "shortest_first"
NO_MODEL = ("chance", SHORTEST_FIRST)
WITHOUT_SEEDS = (*NO_MODEL, "cca", "cca_csls", "cca_reranked")
JUDGED = ("r_precision", "map_at_r")
PEOPLE = ("crowd", "experts")
SIDES = {"i2t": "image_to_text", "t2i": "text_to_image"}
RECALLS = tuple(f"{side} R@{k}" for side in SIDES for k in (1, 5, 10))
BASELINES = {
    "cca": "CCA",
    "dual_encoder": "linear InfoNCE",
    "sum": "CCA + linear InfoNCE",
}
"""Every method is compared with those that have its own correction for hubs."""
_LABELS = {
    "chance": "chance",
    SHORTEST_FIRST: "captions ordered by length (ignores the image)",
} | {
    name + end: title + suffix
    for name, title in BASELINES.items()
    for end, suffix in (("", ""), ("_csls", ", CSLS"), ("_reranked", ", re-ranked"))
}

ANNOTATED = {"R@1": (1,), "R@5": (5,), "R@10": (10,), "RSUM": (1, 5, 10)}
HIDDEN = (*RECALLS, "published", "val", "deviation", "experts", "CPU", "to CCA")
"""Columns that are in the CSV file alone begin so."""
BY_PEOPLE = {
    (people, metric): f"{title}, by the {people}"
    for people in ("crowd", "experts")
    for metric, title in (("map_at_r", "mAP@R"), ("r_precision", "R-Precision"))
}
DRAWS = 1000
OWN_VARIANCE = 3
"""Seeds from which on a method has its own variance over them."""

# What a part of a method is worth: the part, the method with it, and without.
PARTS = (
    ("PCME: match probability of samples, not cosines of means", "pcme", "mean_only"),
    ("PCME++: its loss of sampled distances, not InfoNCE of cosines", "pcmepp", "info_nce"),
    ("PCME++: CSLS", "pcmepp_csls", "pcmepp"),
    ("InfoNCE: CSLS", "csv_pretrained", "info_nce"),
    ("PCME++: its loss, not InfoNCE, both with CSLS", "pcmepp_csls", "csv_pretrained"),
    ("InfoNCE: both encoders trained, not frozen, both with CSLS", "trained", "csv_pretrained"),
    ("PCME++: its text encoder freed at the end", "pcmepp_unfrozen", "pcmepp"),
    ("The same, with CSLS", "unfrozen", "pcmepp_csls"),
    ("MSRM: CSLS", "msrm, CSLS", "msrm"),
    ("MSRM: distribution loss", "msrm", "msrm_no_distribution"),
    ("MSRM: hypergraph loss", "msrm", "msrm_no_hypergraph"),
    ("MSRM: hypergraph loss in residual form", "msrm", "msrm_literal"),
    ("DAA: its loss added to the loss of PCME", "daa", "pcme"),
    ("DAA: its loss added to the loss of SAF", "saf_daa", "saf"),
    ("PVSE: its heads and losses, not InfoNCE of averages", "pvse", "info_nce_local"),
    ("PVSE: two embeddings, not one", "pvse", "pvse_k1"),
    ("DVSE: its head and losses, not InfoNCE of averages", "dvse", "info_nce_local"),
    ("DVSE: six sub-embeddings, not one", "dvse", "dvse_k1"),
    ("DVSE: dynamic orthogonal loss", "dvse", "dvse_no_orthogonality"),
    ("DVSE: dynamic mask", "dvse", "dvse_no_mask"),
    ("DVSE: variance-aware weights", "dvse", "dvse_no_variance"),
    ("DiVE: its heads and losses, not InfoNCE of averages", "dive", "info_nce_local"),
    ("DiVE: two slots, not one", "dive", "dive_k1"),
    ("SAF: its matcher and loss, not InfoNCE of averages", "saf", "info_nce_local"),
    ("SAF: its matcher, not averages trained alike", "saf", "saf_average"),
    ("SGR: its matcher and loss, not InfoNCE of averages", "sgr", "info_nce_local"),
    ("VSRN: its graph of places, not InfoNCE of averages", "vsrn_info_nce", "info_nce_local"),
    ("VSRN: its graph, not averages trained alike", "vsrn_info_nce", "vsrn_info_nce_average"),
    ("VSRN: Smooth-AP, not InfoNCE", "vsrn_smooth_ap", "vsrn_info_nce"),
    ("VSRN: the hardest negative, not all", "vsrn_hardest", "vsrn_triplet"),
    ("Hardest negative, not all", "vsepp", "vse0"),
    ("Sum of baselines: fast re-ranking, not CSLS", "sum_reranked", "sum_csls"),
    ("Smooth-AP, not the hardest negative", "smooth_ap", "vsepp"),
    ("InfoNCE, not the hardest negative", "info_nce", "vsepp"),
)


def recalls(found: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """R@1, R@5, R@10 of images and then of captions, in percent, (6,)."""
    return np.array([100 * np.mean(side <= k) for side in found for k in (1, 5, 10)])


def rsum_by_photo(line: Mapping[str, Any]) -> np.ndarray:
    """What each photo, with its captions, adds to RSUM, in percent times their number, (N,)."""
    i2t, t2i = (sum(np.array(side) <= k for k in (1, 5, 10)) for side in line["ranks"])
    photos, captions = len(i2t), len(t2i)
    owner = np.arange(captions) * photos // captions
    own = np.bincount(owner, np.asarray(t2i, float), minlength=photos)
    return np.asarray(100 * (i2t + own * photos / captions))


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
        config, *correction = self.name.removeprefix("csv_pretrained_").split(", ")
        return _LABELS.get(self.name, ", ".join([f"`{config}`", *correction]))

    @cached_property
    def config(self) -> Config | None:
        """Its config; None of what has none."""
        name = self.name.split(", ")[0]
        return load_config(find_config(name)) if name.startswith("csv_pretrained") else None

    @property
    def correction(self) -> str:
        """Its correction for hubs, as the end of the names of the baselines that have it."""
        pooling = self.config and self.config.model.image.pooling
        if ", CSLS" in self.name or getattr(pooling, "local_scaling", 0):
            return "_csls"
        return next((end for end in ("_csls", "_reranked") if self.name.endswith(end)), "")

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
    return {m.name: Runs(*own, m.name not in WITHOUT_SEEDS) for m, *own in parts}


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
    """The first, minus the other one, over photos and seeds.

    Methods with three seeds and more have their own variance over seeds, others the pooled one.
    """
    both = [first] if other is None else [first, other]
    estimate = first.mean if other is None else first.mean - other.mean
    seeds = [own for runs in both if (own := _seeds_of(pooled, runs)) is not None]
    return Estimate(estimate.value, estimate.resampled, tuple(seeds))


def _seeds_of(pooled: Seeds | None, runs: Runs) -> Seeds | None:
    """The variance of the mean of some runs; None of what has no seeds, or if none is known."""
    count = len(runs.values)
    if not runs.random:
        return None
    if count >= OWN_VARIANCE:
        (seeds,) = mean_of_runs(runs.values, runs.resampled).seeds
        return replace(seeds, interaction=min(seeds.interaction, seeds.variance))
    if pooled is None:
        return None
    return Seeds(pooled.variance / count, pooled.interaction / count, pooled.freedom)


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


SHARED = "small or frozen towers and tuned rates"
"""The change from the papers that all rows share."""


def adaptations(fidelity: str | Mapping[str, str | None] | None) -> str:
    """Returns what a config changes of its paper, but for what all rows share."""
    if not isinstance(fidelity, Mapping):
        return fidelity or ""
    own = {item: change for item, change in fidelity.items() if change != SHARED}
    return fidelity_text(own) if own else "loss and head as published"


def rows_of(methods: Sequence[Method]) -> Iterator[dict[str, str]]:
    """A row per method, of cells by the title of their column.

    Results of a part of the photos have no judgements of people, and then no columns of them.
    """
    rsum = rsum_of(methods)
    pooled = pooled_seeds(rsum.values())
    has_judged = all("judged" in line for method in methods for line in method.lines)
    judged = {
        (people, side): r_precision_of(methods, people, side)
        for people in (PEOPLE if has_judged else ())
        for side in SIDES
    }
    pooled_of = {which: pooled_seeds(runs.values()) for which, runs in judged.items()}
    for method in methods:
        name, end = method.name, method.correction
        adapted = adaptations(method.config.fidelity) if method.config else ""
        row = {"method": method.label, "published or adapted": adapted}
        expected = method.lines[0].get("expected")
        means = _chance_recalls(method) if expected else method.recalls.mean(axis=0)
        row |= dict(zip(RECALLS, (f"{v:.1f}" for v in means), strict=False))
        row["RSUM"] = f"{means[-1]:.1f}" if expected else _cell(apart(pooled, rsum[name]))
        others = [] if expected else [o for o in BASELINES if o + end in rsum and o + end != name]
        for other in others:
            found = apart(pooled, rsum[name], rsum[other + end])
            row[f"to {BASELINES[other]}"] = _cell(found, "+")
        for (people, side), runs in judged.items():
            mean = 100 * expected[people][side] if expected else runs[name].mean.value
            row[f"{people} {side} R-P"] = f"{mean:.1f}"
            for other in others if people == "crowd" else ():
                found = apart(pooled_of[people, side], runs[name], runs[other + end])
                row[f"crowd {side} R-P to {BASELINES[other]}"] = _cell(found, "+")
        row["val RSUM"] = "" if method.val is None else f"{method.val:.1f}"
        deviation = method.recalls[:, -1].std(ddof=1) if len(method.lines) > 1 else None
        row["deviation over seeds"] = "" if deviation is None else f"{deviation:.1f}"
        row["CPU seconds"] = f"{np.median([line['processor_s'] for line in method.lines]):.0f}"
        row["seeds"] = "" if expected else str(len(method.lines))
        yield row


def parts_of(methods: Sequence[Method]) -> Iterator[dict[str, str]]:
    """A row per part of a method that was measured with and without it."""
    rsum = rsum_of(methods)
    pooled = pooled_seeds(rsum.values())
    for part, *names in PARTS:
        pair = [rsum.get(config_name(name)) for name in names]
        if None in pair:
            continue
        with_it, without = pair
        found = apart(pooled, with_it, without)
        yield {
            "part": part,
            "with": f"{with_it.mean.value:.1f}",
            "without": f"{without.mean.value:.1f}",
            "difference of RSUM": _cell(found, "+"),
            "visible from": f"{found.smallest_effect():.1f}",
            "seeds": f"{len(with_it.values)} and {len(without.values)}",
        }


def config_name(name: str) -> str:
    """The config of a method by its name in tables."""
    return name if name in ("csv_pretrained", *_LABELS) else f"csv_pretrained_{name}"


def print_columns(rows: Sequence[Mapping[str, str]]) -> None:
    """Prints some columns of `rows_of` or `parts_of` in Markdown; `write_csv` has all."""
    shown = [c for c in _columns(rows) if not c.startswith(HIDDEN) and "R-P to" not in c]
    print_table(shown, [[row.get(column, "") for column in shown] for row in rows])


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
    return np.array([*(100 * summary[name] for name in names), summary["rsum"]])


def ranking_of(methods: Sequence[Method], draws: int = DRAWS) -> list[tuple[str, list[str]]]:
    """A row per annotated metric, and one for the two halves of the photos."""
    annotated = {name: _annotated(methods, ks) for name, ks in ANNOTATED.items()}
    judged = [_judged(methods, people, metric) for people, metric in BY_PEOPLE]
    photos = annotated["RSUM"].shape[2]
    random = np.random.default_rng(0)
    drawn = random.integers(0, photos, (draws, photos))
    weights = np.stack([np.bincount(row, minlength=photos) for row in drawn])
    truths = [_with_draws(values, weights) for values in judged]
    rows = [
        (name, [_tau_cell(_with_draws(values, weights), truth) for truth in truths])
        for name, values in annotated.items()
    ]
    halves = np.stack([random.permutation(photos) < photos // 2 for _ in range(draws)])
    reached = []
    for truth in judged:
        taus = tau(_means(truth, halves), _means(truth, ~halves))
        low, high = np.quantile(taus, [0.025, 0.975])
        reached.append(f"{np.mean(taus):.2f} [{low:.2f}, {high:.2f}]")
    return [*rows, ("two halves of the photos", reached)]


def _with_draws(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The means of all photos in the first row, and of weighed ones, (1 + draws, methods)."""
    return _means(values, np.concatenate([np.ones((1, weights.shape[1])), weights]))


def _tau_cell(values: np.ndarray, truth: np.ndarray) -> str:
    first, *drawn = tau(values, truth)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return f"{first:.2f} [{low:.2f}, {high:.2f}]"


def tau(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Kendall's tau-b of the last axis; NaN where one side has one value.

    One order on the left is compared with many on the right.
    """
    left = np.expand_dims(left, tuple(range(right.ndim - left.ndim)))
    # Orders that are compared stand in memory beside each other: a quarter of the time.
    sides = [np.ascontiguousarray(np.moveaxis(side, -1, 0)) for side in (left, right)]
    agree, differ = np.zeros(right.shape[:-1]), [np.zeros(right.shape[:-1]) for _ in sides]
    for step in range(1, right.shape[-1]):
        signs = [np.sign(side[step:] - side[:-step]) for side in sides]
        agree += (signs[0] * signs[1]).sum(axis=0)
        for count, sign in zip(differ, signs, strict=True):
            count += np.square(sign).sum(axis=0)
    pairs = np.sqrt(differ[0] * differ[1])
    return np.divide(agree, pairs, out=np.full_like(pairs, np.nan), where=pairs > 0)


def _means(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The mean over weighed photos of each method, averaged over directions, (draws, methods).

    Args:
        values: Sums and numbers of queries per photo (2, methods, photos, directions).
        weights: How often each photo counts in a draw, (draws, photos).
    """
    sums, counts = np.moveaxis(
        np.asarray(weights, np.float64) @ values.swapaxes(-1, -2).reshape(-1, values.shape[2]).T,
        -1,
        0,
    ).reshape(*values.shape[:2], values.shape[3], -1)
    return (sums / counts).mean(axis=1).T


def _annotated(methods: Sequence[Method], ks: Sequence[int]) -> np.ndarray:
    """Sums and numbers of queries per photo (2, methods, photos, directions) of some recalls."""
    return _per_photo(
        [
            [
                [sum(np.array(ranks) <= k for k in ks).astype(float) for ranks in line["ranks"]]
                for line in method.lines
            ]
            for method in methods
        ]
    )


def _judged(methods: Sequence[Method], people: str, metric: str) -> np.ndarray:
    """The same of a judged metric; queries without a relevant item do not count."""
    return _per_photo(
        [
            [[judged_values(line, people, metric, side) for side in SIDES] for line in method.lines]
            for method in methods
        ]
    )


def _per_photo(values: Sequence[Sequence[Sequence[np.ndarray]]]) -> np.ndarray:
    """Sums and numbers per photo of values (methods, runs, directions, queries)."""
    found = []
    for runs in values:
        photos = len(runs[0][0])
        sides = [np.mean([run[side] for run in runs], axis=0) for side in range(2)]
        sums = [np.nan_to_num(side).reshape(photos, -1).sum(axis=1) for side in sides]
        counts = [(~np.isnan(side)).reshape(photos, -1).sum(axis=1) for side in sides]
        found.append([np.stack(sums, axis=1), np.stack(counts, axis=1)])
    return np.stack(found, axis=1)


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints which annotated metric ranks methods as people do, in Markdown."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    methods = [m for m in methods_of(read_lines(options.results)) if m.name not in NO_MODEL]
    if len(methods) < 3:
        parser.error("an order needs three methods; run studies/flickr8k_methods.py")
    rows = [[title, *cells] for title, cells in ranking_of(methods)]
    print_table(["annotated metric", *BY_PEOPLE.values()], rows)
    print(f"{len(methods)} methods: {', '.join(method.name for method in methods)}")


if __name__ == "__main__":
    main()
