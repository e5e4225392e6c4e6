"""Tables of an evaluation, for the terminal and for HTML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from data_pipelines.tables import table
from keras_xmr.evaluation.evaluate import Evaluation

_PERCENT = ("recall_1", "recall_5", "recall_10", "r_precision", "map_at_r")
_LABELS = {
    "recall_1": "R@1",
    "recall_5": "R@5",
    "recall_10": "R@10",
    "r_precision": "R-P",
    "map_at_r": "mAP@R",
    "median_rank": "med r",
    "mean_rank": "mean r",
}


@dataclass(frozen=True)
class Table:
    """A table with a title: a header, and rows of as many cells."""

    title: str
    header: list[str]
    rows: list[list[str]]

    def __str__(self) -> str:
        return f"{self.title}\n\n{table(self.header, self.rows)}"


def result_tables(evaluation: Evaluation) -> list[Table]:
    """Tables of all metrics: against the judgements, over folds, and against the truth.

    Each re-ranker has tables of its own, so that re-ranked figures never stand beside plain ones.
    Recalls, precisions and RSUM are in percent.
    """
    size = f"{evaluation.images:,} images, {evaluation.captions:,} captions"
    annotated = {m.name: m.metrics.summary for m in evaluation.matchers}
    tables = [_table(f"{evaluation.split}: {size}, annotated answers", annotated)]
    if folds := {m.name: m.folds for m in evaluation.matchers if m.folds}:
        tables.append(_table(f"{evaluation.split}: mean over folds, annotated answers", folds))
    if truth := {m.name: m.truth.summary for m in evaluation.matchers if m.truth}:
        tables.append(_table(f"{evaluation.split}: {size}, exhaustive truth", truth))
    return tables + _reranked_tables(evaluation)


def _reranked_tables(evaluation: Evaluation) -> list[Table]:
    tables = []
    for name in dict.fromkeys(found.reranker for found in evaluation.reranked):
        results = [found for found in evaluation.reranked if found.reranker == name]
        kinds = {
            "annotated answers": {r.matcher: r.metrics.summary for r in results},
            "mean over folds": {r.matcher: r.folds for r in results if r.folds},
            "exhaustive truth": {r.matcher: r.truth.summary for r in results if r.truth},
        }
        head = f"{evaluation.split}: re-ranked by {name}, all queries at once (transductive)"
        tables += [_table(f"{head}, {kind}", found) for kind, found in kinds.items() if found]
    return tables


def _table(title: str, summaries: Mapping[str, Mapping[str, float]]) -> Table:
    header = ["matcher"]
    for direction in ("i2t", "t2i"):
        header += [f"{direction}\n{label}" for label in _LABELS.values()]
    header.append("RSUM")
    rows = []
    for name, summary in summaries.items():
        row = [name]
        for direction in ("i2t", "t2i"):
            row += [_cell(metric, summary.get(f"{direction}_{metric}")) for metric in _LABELS]
        rows.append([*row, f"{100 * summary['rsum']:.1f}"])
    return Table(title, header, rows)


def _cell(metric: str, value: float | None) -> str:
    if value is None:
        return "-"
    return f"{100 * value:.1f}" if metric in _PERCENT else f"{value:.1f}"


def uncertainty_lines(evaluation: Evaluation) -> list[str]:
    """What the uncertainty of the embeddings tells, in words."""
    lines = []
    for side, found in evaluation.uncertainty_bins.items():
        lines.append(
            f"rank correlation of {side} uncertainty and {side} R@1: {found.correlation:+.3f}"
        )
    if evaluation.uncertainty_of_truth is not None:
        lines.append(
            "rank correlation of caption uncertainty and the number of images that a caption is "
            f"true of: {evaluation.uncertainty_of_truth:+.3f}"
        )
    return lines
