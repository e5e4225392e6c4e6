"""Differences of methods, and the queries with the largest ones."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from keras_xmr.comparison.resampling import HEADLINES, Resampled, compare_estimates, most_judged
from keras_xmr.comparison.results import Methods
from keras_xmr.comparison.summary_tables import kind_title
from keras_xmr.metrics.bootstrap import Difference
from keras_xmr.reporting.table import Table

ALPHA = 0.05

_WINS = 10


@dataclass(frozen=True)
class Pair:
    """The difference of two methods in one metric.

    Attributes:
        judgements: The kind of judgements.
        metric: The metric, such as `i2t_recall_1`.
        left: A method.
        right: Another one.
        difference: left - right, over queries and runs.
        p_holm: Its p-value, corrected for all pairs of methods in this metric (Holm).
        smallest_effect: The smallest difference that this test, uncorrected, detects with a power
            of 0.8.
    """

    judgements: str
    metric: str
    left: str
    right: str
    difference: Difference
    p_holm: float
    smallest_effect: float

    @property
    def is_real(self) -> bool:
        """True if the difference is significant."""
        return self.p_holm < ALPHA


@dataclass(frozen=True)
class Win:
    """A query that one method answers better than another.

    Attributes:
        direction: "i2t" or "t2i".
        winner: The method that answers it better.
        loser: The other one.
        query: Id of the image or caption.
        text: The caption; empty for images, or if it is not known.
        ranks: The harmonic means over runs of the rank of the first relevant item: the winner's
            and the loser's.
    """

    direction: str
    winner: str
    loser: str
    query: str
    text: str
    ranks: tuple[float, float]


def compare_pairs(compared: Sequence[Resampled]) -> list[Pair]:
    """Tests all pairs of methods by paired bootstrap, in all metrics against all judgements.

    Args:
        compared: The metrics of the methods over resamples, per kind of judgements.
    """
    tested = [(of_kind, metric) for of_kind in compared for metric in of_kind.estimates]
    return [pair for each in tested for pair in _test(*each)]


def _test(compared: Resampled, metric: str) -> Iterator[Pair]:
    names, kind = compared.methods, compared.judgements
    estimates = compared.estimates[metric]
    numbers = list(itertools.combinations(range(len(names)), 2))
    tested = compare_estimates([estimates[i] - estimates[j] for i, j in numbers])
    for (i, j), test in zip(numbers, tested, strict=True):
        yield Pair(kind, metric, names[i], names[j], *test)


def wins(methods: Methods, count: int = _WINS) -> list[Win]:
    """For each ordered pair of methods, the queries where the first is most ahead of the second.

    Ahead means a larger reciprocal rank of the first relevant item (by `most_judged`), averaged
    over runs; only queries where it is ahead are listed.

    Args:
        methods: The runs of each method.
        count: Number of queries that are listed per direction.
    """
    first = next(iter(methods.values()))[0].queries
    judgements = most_judged(methods)
    listed = []
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
                    listed.append(Win(side, winner, loser, str(ids[query]), text, ranks))
    return listed


def group_by_pair(wins: Sequence[Win]) -> dict[tuple[str, str], list[Win]]:
    """The wins of each winner over each loser; empty without any."""
    groups: dict[tuple[str, str], list[Win]] = defaultdict(list)
    for win in wins:
        groups[win.winner, win.loser].append(win)
    return groups


def matrix_tables(pairs: list[Pair], split: str) -> list[Table]:
    """A table per headline metric and kind of judgements: row minus column; * is significant."""
    tables = []
    for judgements in dict.fromkeys(pair.judgements for pair in pairs):
        for metric, label in HEADLINES.items():
            chosen = [p for p in pairs if (p.judgements, p.metric) == (judgements, metric)]
            if chosen:
                title = f"{split}, {kind_title(judgements)}: differences in {label}"
                tables.append(_matrix(chosen, title))
    return tables


def signed(value: float, digits: int = 1) -> str:
    """A difference with its sign; one that is rounded to 0 has none."""
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
