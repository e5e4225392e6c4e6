"""Our figures beside those of a paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from keras_xmr.config.reported_results import ReportedFigures, ReportedResults
from keras_xmr.evaluation.results import Evaluation
from keras_xmr.metrics import METRICS, Table, cell, metric_title, reranked_title

_IMAGES = 1_000
"""Images of the smallest test split of the papers, that of Flickr30K; COCO's folds have as many."""


@dataclass(frozen=True)
class Compared:
    """Figures of a paper, and ours.

    Attributes:
        figures: What the config quotes.
        row: The row of the paper.
        matcher: The matcher of ours.
        paper: The printed figures by metric, as fractions (ranks and `found_K` as counts).
        ours: Ours; without those that were not measured.
    """

    figures: ReportedFigures
    row: str
    matcher: str
    paper: dict[str, float]
    ours: dict[str, float]

    @property
    def differences(self) -> dict[str, float]:
        """Ours minus the paper's, where both are known."""
        return {name: value - self.paper[name] for name, value in self.ours.items()}

    def as_dict(self) -> dict[str, Any]:
        """The figures, as plain data for JSON."""
        differences = self.differences
        return {
            "row": self.row,
            "folds": self.figures.folds,
            "matcher": self.matcher,
            "reranker": self.figures.reranker,
            "metrics": {
                name: {
                    "paper": value,
                    "ours": self.ours.get(name),
                    "difference": differences.get(name),
                }
                for name, value in self.paper.items()
            },
        }


def compare_with_reported(evaluation: Evaluation, paper: ReportedResults) -> list[Compared]:
    """The figures that a paper prints for a split, each with ours.

    Args:
        evaluation: What was found.
        paper: What the config quotes.
    """
    return [
        _compare(evaluation, figures, figures.row or paper.row)
        for figures in paper.figures
        if figures.split == evaluation.split
    ]


def _compare(evaluation: Evaluation, figures: ReportedFigures, row: str) -> Compared:
    matcher = figures.matcher or evaluation.matchers[0].name
    if figures.reranker is None:
        results = {m.name: m.measured for m in evaluation.matchers}
        measured = results.get(matcher)
    else:
        results = {r.name: r.measured for r in evaluation.reranked}
        measured = results.get(f"{matcher} + {figures.reranker}")
    summary: dict[str, float] = {}
    if measured is not None:
        summary = measured.folds if figures.folds else measured.metrics.summary
    return Compared(
        figures,
        row,
        matcher,
        paper={name: _fraction(name, value) for name, value in figures.values.items()},
        ours={name: summary[name] for name in figures.values if name in summary},
    )


def reported_as_dict(evaluation: Evaluation, paper: ReportedResults) -> dict[str, Any]:
    """The figures of a paper and ours, as plain data for JSON. Metrics are fractions."""
    compared = compare_with_reported(evaluation, paper)
    return {"source": paper.source, "row": paper.row, "figures": [c.as_dict() for c in compared]}


def reported_tables(evaluation: Evaluation, paper: ReportedResults) -> list[Table]:
    """A table for the whole split, one for its folds, and the same for every re-ranker."""
    groups: dict[tuple[str | None, bool], list[Compared]] = {}
    for compared in compare_with_reported(evaluation, paper):
        key = (compared.figures.reranker, compared.figures.folds)
        groups.setdefault(key, []).append(compared)
    tables = []
    for (reranker, folds), group in groups.items():
        title = f"{evaluation.split}{', mean over folds' if folds else ''}"
        title = title if reranker is None else reranked_title(title, reranker)
        rows = ", ".join(dict.fromkeys(compared.row for compared in group))
        title = f"{title}, beside {paper.source}: {rows}"
        if not _is_of_papers_size(evaluation, paper):
            known = f"at least {_IMAGES:,}" if paper.images is None else f"{paper.images:,}"
            title += (
                f" (not comparable: measured on {evaluation.images:,} images, and a paper on "
                f"{known})"
            )
        tables.append(_table(title, group))
    return tables


def _is_of_papers_size(evaluation: Evaluation, paper: ReportedResults) -> bool:
    """Whether a split has as many images as the paper's; of validation splits nothing is known."""
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


def _fraction(name: str, value: float) -> float:
    """A printed figure as our metrics have it."""
    metric = METRICS.get(name.partition("_")[2])
    return value / 100 if metric is None or metric.unit == "fraction" else value
