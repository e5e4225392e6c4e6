"""Writes the figures and the scores of an evaluation."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from data_pipelines.files import replace_atomically
from keras_xmr.evaluation.reported_results import reported_as_dict
from keras_xmr.evaluation.results import Evaluation
from keras_xmr.figures_file import write_figures_file
from keras_xmr.judgements import write_ground_truth
from keras_xmr.metrics import write_queries


def write_figures(evaluation: Evaluation, folder: Path) -> Path:
    """Writes `metrics.json`, and `queries-<split>.npz` with the metrics of every query.

    Args:
        evaluation: The evaluation.
        folder: The folder of the files.

    Returns:
        `metrics.json`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    figures = evaluation.as_dict()
    if evaluation.paper is not None:
        figures["paper"] = reported_as_dict(evaluation, evaluation.paper)
    path = folder / "metrics.json"
    write_figures_file(path, figures)
    reranked = {result.name: result.measured for result in evaluation.reranked}
    queries = folder / f"queries-{evaluation.split}.npz"
    write_queries(queries, evaluation.measured | reranked, evaluation.ground_truth)
    return path


def save_scores(evaluation: Evaluation, folder: Path) -> Path:
    """Saves the scores of the model's matcher, and the ground truth of their rows and columns.

    Writes `scores-<split>.npy` and `ground-truth-<split>.json`, which `evaluate` takes as
    `--scores` and `--ground-truth`; of a matcher that scores by direction also
    `text-to-image-scores-<split>.npy`.

    Args:
        evaluation: The evaluation.
        folder: The folder of the files.

    Returns:
        The file of scores.
    """
    matcher = evaluation.matchers[0]
    path = folder / f"scores-{evaluation.split}.npy"
    _save_array(path, np.asarray(matcher.scores.image_to_text))
    if matcher.scores.other is not None:
        _save_array(folder / f"text-to-image-{path.name}", np.asarray(matcher.scores.other))
    write_ground_truth(folder / f"ground-truth-{evaluation.split}.json", evaluation.ground_truth)
    return path


def _save_array(path: Path, array: np.ndarray) -> None:
    with replace_atomically(path, ".npy") as temporary:
        np.save(temporary, array)
