"""Tables of metrics as filters of the long table of results, and definitions of the metrics."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from keras_xmr.metrics import METRICS
from keras_xmr.metrics.measure import SHOWN
from keras_xmr.metrics.names import RSUM, Metric, shown_value
from keras_xmr.metrics.results import (
    ALL,
    ANNOTATED,
    CHANCE,
    FOLDS,
    MODEL,
    Result,
    Results,
)
from keras_xmr.utils.directions import DIRECTIONS, SHORT, full_name
from keras_xmr.utils.tables import Table

CONDENSED = "condensed lists"
"""The addition to titles of figures without unjudged pairs."""

_NAMES = {
    ANNOTATED: "annotated pairs",
    "truth": "exhaustive truth",
    "eccv_caption": "ECCV Caption",
    "cxc": "CxC",
    "experts": "judged by experts",
    "crowd": "judged by the crowd",
    "crowd_pool": "judged by the crowd, unjudged pairs of its pool wrong",
    "ExpertAnnotations": "judged by experts",
    "CrowdFlowerAnnotations": "judged by the crowd",
}


def judgements_title(name: str, results: Iterable[Result] = ()) -> str:
    """Returns the title of judgements, which marks condensed lists.

    Args:
        name: The name.
        results: The results by them, if known.
    """
    title = _NAMES.get(name, name)
    # bpref is measured where some pairs were not judged.
    return f"{title}, {CONDENSED}" if any(row.metric == "bpref" for row in results) else title


def reranked_title(title: str, reranker: str) -> str:
    """Returns the title of tables of re-ranked scores."""
    return f"{title}: re-ranked by {reranker}, all queries at once (transductive)"


def label_of(row: Result) -> str:
    """Returns the label of the row of a table: the matcher, or a baseline."""
    return row.matcher or row.method


def column_title(row: Result) -> str:
    """Returns the title of a column, with its direction."""
    metric = METRICS.get(row.metric)
    title = metric.title if metric else row.title
    prefix = SHORT.get(row.direction, "")
    return f"{prefix}\n{title}" if prefix else title


Rows = Mapping[str, Mapping[str, Result]]
"""By the label of a row, its results by names such as `i2t_recall_1`."""


def pivot(results: Iterable[Result]) -> dict[str, dict[str, Result]]:
    """Arranges results of one kind of judgements and queries as rows of a table."""
    rows: dict[str, dict[str, Result]] = {}
    for row in results:
        rows.setdefault(label_of(row), {})[row.name] = row
    return rows


def measured_tables(title: str, results: Results) -> list[Table]:
    """Returns tables of all metrics by each kind of judgements.

    Recalls, precisions and RSUM are in percent; ranks and `relevant_K` are counts.

    Args:
        title: The split.
        results: Results of one split and of one re-ranker, or without one.
    """
    tables = []
    for judgements in results.select(method=MODEL).distinct("judgements"):
        chosen = results.select(judgements=judgements)
        of_kind = f"{title}, {judgements_title(judgements, chosen)}"
        tables += _main_tables(of_kind, chosen.select(queries=ALL))
        if folds := chosen.select(queries=FOLDS):
            tables += _main_tables(f"{title}, {FOLDS}, {judgements_title(judgements)}", folds)
        tables += _further_tables(of_kind, chosen)
    return tables


def _main_tables(title: str, results: Results) -> list[Table]:
    """Returns the tables of both directions, with RSUM in the first, and of many relevant items."""
    known = dict.fromkeys((row.direction, row.metric) for row in results)
    main, many = (
        [
            full_name(direction, metric)
            for direction in DIRECTIONS
            for metric in sorted((m for d, m in known if d == direction), key=_place)
            if _table_of(metric) == table
        ]
        for table in ("main", "many")
    )
    rows = pivot(results)
    return [
        metrics_table(title, rows, [*main, RSUM]),
        metrics_table(f"{title}: many relevant items", rows, many),
    ]


def _place(metric: str) -> int:
    """Returns the place of the column of a metric; metrics that a config adds are last."""
    return list(METRICS).index(metric) if metric in METRICS else len(METRICS)


def _table_of(metric: str) -> str | None:
    """Returns the table of a metric; a metric that a config adds is in the second one."""
    return METRICS[metric].table if metric in METRICS else "many"


def _further_tables(title: str, results: Results) -> list[Table]:
    """Returns the tables of curves, and of queries by their number of relevant items."""
    tables = []
    whole = [row for row in results.select(queries=ALL) if row.method != CHANCE]
    if curve := [row for row in whole if _table_of(row.metric) == "curve"]:
        # Both directions in one column of rows, since there are many columns.
        titles = {row.metric: METRICS[row.metric].title for row in curve}
        cells: dict[str, dict[str, Result]] = {}
        for row in curve:
            side = SHORT.get(row.direction, "")
            cells.setdefault(f"{label_of(row)} {side}", {})[row.metric] = row
        body = [[label, *result_cells(of_row, titles)] for label, of_row in cells.items()]
        name = f"{title}: ASP of the first N by relevance"
        tables.append(Table(name, ["", *titles.values()], body))
    first = label_of(whole[0])
    if breakdown := _breakdown(f"{title}, by number of relevant items: {first}", first, results):
        tables.append(breakdown)
    return tables


def metrics_table(title: str, rows: Rows, metrics: Sequence[str]) -> Table:
    """Returns a table with a column per metric, and the best cell of each in bold.

    Args:
        title: The title.
        rows: Results by label and metric.
        metrics: Names such as `i2t_recall_1`.
    """
    models = [cells for label, cells in rows.items() if label != CHANCE]
    columns = {name: cells[name] for name in metrics for cells in rows.values() if name in cells}
    best = {
        place: best_cell(row.unit, [model[name].value for model in models if name in model])
        for place, (name, row) in enumerate(columns.items(), 1)
    }
    body = [[label, *result_cells(cells, columns)] for label, cells in rows.items()]
    return Table(title, ["matcher", *map(column_title, columns.values())], body, best)


def result_cells(cells: Mapping[str, Result], metrics: Iterable[str]) -> list[str]:
    """Returns the cells of a row: the value of each metric, or a dash where it is missing."""
    return [shown_value(c.unit, c.value) if (c := cells.get(m)) else "-" for m in metrics]


def best_cell(unit: str, values: Sequence[float]) -> str | None:
    """Returns the best of some figures, as in tables; None if all are equal there.

    Args:
        unit: The unit.
        values: The figure of each row.
    """
    shown = {shown_value(unit, value): value for value in values}
    if len(shown) < 2:
        return None
    return (min if unit == "rank" else max)(shown, key=lambda text: shown[text])


def _breakdown(title: str, label: str, results: Results) -> Table | None:
    """Recalls by the number of relevant items; None if all queries have similarly many."""
    groups = Results(row for row in results if row.queries not in (ALL, FOLDS))
    body, most = [], 0
    for direction in DIRECTIONS:
        of_side = groups.select(direction=direction)
        bins = [row.queries for row in of_side if row.metric == SHOWN[0] and label_of(row) == label]
        most = max(most, len(bins))
        for queries in bins:
            rows = of_side.select(queries=queries)
            cells = {row.metric: row for row in rows if label_of(row) == label}
            by_chance = {row.metric: row for row in rows.select(method=CHANCE)}
            side, count = SHORT[direction], f"{cells[SHOWN[0]].n:,}"
            shown = [*result_cells(cells, SHOWN), *result_cells(by_chance, SHOWN[:1])]
            body.append([side, queries, count, *shown])
    titles = [*(METRICS[name].title for name in SHOWN), f"R@1 by {CHANCE}"]
    header = ["", "relevant items", "queries", *titles]
    return Table(title, header, body) if most > 1 else None


# By the names of metrics without a direction; K is a number, as in their titles.
_MEANINGS = {
    "recall_K": "the share of queries with a relevant item among the first K",
    "r_precision": "R-Precision: the share of relevant items among the first R, where R is their "
    "number",
    "map_at_r": "mean average precision at R, which rewards early ranks within the first R",
    "median_rank": "the median rank of the first relevant item",
    "mean_rank": "the mean rank of the first relevant item; 1 is best",
    "relevant_K": "the mean number of distinct relevant items among the first K",
    "precision_K": "the share of relevant items among the first K",
    "ndcg_K": "the grades of the first K, discounted by log2(1 + rank), as a share of the largest "
    "possible value",
    "bpref": "binary preference: the rarity of judged wrong answers before relevant items; pairs "
    "that were not judged do not count",
    "pmrp_K": "R-Precision if labels may differ in up to zeta entries",
    "pmrp": "the mean of PMRP over zeta = 0, 1, 2: plausible matches count as relevant",
    "asp": "agreement of the order by score with the order by relevance of captions; 100 is best",
    "asp_chance": "ASP of a random order",
    "asp_tf_idf": "ASP with the TF-IDF of captions as relevance",
    "asp_top_K": "ASP of the K most relevant answers alone",
    "released_asp_K": "relevance of the first K by score, as a share of the largest possible value",
    RSUM: "the sum of R@1, R@5 and R@10 of both directions; 600 is best",
}

DIRECTION_WORDS = {
    "i2t": "image to text: images are queries, and captions are ranked",
    "t2i": "text to image: captions are queries, and images are ranked",
}
"""The directions of a table."""


def glossary(results: Iterable[Result]) -> dict[str, str]:
    """Returns the definitions of the metrics of results, by their titles in tables.

    A metric that no judgements decide is not among them.

    Args:
        results: The results.

    Returns:
        A sentence per metric; metrics of one family, such as R@1 and R@5, share one.
    """
    metrics = {row.metric: Metric(row.metric, row.title) for row in results if row.judgements}
    order = [*METRICS, *(name for name in metrics if name not in METRICS and name != RSUM), RSUM]
    return dict(_entry(metrics[name]) for name in order if name in metrics)


def definition(name: str) -> str:
    """Returns title and definition of a standard metric, by its name without a direction."""
    title = METRICS[name].title.replace("\n", " ")
    return f"{title}: {_entry(METRICS[name])[1]}"


def _entry(metric: Metric) -> tuple[str, str]:
    """Returns title and definition of a metric, also of one that a config adds."""
    family = re.sub(r"_\d+$", "_K", metric.name)
    if metric.name in _MEANINGS or family not in _MEANINGS:
        return metric.title, _MEANINGS.get(metric.name, "a metric that the config adds")
    return re.sub(r"\d+$", "K", metric.title), _MEANINGS[family]
