"""Writes the figures of an evaluation."""

from __future__ import annotations

from pathlib import Path

from keras_xmr.evaluation.reported_results import reported_as_dict
from keras_xmr.evaluation.results import Evaluation
from keras_xmr.figures_file import write_figures_file
from keras_xmr.metrics import write_queries


def write_figures(evaluation: Evaluation, folder: Path) -> Path:
    """Writes `metrics.json`, and `queries-<split>.npz` with the metrics of every query.

    Args:
        evaluation: What was found.
        folder: Where the files go.

    Returns:
        `metrics.json`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    figures = evaluation.as_dict()
    if evaluation.paper is not None:
        figures["paper"] = reported_as_dict(evaluation, evaluation.paper)
    path = folder / "metrics.json"
    write_figures_file(path, figures)
    reranked = {found.name: found.measured for found in evaluation.reranked}
    queries = folder / f"queries-{evaluation.split}.npz"
    write_queries(queries, evaluation.measured | reranked, evaluation.ground_truth)
    return path
