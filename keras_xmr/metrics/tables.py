"""Tables of metrics, for the terminal and for HTML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from data_pipelines.tables import table
from keras_xmr.metrics.breakdown import SHOWN, by_positives
from keras_xmr.metrics.chance import chance
from keras_xmr.metrics.measure import Measured
from keras_xmr.metrics.retrieval import RetrievalMetrics

_MAIN = {
    "recall_1": "R@1",
    "recall_5": "R@5",
    "recall_10": "R@10",
    "r_precision": "R-P",
    "map_at_r": "mAP@R",
    "median_rank": "med r",
    "mean_rank": "mean r",
}
_MANY = {
    "found_5": "found@5",
    "found_10": "found@10",
    "pmrp": "PMRP",
    "asp": "ASP",
    "asp_tf_idf": "ASP\n(TF-IDF)",
}
CHANCE = "chance"
"""The row of what a random ranking has."""

_NAMES = {"truth": "exhaustive truth", "eccv_caption": "ECCV Caption", "cxc": "CxC"}


@dataclass(frozen=True)
class Table:
    """A table with a title: a header, and rows of as many cells."""

    title: str
    header: list[str]
    rows: list[list[str]]

    def __str__(self) -> str:
        return f"{self.title}\n\n{table(self.header, self.rows)}"


def judgements_title(name: str) -> str:
    """What judgements of this name are called in titles."""
    return _NAMES.get(name, name)


def reranked_title(title: str, reranker: str) -> str:
    """The title of tables of re-ranked scores: it says that they are."""
    return f"{title}: re-ranked by {reranker}, all queries at once (transductive)"


def measured_tables(title: str, measured: Mapping[str, Measured], first: str) -> list[Table]:
    """Tables of all that was measured of some score matrices.

    Recalls, precisions and RSUM are in percent; ranks and found@K are counts.

    Args:
        title: What was measured on.
        measured: What was measured, by the name of the matrix.
        first: Title of the first column.
    """
    plain = {name: m.metrics for name, m in measured.items()}
    tables = _tables(f"{title}, annotated answers", plain, first)
    if folds := {name: m.folds for name, m in measured.items() if m.folds}:
        fold_title = f"{title}, mean over folds, annotated answers"
        tables.insert(1, _table(fold_title, folds, _MAIN, first))
        tables.insert(2, _table(f"{fold_title}: many right answers", folds, _many(folds), first))
    for kind in next(iter(measured.values())).further:
        further = {name: m.further[kind] for name, m in measured.items()}
        tables += _tables(f"{title}, {judgements_title(kind)}", further, first)
    return tables


def _tables(title: str, metrics: Mapping[str, RetrievalMetrics], first: str) -> list[Table]:
    summaries = {name: m.summary for name, m in metrics.items()}
    summaries[CHANCE] = chance(next(iter(metrics.values())))
    tables = [_table(title, summaries, _MAIN, first)]
    tables.append(_table(f"{title}: many right answers", summaries, _many(summaries), first))
    del summaries[CHANCE]
    if curve := _curve(set().union(*summaries.values())):
        tables.append(_curve_table(f"{title}: ASP of the first N by relevance", summaries, curve))
    name, best = next(iter(metrics.items()))
    if breakdown := _breakdown(f"{title}, by number of right answers: {name}", best):
        tables.append(breakdown)
    return tables


def _table(
    title: str,
    summaries: Mapping[str, Mapping[str, float]],
    labels: Mapping[str, str],
    first: str,
) -> Table:
    header = [first]
    for direction in ("i2t", "t2i"):
        header += [f"{direction}\n{label}" for label in labels.values()]
    rows = [
        [name]
        + [cell(key, found.get(f"{side}_{key}")) for side in ("i2t", "t2i") for key in labels]
        for name, found in summaries.items()
    ]
    if labels is _MAIN:
        header.append("RSUM")
        for row, found in zip(rows, summaries.values(), strict=True):
            row.append(f"{100 * found['rsum']:.1f}")
    return Table(title, header, rows)


def _many(summaries: Mapping[str, Mapping[str, float]]) -> dict[str, str]:
    """Keys and titles of what was measured for many right answers."""
    known = set().union(*summaries.values())
    return {name: title for name, title in _MANY.items() if {f"i2t_{name}", f"t2i_{name}"} & known}


def _curve(known: set[str]) -> dict[str, str]:
    """Keys and titles of the curve of ASP, then of the released code's ASP."""
    names = {name.partition("_")[2] for name in known}
    top = sorted(int(n.removeprefix("asp_top_")) for n in names if n.startswith("asp_top_"))
    released = sorted(
        int(n.removeprefix("released_asp_")) for n in names if n.startswith("released_asp_")
    )
    return {f"asp_top_{n}": f"N = {n}" for n in top} | {
        f"released_asp_{k}": f"released\nASP@{k}" for k in released
    }


def _curve_table(
    title: str, summaries: Mapping[str, Mapping[str, float]], curve: Mapping[str, str]
) -> Table:
    """Both directions under each other: there are many columns."""
    rows = [
        [f"{name} {side}", *(cell(key, found.get(f"{side}_{key}")) for key in curve)]
        for name, found in summaries.items()
        for side in ("i2t", "t2i")
    ]
    return Table(title, ["", *curve.values()], rows)


def _breakdown(title: str, metrics: RetrievalMetrics) -> Table | None:
    """Recalls by the number of right answers; None where every query has about as many."""
    sides = {
        side: by_positives(queries)
        for side, queries in (("i2t", metrics.image_to_text), ("t2i", metrics.text_to_image))
    }
    if max(map(len, sides.values())) < 2:
        return None
    rows = []
    for side, bins in sides.items():
        for part in bins:
            answers = f"{part.least} to {part.most}" if part.least < part.most else str(part.most)
            cells = [cell(name, part.means[name]) for name in SHOWN]
            rows.append([side, answers, f"{part.queries:,}", *cells])
    titles = [(_MAIN | _MANY)[name] for name in SHOWN]
    return Table(title, ["", "right answers", "queries", *titles], rows)


def cell(metric: str, value: float | None) -> str:
    """A figure of one direction as it stands in tables: in percent, if it is a fraction."""
    if value is None:
        return "-"
    if metric.endswith("_rank"):
        return f"{value:.1f}"
    return f"{value:.2f}" if metric.startswith("found") else f"{100 * value:.1f}"


def metric_title(name: str) -> str:
    """The title of a column of a metric such as `i2t_recall_1`."""
    if name == "rsum":
        return "RSUM"
    side, _, metric = name.partition("_")
    return f"{side}\n{(_MAIN | _MANY).get(metric, metric)}"
