"""Metrics of both directions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from keras_xmr.judgements import Judgements
from keras_xmr.metrics.ranking import (
    RECALL_AT,
    QueryMetrics,
    evaluate_direction,
    positive_ranks,
    summarize,
)


@dataclass(frozen=True)
class RetrievalMetrics:
    """Metrics of a score matrix.

    Attributes:
        summary: Metrics as fractions, by names such as `i2t_recall_1` and `t2i_r_precision`;
            and `rsum`, the sum of all six recalls.
        image_to_text: Metrics of every image as a query.
        text_to_image: Metrics of every caption as a query.
    """

    summary: dict[str, float]
    image_to_text: QueryMetrics
    text_to_image: QueryMetrics


def evaluate_scores(
    scores: np.ndarray,
    judgements: Judgements,
    precision_at: Sequence[int] = (),
    text_to_image: np.ndarray | None = None,
) -> RetrievalMetrics:
    """All metrics of a score matrix, in both directions.

    Args:
        scores: Scores (images, captions), larger is better.
        judgements: What is right.
        precision_at: The K of `precision_K`.
        text_to_image: Scores (images, captions) by which images are ranked for captions, if not
            by `scores`.

    Raises:
        ValueError: If the shapes differ, or a score is NaN.
    """
    i2t = evaluate_direction(positive_ranks(scores, judgements), precision_at)
    columns = np.ascontiguousarray((scores if text_to_image is None else text_to_image).T)
    t2i = evaluate_direction(positive_ranks(columns, judgements.transpose()), precision_at)
    summary = {f"i2t_{name}": value for name, value in summarize(i2t).items()}
    summary |= {f"t2i_{name}": value for name, value in summarize(t2i).items()}
    summary["rsum"] = sum(
        summary.get(f"{direction}_recall_{k}", 0.0)
        for direction in ("i2t", "t2i")
        for k in RECALL_AT
    )
    return RetrievalMetrics(summary, i2t, t2i)


def fold_members(
    num_images: int, image_of_caption: np.ndarray, folds: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields the images and the captions of consecutive folds of the images.

    Args:
        num_images: How many images there are.
        image_of_caption: The image that each caption was written for, int (captions,).
        folds: How many folds.

    Raises:
        ValueError: If the images do not split into folds of one size.
    """
    if num_images % folds:
        raise ValueError(f"{num_images} images do not split into {folds} folds of one size")
    size = num_images // folds
    for fold in range(folds):
        images = np.arange(fold * size, (fold + 1) * size)
        yield images, np.flatnonzero(image_of_caption // size == fold)


def evaluate_folds(
    scores: np.ndarray,
    judgements: Judgements,
    image_of_caption: np.ndarray,
    folds: int,
    text_to_image: np.ndarray | None = None,
) -> dict[str, float]:
    """Means of the metrics over consecutive folds of the images, with their captions.

    The "1K test images" of COCO are five folds of the 5,000.

    Args:
        scores: Scores (images, captions).
        judgements: What is right.
        image_of_caption: The image that each caption was written for, int (captions,).
        folds: How many folds.
        text_to_image: Scores (images, captions) by which images are ranked for captions, if not
            by `scores`.

    Raises:
        ValueError: If the images do not split into folds of one size.
    """
    summaries = []
    for images, captions in fold_members(len(scores), image_of_caption, folds):
        part = np.ix_(images, captions)
        back = None if text_to_image is None else text_to_image[part]
        right = judgements.select(images, captions)
        summaries.append(evaluate_scores(scores[part], right, text_to_image=back).summary)
    return {name: float(np.mean([s[name] for s in summaries])) for name in summaries[0]}
