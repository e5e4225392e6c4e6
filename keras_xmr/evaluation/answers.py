"""The first answers to every query, kept for comparisons."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from data_pipelines.files import replace_atomically
from keras_xmr.evaluation.results import Evaluation
from keras_xmr.judgements import Judgements

KEPT = 6
"""So many answers are kept of each query."""

WRONG, TRUE, RIGHT = 0, 1, 2
"""What an answer is: neither, true though nobody annotated it, annotated."""


def write_answers(evaluation: Evaluation, folder: Path) -> None:
    """Writes `answers-<split>.npz`: numbers and kinds of the first answers of the own matcher.

    For "i2t" and "t2i" numbers int32 (queries, `KEPT`), and under `<side>_kind` what each is.
    Scores that are too many to be in memory are left out.

    Args:
        evaluation: What was found.
        folder: Where the file goes.
    """
    own = evaluation.matchers[0].scores
    if not own.is_dense:
        return
    found: dict[str, np.ndarray] = {}
    for side, matrix in zip(("i2t", "t2i"), own.by_query, strict=True):
        first = _first(np.asarray(matrix))
        found[side] = first.astype(np.int32)
        kind = RIGHT * _are(evaluation.judgements, side, first)
        if evaluation.truth is not None:
            kind = np.maximum(kind, TRUE * _are(evaluation.truth, side, first))
        found[f"{side}_kind"] = kind.astype(np.int8)
    with replace_atomically(folder / f"answers-{evaluation.split}.npz", ".npz") as aside:
        np.savez_compressed(aside, **found)  # type: ignore[arg-type]


def _first(scores: np.ndarray) -> np.ndarray:
    """The candidates with the largest scores, the best first: int (queries, at most `KEPT`)."""
    count = min(KEPT, scores.shape[1])
    some = np.argpartition(-scores, count - 1, axis=1)[:, :count]
    order = np.argsort(-np.take_along_axis(scores, some, axis=1), axis=1, kind="stable")
    return np.take_along_axis(some, order, axis=1)


def _are(judgements: Judgements, side: str, first: np.ndarray) -> np.ndarray:
    """Which of the answers are right, bool of the same shape."""
    grades = judgements.grades if side == "i2t" else judgements.grades.T.tocsr()
    rows = np.repeat(np.arange(len(first)), first.shape[1])
    found: np.ndarray = np.asarray(grades[rows, first.ravel()]).reshape(first.shape) > 0
    return found
