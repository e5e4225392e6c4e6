"""Writes the figures and the scores of an evaluation, with those that others reported."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_xmr.experiments.config.schema import ReportedResults
from keras_xmr.experiments.evaluation.results import Evaluation
from keras_xmr.judgements import write_ground_truth
from keras_xmr.metrics import write_queries
from keras_xmr.metrics.names import in_percent
from keras_xmr.utils.files import atomic_write, replace_atomically

EXTERNAL = "external_scores.yaml"
"""The file in the folder of an evaluation of external scores that replaces a config."""


def compare_with_reported(evaluation: Evaluation, paper: ReportedResults) -> list[dict[str, Any]]:
    """The figures that a paper prints for a split, each with ours.

    Args:
        evaluation: The evaluation.
        paper: The reported results in the config.

    Returns:
        Plain data for JSON, per row of the paper: the `row`, whether they are means over `folds`,
        our `matcher` and `reranker`, and under `metrics`, by metric, the printed figure as "paper",
        "ours" and their "difference", as fractions (RSUM in percent, ranks and `relevant_K` as
        counts); None where ours was not measured.
    """
    results = evaluation.measured | evaluation.transductive
    compared = []
    for figures in (each for each in paper.figures if each.split == evaluation.split):
        matcher = figures.matcher or evaluation.matchers[0].name
        measured = results.get(" + ".join(filter(None, [matcher, figures.reranker])))
        summary: dict[str, float] = {}
        if measured is not None:
            summary = measured.folds if figures.folds else measured.metrics.summary
        metrics = {}
        for name, value in figures.values.items():
            printed, ours = _fraction(name, value), summary.get(name)
            difference = None if ours is None else ours - printed
            metrics[name] = {"paper": printed, "ours": ours, "difference": difference}
        compared.append(
            {
                "row": figures.row or paper.row,
                "folds": figures.folds,
                "matcher": matcher,
                "reranker": figures.reranker,
                "metrics": metrics,
            }
        )
    return compared


def _fraction(name: str, value: float) -> float:
    """A printed figure as our metrics have it."""
    return value / in_percent(name, 1.0)


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
    if (paper := evaluation.paper) is not None:
        compared = compare_with_reported(evaluation, paper)
        figures["paper"] = {"source": paper.source, "row": paper.row, "figures": compared}
    path = folder / "metrics.json"
    write_figures_file(path, figures)
    queries = folder / f"queries-{evaluation.split}.npz"
    measured = evaluation.measured | evaluation.transductive
    write_queries(queries, measured, evaluation.ground_truth)
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


KEPT = 6
"""Number of answers that are kept per query."""

WRONG, TRUE, RIGHT = 0, 1, 2
"""Kinds of answers: neither, true but not annotated, annotated."""

KINDS = ("wrong", "true", "right")
"""The names of the kinds on pages."""


def write_answers(evaluation: Evaluation, folder: Path) -> None:
    """Writes `answers-<split>.npz`: numbers and kinds of the first answers of the model's matcher.

    For "i2t" and "t2i" numbers int32 (queries, `KEPT`), and under `<side>_kind` their kinds.
    Scores that do not fit in memory are left out.

    Args:
        evaluation: The evaluation.
        folder: The folder of the file.
    """
    scores = evaluation.matchers[0].scores
    if not scores.is_dense:
        return
    arrays: dict[str, np.ndarray] = {}
    for side, matrix in zip(("i2t", "t2i"), scores.by_query, strict=True):
        queries = np.arange(len(matrix))
        first, kinds = first_answers(evaluation, side, queries, np.asarray(matrix))
        arrays |= {side: first.astype(np.int32), f"{side}_kind": kinds.astype(np.int8)}
    with replace_atomically(folder / f"answers-{evaluation.split}.npz", ".npz") as temporary:
        np.savez_compressed(temporary, **arrays)  # type: ignore[arg-type]


def first_answers(
    evaluation: Evaluation, side: str, queries: np.ndarray, scores: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The candidates with the largest scores, the best first, and their kinds.

    As in the metrics, annotated answers come after others with the same score.

    Args:
        evaluation: The evaluation, for its judgements.
        side: "i2t" or "t2i".
        queries: Numbers of the queries, int (queries,).
        scores: Their scores (queries, candidates).

    Returns:
        Numbers of the candidates, and `WRONG`, `TRUE` or `RIGHT`: int (queries, at most `KEPT`).
    """
    grades = evaluation.judgements.grades
    annotated = (grades[queries] if side == "i2t" else grades[:, queries].T).nonzero()
    costs = -np.asarray(scores, np.result_type(scores, np.float32))
    costs[annotated] = np.nextafter(costs[annotated], np.inf)
    count = min(KEPT, costs.shape[1])
    some = np.argpartition(costs, count - 1, axis=1)[:, :count]
    order = np.argsort(np.take_along_axis(costs, some, axis=1), axis=1, kind="stable")
    first = np.take_along_axis(some, order, axis=1)
    return first, _kinds_of_answers(evaluation, side, queries, first)


def _kinds_of_answers(
    evaluation: Evaluation, side: str, queries: np.ndarray, answers: np.ndarray
) -> np.ndarray:
    kinds = np.full(answers.shape, WRONG)
    rows = np.repeat(queries, answers.shape[1])
    for kind, judgements in ((TRUE, evaluation.truth), (RIGHT, evaluation.judgements)):
        if judgements is not None:
            pairs = (rows, answers.ravel()) if side == "i2t" else (answers.ravel(), rows)
            kinds[np.asarray(judgements.grades[pairs]).reshape(answers.shape) > 0] = kind
    return kinds


_SUM = "sha256"


def write_figures_file(path: Path, figures: Mapping[str, Any]) -> None:
    """Writes figures, whole or not at all, and the checksum of them under `sha256`.

    Args:
        path: The file.
        figures: Plain data.
    """
    atomic_write(path, json.dumps({**figures, _SUM: _digest(figures)}, indent=1).encode())


def read_figures_file(path: Path) -> dict[str, Any]:
    """The figures of a file.

    Args:
        path: The file.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it holds no figures with their checksum.
    """
    figures = json.loads(path.read_bytes())
    if not isinstance(figures, dict) or figures.pop(_SUM, None) != _digest(figures):
        raise ValueError(f"{path} holds no figures with their checksum")
    return figures


def _digest(figures: Mapping[str, Any]) -> str:
    # Numbers and the order of keys come back from JSON as they were.
    return hashlib.sha256(json.dumps(figures).encode()).hexdigest()
