"""The first answers to every query, kept for comparisons."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from data_pipelines.files import replace_atomically
from keras_xmr.evaluation.results import Evaluation

KEPT = 6
"""Number of answers that are kept per query."""

WRONG, TRUE, RIGHT = 0, 1, 2
"""Kinds of answers: neither, true but not annotated, annotated."""

KINDS = ("wrong", "true", "right")
"""The names of the kinds on pages."""


def write_answers(evaluation: Evaluation, folder: Path) -> None:
    """Writes `answers-<split>.npz`: numbers and kinds of the first answers of the model's matcher.

    For "i2t" and "t2i" numbers int32 (queries, `KEPT`), and under `<side>_kind` the kind of each.
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
        first = _first(np.asarray(matrix))
        kinds = kinds_of_answers(evaluation, side, np.arange(len(first)), first)
        arrays |= {side: first.astype(np.int32), f"{side}_kind": kinds.astype(np.int8)}
    with replace_atomically(folder / f"answers-{evaluation.split}.npz", ".npz") as temporary:
        np.savez_compressed(temporary, **arrays)  # type: ignore[arg-type]


def kinds_of_answers(
    evaluation: Evaluation, side: str, queries: np.ndarray, answers: np.ndarray
) -> np.ndarray:
    """The kind of each answer: `WRONG`, `TRUE` or `RIGHT`, int (queries, answers).

    Args:
        evaluation: The evaluation, for its judgements.
        side: "i2t" or "t2i".
        queries: Numbers of the queries, int (queries,).
        answers: Numbers of the candidates, int (queries, answers).
    """
    kinds = np.full(answers.shape, WRONG)
    rows = np.repeat(queries, answers.shape[1])
    for kind, judgements in ((TRUE, evaluation.truth), (RIGHT, evaluation.judgements)):
        if judgements is not None:
            pairs = (rows, answers.ravel()) if side == "i2t" else (answers.ravel(), rows)
            kinds[np.asarray(judgements.grades[pairs]).reshape(answers.shape) > 0] = kind
    return kinds


def _first(scores: np.ndarray) -> np.ndarray:
    """The candidates with the largest scores, the best first: int (queries, at most `KEPT`)."""
    count = min(KEPT, scores.shape[1])
    some = np.argpartition(-scores, count - 1, axis=1)[:, :count]
    order = np.argsort(-np.take_along_axis(scores, some, axis=1), axis=1, kind="stable")
    return np.take_along_axis(some, order, axis=1)
