"""Tables and lines of an evaluation."""

from __future__ import annotations

from keras_xmr.evaluation.evaluate import Evaluation
from keras_xmr.metrics import Table, measured_tables


def result_tables(evaluation: Evaluation) -> list[Table]:
    """Tables of all metrics: against the judgements, over folds, and against the truth."""
    size = f"{evaluation.images:,} images, {evaluation.captions:,} captions"
    return measured_tables(f"{evaluation.split}: {size}", evaluation.measured, "matcher")


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
