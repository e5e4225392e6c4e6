"""Our figures compared with those of a paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from keras_xmr.config.reported_results import ReportedFigures, ReportedResults
from keras_xmr.evaluation.results import Evaluation
from keras_xmr.metrics import METRICS


@dataclass(frozen=True)
class Compared:
    """Figures of a paper, and ours.

    Attributes:
        figures: The figures in the config.
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
        evaluation: The evaluation.
        paper: The reported results in the config.
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


def _fraction(name: str, value: float) -> float:
    """A printed figure as our metrics have it."""
    metric = METRICS.get(name.partition("_")[2])
    return value / 100 if metric is None or metric.unit == "fraction" else value
