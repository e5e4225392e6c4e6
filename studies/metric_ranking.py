"""Which annotated metric ranks methods as people do, over the runs of studies/flickr8k_methods.py.

Kendall's tau-b between the order of methods by an annotated metric and that by what the crowd or
the experts judged, both means of the two directions. In brackets is the range of 95 % of resampled
test photos, each with its captions, on which both sides are measured anew. It is no confidence
interval: resamples add noise to both orders (docs/explanation/statistics.md). The last rows say
what can be reached: the order by people on one half of the photos against that on the other half.

`--labels` says how many judgements replace the annotated pairs: the methods are ordered by the
judgements of as many captions as so many labels pay for, with all photos judged for each of them,
and by the annotated pairs alone (0 labels). The reference is the order by people on the captions of
the other half of the photos.

Two rows are of captions as queries alone: nDCG@10 of photos as queries needs the ranks of all five
captions, of which the runs keep the best.

    python studies/metric_ranking.py
    python studies/metric_ranking.py --labels
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from methods_table import (
    NO_MODEL,
    RESULTS,
    SIDES,
    Method,
    judged_values,
    methods_of,
    read_lines,
)

ANNOTATED = {"R@1": (1,), "R@5": (5,), "R@10": (10,), "RSUM": (1, 5, 10)}
JUDGED = {
    (people, metric): f"{title}, by the {people}"
    for people in ("crowd", "experts")
    for metric, title in (("map_at_r", "mAP@R"), ("r_precision", "R-Precision"))
}
DRAWS = 1000
LABELS = (0, 100, 1_000, 10_000, 20_000)
PER_CAPTION = 47_830 / 1_000
"""Labels that the crowd gave per caption: 47,830 pairs of 1,000 captions."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a table in Markdown."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--labels", action="store_true", help="how many labels are needed")
    options = parser.parse_args(arguments)
    methods = [m for m in methods_of(read_lines(options.results)) if m.name not in NO_MODEL]
    if len(methods) < 3:
        parser.error("an order needs three methods; run studies/flickr8k_methods.py")
    if options.labels:
        print_labels(methods)
        return
    print(f"| annotated metric | {' | '.join(JUDGED.values())} |")
    print(f"| --- |{' ---: |' * len(JUDGED)}")
    for title, cells in rows_of(methods):
        print(f"| {title} | {' | '.join(cells)} |")
    print(f"\n{len(methods)} methods: {', '.join(method.name for method in methods)}")


def rows_of(methods: Sequence[Method], draws: int = DRAWS) -> list[tuple[str, list[str]]]:
    """A row per annotated metric, and one for the two halves of the photos."""
    annotated = {name: _annotated(methods, ks) for name, ks in ANNOTATED.items()}
    judged = [_judged(methods, people, metric) for people, metric in JUDGED]
    photos = annotated["RSUM"].shape[2]
    random = np.random.default_rng(0)
    drawn = random.integers(0, photos, (draws, photos))
    weights = np.stack([np.bincount(row, minlength=photos) for row in drawn])
    truths = [_with_draws(values, weights) for values in judged]
    rows = [
        (name, [_cell(_with_draws(values, weights), truth) for truth in truths])
        for name, values in annotated.items()
    ]
    # A caption has one photo, so its rank is all that nDCG reads.
    gains = _per_photo([[_gains(line["ranks"]) for line in m.lines] for m in methods])
    truths = [_with_draws(values[..., 1:], weights) for values in judged]
    for name, values in (("R@10", annotated["R@10"]), ("nDCG@10", gains)):
        own = _with_draws(values[..., 1:], weights)
        rows.append((f"{name}, captions as queries", [_cell(own, truth) for truth in truths]))
    halves = np.stack([random.permutation(photos) < photos // 2 for _ in range(draws)])
    reached = []
    for truth in judged:
        taus = tau(_means(truth, halves), _means(truth, ~halves))
        low, high = np.quantile(taus, [0.025, 0.975])
        reached.append(f"{np.mean(taus):.2f} [{low:.2f}, {high:.2f}]")
    return [*rows, ("two halves of the photos", reached)]


def print_labels(methods: Sequence[Method]) -> None:
    """Prints a table in Markdown."""
    print("| labels of people | captions | tau | 95 % of draws |\n| ---: | ---: | ---: | ---: |")
    for labels, captions, taus in taus_of_labels(methods):
        low, high = np.quantile(taus, [0.025, 0.975])
        print(f"| {labels:,} | {captions} | {np.mean(taus):.2f} | {low:.2f} to {high:.2f} |")


def taus_of_labels(
    methods: Sequence[Method], draws: int = DRAWS
) -> list[tuple[int, int, np.ndarray]]:
    """By number of labels the captions that they judge, and tau with the reference per draw."""
    judged = _judged(methods, "crowd", "map_at_r")[..., 1:]
    annotated = _annotated(methods, ANNOTATED["RSUM"])[..., 1:]
    random = np.random.default_rng(0)
    known = np.flatnonzero(judged[1, 0, :, 0] > 0)
    orders = [random.permutation(known) for _ in range(draws)]
    found = []
    for labels in LABELS:
        captions = round(labels / PER_CAPTION)
        bought, reference = (np.zeros((draws, judged.shape[2]), bool) for _ in range(2))
        for row, order in enumerate(orders):
            half = order[: len(known) // 2]
            bought[row, half[:captions] if labels else half] = True
            reference[row, order[len(known) // 2 :]] = True
        values = judged if labels else annotated
        taus = tau(_means(values, bought), _means(judged, reference))
        found.append((labels, captions, np.nan_to_num(taus)))
    return found


def _gains(ranks: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """nDCG@10 of queries with one relevant item, by its rank (Järvelin and Kekäläinen 2002)."""
    return [np.where(r <= 10, 1 / np.log2(1 + r), 0) for r in map(np.array, ranks)]


def _with_draws(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The means of all photos in the first row, and of weighed ones, (1 + draws, methods)."""
    return _means(values, np.concatenate([np.ones((1, weights.shape[1])), weights]))


def _cell(values: np.ndarray, truth: np.ndarray) -> str:
    first, *drawn = tau(values, truth)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return f"{first:.2f} [{low:.2f}, {high:.2f}]"


def tau(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Kendall's tau-b of the last axis; NaN where one side has one value."""
    one, other = np.triu_indices(left.shape[-1], 1)
    signs = [np.sign(side[..., one] - side[..., other]) for side in (left, right)]
    pairs = np.sqrt(np.prod([np.square(side).sum(axis=-1) for side in signs], axis=0))
    agree = (signs[0] * signs[1]).sum(axis=-1)
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


if __name__ == "__main__":
    main()
