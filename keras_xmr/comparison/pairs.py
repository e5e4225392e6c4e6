"""Which methods differ, and on which queries."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from keras_xmr.comparison.results import Methods, Queries, RunResult
from keras_xmr.comparison.summary_tables import ANNOTATED, kind_title
from keras_xmr.metrics import DIRECTIONS, METRICS, RSUM, Table, metric_title
from keras_xmr.metrics.bootstrap import RESAMPLES, Difference, difference, holm, resampled_means

ALPHA = 0.05

_COMPARED = [metric for metric in METRICS.values() if metric.compared]
HEADLINES = {RSUM: metric_title(RSUM)} | {
    f"{side}_{metric.name}": f"{side} {metric.title}"
    for metric in _COMPARED
    if metric.compared == "headline"
    for side in DIRECTIONS
}
"""The metrics whose differences are shown on the page; the others are in the CSV file."""

_WINS = 10


@dataclass(frozen=True)
class Pair:
    """How two methods differ in one metric.

    Attributes:
        judgements: The kind of judgements.
        metric: The metric, such as `i2t_recall_1`.
        left: A method.
        right: Another one.
        difference: left - right, over queries.
        p_holm: Its p-value, corrected for all pairs of methods in this metric (Holm).
    """

    judgements: str
    metric: str
    left: str
    right: str
    difference: Difference
    p_holm: float

    @property
    def is_real(self) -> bool:
        """Whether the queries tell the methods apart."""
        return self.p_holm < ALPHA


@dataclass(frozen=True)
class Win:
    """A query that one method answers better than another.

    Attributes:
        direction: "i2t" or "t2i".
        winner: The method that answers it better.
        loser: The other one.
        query: Id of the image or caption.
        text: The caption; empty for images, or where it is not known.
        ranks: The harmonic means over runs of the rank of the first right answer: the winner's
            and the loser's.
    """

    direction: str
    winner: str
    loser: str
    query: str
    text: str
    ranks: tuple[float, float]


def resamples_for(methods: int) -> int:
    """How many resamples tell pairs of so many methods apart.

    Holm multiplies the smallest p-value, 2 / (resamples + 1), by the number of pairs.
    """
    return max(RESAMPLES, 100 * methods * (methods - 1) // 2)


def compare_pairs(methods: Methods, seed: int = 0) -> list[Pair]:
    """Tests all pairs of methods by paired bootstrap, in all metrics against all judgements.

    The value of a query is its mean over the runs of a method, with the method's own matcher.
    Images are resampled, and their captions with them, so both directions and RSUM come from the
    same resamples. (Where it is not known which image a caption was written for, captions are
    resampled on their own.) It tells what these runs do on other queries; what other seeds do,
    the deviations tell.

    Args:
        methods: The runs of each method.
        seed: Seed of the resamples.
    """
    found: list[Pair] = []
    resamples = resamples_for(len(methods))
    first = next(iter(methods.values()))[0].queries
    for judgements in _common_kinds(methods):
        observed, resampled = _means(methods, judgements, first, resamples, seed)
        for metric, own in observed.items():
            found += _test(list(methods), judgements, metric, own, resampled[metric])
    return found


def _test(
    names: list[str], judgements: str, metric: str, observed: np.ndarray, resampled: np.ndarray
) -> Iterator[Pair]:
    numbers = list(itertools.combinations(range(len(names)), 2))
    apart = [
        difference(float(observed[i] - observed[j]), resampled[:, i] - resampled[:, j])
        for i, j in numbers
    ]
    corrected = holm([d.p_value for d in apart])
    for (i, j), d, p_holm in zip(numbers, apart, corrected, strict=True):
        yield Pair(judgements, metric, names[i], names[j], d, float(p_holm))


def _means(
    methods: Methods, judgements: str, first: Queries, resamples: int, seed: int
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """By metric: the means over queries (methods,), and over resamples (resamples, methods)."""
    observed: dict[str, np.ndarray] = {}
    resampled: dict[str, np.ndarray] = {}
    tested = [name for metric in _COMPARED for name in metric.mean_of or (metric.name,)]
    for side in DIRECTIONS:
        found = {name: _per_query(methods, judgements, f"{side}_{name}") for name in tested}
        values = {n: own for n, own in found.items() if not np.isnan(own).all()}
        flat = np.concatenate(list(values.values()), axis=1)
        means = resampled_means(flat, resamples=resamples, **_draws(first, side, seed))
        parts = np.split(means, len(values), axis=1)
        for (name, own), part in zip(values.items(), parts, strict=True):
            observed[f"{side}_{name}"] = np.nanmean(own, axis=0)
            resampled[f"{side}_{name}"] = part
    for whole in (observed, resampled):
        recalls = [whole[name] for name in whole if "_recall_" in name]
        whole[RSUM] = np.sum(recalls, axis=0)
        for side, metric in itertools.product(DIRECTIONS, _COMPARED):
            names = [f"{side}_{name}" for name in metric.mean_of]
            if known := [whole.pop(name) for name in names if name in whole]:
                whole[f"{side}_{metric.name}"] = np.mean(known, axis=0)
    return observed, resampled


def _draws(first: Queries, side: str, seed: int) -> dict[str, Any]:
    """How `resampled_means` draws the queries of a side: captions together with their images."""
    if side == "i2t":
        return {"seed": seed}
    if first.caption_image is None:
        return {"seed": seed + 1}
    images = len(first.image_ids)
    return {"groups": first.caption_image, "num_groups": images, "seed": seed}


def _per_query(methods: Methods, judgements: str, metric: str) -> np.ndarray:
    """Means over runs (queries, methods), float64; NaN where any method has no value."""
    first = next(iter(methods.values()))[0].queries
    count = len(first.image_ids if metric.startswith("i2t") else first.caption_ids)
    nothing = np.full(count, np.nan)

    def mean(runs: Sequence[RunResult]) -> np.ndarray:
        found = [run.queries.values[judgements].get(metric, nothing) for run in runs]
        return np.stack(found).mean(axis=0, dtype=np.float64)

    values = np.stack([mean(runs) for runs in methods.values()], axis=1)
    values[np.isnan(values).any(axis=1)] = np.nan
    return values


def _common_kinds(methods: Methods) -> list[str]:
    """The kinds of judgements that all runs were measured against."""
    runs = [run.queries.values for own in methods.values() for run in own]
    return [kind for kind in runs[0] if all(kind in values for values in runs)]


def most_judged(methods: Methods) -> str:
    """The kind of judgements that knows most: the exhaustive truth, if there is one."""
    return "truth" if "truth" in _common_kinds(methods) else ANNOTATED


def wins(methods: Methods, count: int = _WINS) -> list[Win]:
    """For each ordered pair of methods, the queries where the first is most ahead of the second.

    Ahead means a larger reciprocal rank of the first right answer (of those that `most_judged`
    knows), averaged over runs; only queries where it is ahead are listed.

    Args:
        methods: The runs of each method.
        count: How many queries are listed in each direction.
    """
    first = next(iter(methods.values()))[0].queries
    judgements = most_judged(methods)
    found = []
    for side, ids in (("i2t", first.image_ids), ("t2i", first.caption_ids)):
        texts = first.captions if side == "t2i" else None
        reciprocal = [
            np.mean([1 / run.queries.values[judgements][f"{side}_rank"] for run in runs], axis=0)
            for runs in methods.values()
        ]
        for (i, winner), (j, loser) in itertools.permutations(enumerate(methods), 2):
            ahead = np.nan_to_num(reciprocal[i] - reciprocal[j])
            for query in np.argsort(-ahead, kind="stable")[:count]:
                if ahead[query] > 0:
                    text = "" if texts is None else str(texts[query])
                    ranks = (float(1 / reciprocal[i][query]), float(1 / reciprocal[j][query]))
                    found.append(Win(side, winner, loser, str(ids[query]), text, ranks))
    return found


def matrix_tables(pairs: list[Pair], split: str) -> list[Table]:
    """For each of the headline metrics and judgements: row minus column; * marks what is real."""
    tables = []
    for judgements in dict.fromkeys(pair.judgements for pair in pairs):
        for metric, label in HEADLINES.items():
            own = [p for p in pairs if (p.judgements, p.metric) == (judgements, metric)]
            if own:
                title = f"{split}, {kind_title(judgements)}: differences in {label}"
                tables.append(_matrix(own, title))
    return tables


def signed(value: float, digits: int = 1) -> str:
    """A difference with its sign; what is rounded to 0 has none."""
    text = f"{value:+.{digits}f}"
    return text if float(text) else text[1:]


def _matrix(pairs: list[Pair], title: str) -> Table:
    names = list(dict.fromkeys(name for pair in pairs for name in (pair.left, pair.right)))
    cells = {}
    for pair in pairs:
        star = "*" if pair.is_real else " "
        value = 100 * pair.difference.value
        cells[pair.left, pair.right] = f"{signed(value)}{star}"
        cells[pair.right, pair.left] = f"{signed(-value)}{star}"
    rows = [
        [f"{number} {name}", *(cells.get((name, other), "") for other in names)]
        for number, name in enumerate(names, 1)
    ]
    return Table(title, ["row minus column", *map(str, range(1, len(names) + 1))], rows)
