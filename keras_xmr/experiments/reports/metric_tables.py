"""Tables of metrics, with their cells and titles, and definitions of the metrics."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from keras_xmr.experiments.reports.table import Table
from keras_xmr.metrics.chance import chance
from keras_xmr.metrics.measure import SHOWN, Measured, by_positives
from keras_xmr.metrics.names import (
    CHOSEN,
    DIRECTIONS,
    METRICS,
    RSUM,
    find_metric,
    metric_title,
    metric_unit,
    metric_value,
)
from keras_xmr.metrics.retrieval import RetrievalMetrics

CHANCE = "chance"
"""The row of a random ranking."""

CONDENSED = "condensed lists"
"""The addition to titles of figures without unjudged pairs."""

_NAMES = {
    "truth": "exhaustive truth",
    "eccv_caption": "ECCV Caption",
    "cxc": "CxC",
    "experts": "judged by experts",
    "crowd": "judged by the crowd",
    "crowd_pool": "judged by the crowd, unjudged pairs of its pool wrong",
    "ExpertAnnotations": "judged by experts",
    "CrowdFlowerAnnotations": "judged by the crowd",
}


def judgements_title(name: str, metrics: RetrievalMetrics | None = None) -> str:
    """Title of judgements, which marks condensed lists.

    Args:
        name: Their name.
        metrics: The metrics by them, if known.
    """
    title = _NAMES.get(name, name)
    return title if metrics is None or metrics.fully_judged else f"{title}, {CONDENSED}"


def reranked_title(title: str, reranker: str) -> str:
    """The title of tables of re-ranked scores."""
    return f"{title}: re-ranked by {reranker}, all queries at once (transductive)"


def measured_tables(title: str, measured: Mapping[str, Measured]) -> list[Table]:
    """Tables of all metrics of some score matrices.

    Recalls, precisions and RSUM are in percent; ranks and `relevant_K` are counts.

    Args:
        title: The split.
        measured: The metrics, by the name of the matcher.
    """
    plain = {name: m.metrics for name, m in measured.items()}
    tables = _tables(f"{title}, annotated pairs", plain)
    if folds := {name: m.folds for name, m in measured.items() if m.folds}:
        fold_title = f"{title}, mean over folds, annotated pairs"
        tables[1:1] = _main_tables(fold_title, folds)
    for kind in next(iter(measured.values())).extra:
        extra = {name: m.extra[kind] for name, m in measured.items()}
        known = next(iter(extra.values()))
        tables += _tables(f"{title}, {judgements_title(kind, known)}", extra)
    return tables


def _tables(title: str, metrics: Mapping[str, RetrievalMetrics]) -> list[Table]:
    summaries = {name: m.summary for name, m in metrics.items()}
    tables = _main_tables(title, summaries | {CHANCE: chance(next(iter(metrics.values())))})
    if curve := _titles("curve", summaries):
        # Both directions in one column of rows, since there are many columns.
        rows = [
            [f"{name} {side}", *metric_cells(summary, [f"{side}_{key}" for key in curve])]
            for name, summary in summaries.items()
            for side in DIRECTIONS
        ]
        curve_title = f"{title}: ASP of the first N by relevance"
        tables.append(Table(curve_title, ["", *curve.values()], rows))
    name, best = next(iter(metrics.items()))
    if breakdown := _breakdown(f"{title}, by number of relevant items: {name}", best):
        tables.append(breakdown)
    return tables


def _main_tables(title: str, summaries: Mapping[str, Mapping[str, float]]) -> list[Table]:
    """The tables of both directions, with RSUM in the first, and of many relevant items."""
    main, many = (
        [f"{side}_{name}" for side in DIRECTIONS for name in _titles(table, summaries)]
        for table in ("main", "many")
    )
    return [
        _table(title, summaries, [*main, RSUM]),
        _table(f"{title}: many relevant items", summaries, many),
    ]


def _table(
    title: str, summaries: Mapping[str, Mapping[str, float]], metrics: Sequence[str]
) -> Table:
    models = [summary for name, summary in summaries.items() if name != CHANCE]
    best = {
        place: best_cell(metric, [model[metric] for model in models if metric in model])
        for place, metric in enumerate(metrics, 1)
    }
    rows = [[name, *metric_cells(summary, metrics)] for name, summary in summaries.items()]
    return Table(title, ["matcher", *map(metric_title, metrics)], rows, best)


def metric_cells(summary: Mapping[str, float], metrics: Iterable[str]) -> list[str]:
    """The cells of a row: the value of each metric, or a dash where it is missing."""
    return [metric_value(metric, summary.get(metric)) for metric in metrics]


def best_cell(metric: str, values: Sequence[float]) -> str | None:
    """The best of some figures, as in tables; None if all are equal there.

    Args:
        metric: Its name, with or without the direction.
        values: The figure of each row.
    """
    shown = {metric_value(metric, value): value for value in values}
    if len(shown) < 2:
        return None
    return (min if metric_unit(metric) == "rank" else max)(shown, key=lambda text: shown[text])


def _titles(table: str, summaries: Mapping[str, Mapping[str, float]]) -> dict[str, str]:
    """Names and titles of the metrics of a table that were measured in any direction."""
    known = set().union(*summaries.values())
    return {
        name: metric.title
        for name, metric in (METRICS | CHOSEN).items()
        if metric.table == table and {f"i2t_{name}", f"t2i_{name}"} & known
    }


def _breakdown(title: str, metrics: RetrievalMetrics) -> Table | None:
    """Recalls by the number of relevant items; None if all queries have similarly many."""
    both = metrics.image_to_text, metrics.text_to_image
    bins = list(map(by_positives, both))
    if max(map(len, bins)) < 2:
        return None
    rows = []
    for side, of_side, others in zip(DIRECTIONS, bins, both[::-1], strict=True):
        for part in of_side:
            answers = f"{part.least} to {part.most}" if part.least < part.most else str(part.most)
            candidates = len(others.positives)
            by_chance = part.positives / candidates if metrics.fully_judged else None
            cells = [*metric_cells(part.means, SHOWN), metric_value("recall_1", by_chance)]
            rows.append([side, answers, f"{part.queries:,}", *cells])
    titles = [*(METRICS[name].title for name in SHOWN), f"R@1 by {CHANCE}"]
    return Table(title, ["", "relevant items", "queries", *titles], rows)


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


def glossary(summary: Iterable[str]) -> dict[str, str]:
    """The definitions of the metrics of a summary, by their titles in tables.

    Args:
        summary: Names such as `i2t_recall_1`.

    Returns:
        A sentence per metric; those of one family, such as R@1 and R@5, share one.
    """
    shorts = [name if name == RSUM else name.partition("_")[2] for name in summary]
    return dict(_entry(short) for short in (*METRICS, *CHOSEN, RSUM) if short in shorts)


def _entry(short: str) -> tuple[str, str]:
    """Title and definition of a metric, including those that a config adds."""
    metric = find_metric(short)
    title = metric.title.replace("\n", " ") if metric else metric_title(short)
    family = re.sub(r"_\d+$", "_K", short)
    if short in _MEANINGS or family not in _MEANINGS:
        return title, _MEANINGS.get(short, "a metric that the config adds")
    return re.sub(r"\d+$", "K", title), _MEANINGS[family]
