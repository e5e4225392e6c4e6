"""Writes the results, the scores and the first answers of an evaluation."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from keras_xmr.experiments.evaluation.split_evaluation import Evaluation
from keras_xmr.judgements import GroundTruth, write_ground_truth
from keras_xmr.metrics import write_queries
from keras_xmr.metrics.results import Results
from keras_xmr.utils.directions import DIRECTIONS, SHORT
from keras_xmr.utils.files import checksum, replace_atomically

EXTERNAL = "external_scores.yaml"
"""The file in the folder of an evaluation of external scores that replaces a config."""


RESULTS = "results.csv"
"""The long table of an evaluation."""


def write_results(evaluation: Evaluation, results: Results, folder: Path) -> Path:
    """Writes `results.csv`, and `queries-<split>.npz` with the metrics of every query.

    Args:
        evaluation: The evaluation.
        results: The long table.
        folder: The folder of the files.

    Returns:
        `results.csv`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / RESULTS
    results.write(path)
    # A change of either file is noticed when runs are compared.
    notes = {"results_sha256": checksum(path)}
    if evaluation.fidelity is not None:
        notes |= {
            "fidelity": evaluation.fidelity.label,
            "fidelity_sentence": evaluation.fidelity.sentence,
        }
    measured = {matcher.name: matcher.measured for matcher in evaluation.matchers}
    for reranker, by_matcher in evaluation.reranked.items():
        measured |= {f"{name} + {reranker}": found for name, found in by_matcher.items()}
    queries = folder / f"queries-{evaluation.split}.npz"
    write_queries(queries, measured, evaluation.ground_truth, notes)
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
"""Verdicts on answers: neither, true but not annotated, annotated."""

VERDICTS = ("wrong", "true", "right")
"""The names of the verdicts on pages."""


def write_answers(evaluation: Evaluation, folder: Path) -> None:
    """Writes `answers-<split>.npz`: numbers and verdicts of first answers by the model's matcher.

    For `i2t` and `t2i` numbers int32 (queries, `KEPT`), and under `i2t_kind` the verdicts. Of
    images with sets of labels also `i2t_zeta`, the number of labels in which query and
    answer differ (Wang et al. 2023, Fig. 3); -1 where one of them has none. Scores that do not fit
    in memory are left out.

    Args:
        evaluation: The evaluation.
        folder: The folder of the file.
    """
    scores = evaluation.matchers[0].scores
    if not scores.is_dense:
        return
    arrays: dict[str, np.ndarray] = {}
    for direction, matrix in zip(DIRECTIONS, scores.by_query, strict=True):
        queries = np.arange(len(matrix))
        first, verdicts = first_answers(evaluation, direction, queries, np.asarray(matrix))
        short = SHORT[direction]
        arrays |= {short: first.astype(np.int32), f"{short}_kind": verdicts.astype(np.int8)}
        if evaluation.ground_truth.has_label_vectors:
            arrays[f"{short}_zeta"] = zeta_of_answers(evaluation.ground_truth, direction, first)
    with replace_atomically(folder / f"answers-{evaluation.split}.npz", ".npz") as temporary:
        np.savez_compressed(temporary, **arrays)  # type: ignore[arg-type]


def first_answers(
    evaluation: Evaluation, direction: str, queries: np.ndarray, scores: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the candidates with the largest scores, the best first, and their kinds.

    As in the metrics, annotated answers come after others with the same score.

    Args:
        evaluation: The evaluation, for its judgements.
        direction: `image_to_text` or `text_to_image`.
        queries: Numbers of the queries, int (queries,).
        scores: The scores (queries, candidates).

    Returns:
        Numbers of the candidates, and `WRONG`, `TRUE` or `RIGHT`: int (queries, at most `KEPT`).
    """
    grades = evaluation.judgements.grades
    annotated = (
        grades[queries] if direction == "image_to_text" else grades[:, queries].T
    ).nonzero()
    costs = -np.asarray(scores, np.result_type(scores, np.float32))
    costs[annotated] = np.nextafter(costs[annotated], np.inf)
    count = min(KEPT, costs.shape[1])
    some = np.argpartition(costs, count - 1, axis=1)[:, :count]
    order = np.argsort(np.take_along_axis(costs, some, axis=1), axis=1, kind="stable")
    first = np.take_along_axis(some, order, axis=1)
    return first, _verdicts_on_answers(evaluation, direction, queries, first)


def zeta_of_answers(truth: GroundTruth, direction: str, answers: np.ndarray) -> np.ndarray:
    """Returns the number of labels in which each answer differs from its query.

    Args:
        truth: The ground truth, with sets of labels.
        direction: `image_to_text` or `text_to_image`.
        answers: Numbers of the answers of all queries, int (queries, K).

    Returns:
        Int32 (queries, K), and -1 where the query or the answer has no labels.
    """
    images = truth.label_vectors().astype(np.int32)
    captions = images[truth.caption_image]
    queries, candidates = (images, captions) if direction == "image_to_text" else (captions, images)
    sizes, others = (np.asarray(labels.sum(axis=1)) for labels in (queries, candidates))
    zeta = np.empty(answers.shape, np.int32)
    for column, answer in enumerate(answers.T):
        shared = np.asarray(queries.multiply(candidates[answer]).sum(axis=1))
        differ = sizes + others[answer] - 2 * shared
        zeta[:, column] = np.where((sizes > 0) & (others[answer] > 0), differ, -1)
    return zeta


def _verdicts_on_answers(
    evaluation: Evaluation, direction: str, queries: np.ndarray, answers: np.ndarray
) -> np.ndarray:
    verdicts = np.full(answers.shape, WRONG)
    rows = np.repeat(queries, answers.shape[1])
    for verdict, judgements in ((TRUE, evaluation.truth), (RIGHT, evaluation.judgements)):
        if judgements is not None:
            pairs = (
                (rows, answers.ravel()) if direction == "image_to_text" else (answers.ravel(), rows)
            )
            verdicts[np.asarray(judgements.grades[pairs]).reshape(answers.shape) > 0] = verdict
    return verdicts
