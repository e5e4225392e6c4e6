"""Tables of our figures compared with those that a paper reports."""

from __future__ import annotations

from keras_xmr.config.reported_results import ReportedResults
from keras_xmr.evaluation.reported_results import Compared, compare_with_reported
from keras_xmr.evaluation.results import Evaluation
from keras_xmr.metrics import metric_title
from keras_xmr.reporting.metric_tables import cell, reranked_title
from keras_xmr.reporting.table import Table

_IMAGES = 1_000
"""Images of the smallest test split of the papers, that of Flickr30K; COCO's folds have as many."""


def reported_tables(evaluation: Evaluation, paper: ReportedResults) -> list[Table]:
    """Tables of our figures and the reported ones, per re-ranker, of the split and of its folds."""
    groups: dict[tuple[str | None, bool], list[Compared]] = {}
    for compared in compare_with_reported(evaluation, paper):
        key = (compared.figures.reranker, compared.figures.folds)
        groups.setdefault(key, []).append(compared)
    tables = []
    for (reranker, folds), group in groups.items():
        title = f"{evaluation.split}{', mean over folds' if folds else ''}"
        title = title if reranker is None else reranked_title(title, reranker)
        rows = ", ".join(dict.fromkeys(compared.row for compared in group))
        title = f"{title}, compared with {paper.source}: {rows}"
        if not _is_of_papers_size(evaluation, paper):
            known = f"at least {_IMAGES:,}" if paper.images is None else f"{paper.images:,}"
            title += (
                f" (not comparable: measured on {evaluation.images:,} images, and a paper on "
                f"{known})"
            )
        tables.append(_table(title, group))
    return tables


def _is_of_papers_size(evaluation: Evaluation, paper: ReportedResults) -> bool:
    """True if a split has as many images as the paper's; for validation splits, 1,000 or more."""
    if paper.images is None or evaluation.split != "test":
        return evaluation.images >= _IMAGES
    return evaluation.images == paper.images


def _table(title: str, group: list[Compared]) -> Table:
    names = list(dict.fromkeys(name for compared in group for name in compared.paper))
    rows = []
    for compared in group:
        lines = (
            ("paper", compared.paper),
            ("ours", compared.ours),
            ("difference", compared.differences),
        )
        for kind, values in lines:
            cells = [_cell(kind, name, values.get(name)) for name in names]
            rows.append([f"{compared.matcher}: {kind}", *cells])
    return Table(title, ["matcher", *(metric_title(name) for name in names)], rows)


def _cell(kind: str, name: str, value: float | None) -> str:
    text = cell(name, value)
    return f"+{text}" if kind == "difference" and value is not None and value > 0 else text
