"""Finds the unlabelled pairs with the highest scores: candidates for missing labels."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from keras_xmr.experiments.config.schema import AuditOptions
from keras_xmr.judgements import Judgements
from keras_xmr.metrics import ScoreMatrices
from keras_xmr.parts.option_types import Combination
from keras_xmr.reranking.base import refuse_non_finite
from keras_xmr.utils.errors import ArgumentError


def combine_scores(
    models: Iterable[tuple[str, ScoreMatrices]], shape: tuple[int, int], how: Combination
) -> np.ndarray:
    """Combines the scores of models, in standard deviations from the mean of all pairs.

    Directions with different scores count half each. Holds two matrices and the scores of one
    model.

    Args:
        models: Name and scores (images, captions) of each model.
        shape: Images, captions.
        how: Whether a pair has the mean of the models, or the least.

    Returns:
        Float32 (images, captions).

    Raises:
        ArgumentError: If scores are missing, shapes differ, or a score is not finite.
    """
    total, count = np.zeros(shape, np.float32), 0
    for count, (name, scores) in enumerate(models, 1):
        by_image, by_caption = scores.by_query
        sides = [by_image] if scores.other is None else [by_image, by_caption.T]
        model = np.zeros(shape, np.float32)
        for matrix in sides:
            if matrix.shape != shape:
                raise ArgumentError(
                    f"the scores of {name} have the shape {matrix.shape}, but there are {shape[0]} "
                    f"images and {shape[1]} captions"
                )
            refuse_non_finite(matrix)
            mean, deviation = (of(matrix, dtype=np.float64) for of in (np.mean, np.std))
            model += (matrix - mean) / max(deviation, 1e-12) / len(sides)
        if how == "minimum" and count > 1:
            np.minimum(total, model, out=total)
        else:
            total += model
    if not count:
        raise ArgumentError("no scores: use at least one model")
    return total / np.float32(count if how == "mean" else 1)


def judged_pairs(judgements: Iterable[Judgements]) -> np.ndarray:
    """Marks right pairs, and wrong ones of partial judgements: bool (images, captions)."""
    return np.logical_or.reduce(
        [(one.grades > 0 if one.judged is None else one.judged).toarray() for one in judgements]
    )


def find_candidates(scores: np.ndarray, judged: np.ndarray, options: AuditOptions) -> np.ndarray:
    """Finds the pairs with the highest scores that are not judged.

    Goes through these pairs in falling score, of equal scores by image and then by caption, and
    takes a pair unless its image, or its caption, was taken as often as the options allow.

    Args:
        scores: Float32 (images, captions).
        judged: The pairs that are judged, bool (images, captions).
        options: How many pairs are taken.

    Returns:
        Image and caption of each pair, int64 (pairs, 2), at most `options.pairs`.
    """
    images_left = np.full(len(scores), options.per_image)
    captions_left = np.full(scores.shape[1], options.per_caption)
    order = np.argsort(np.where(judged, np.inf, -scores), axis=None, kind="stable")
    taken: list[tuple[int, int]] = []
    for place in order[: judged.size - np.count_nonzero(judged)]:
        image, caption = divmod(int(place), scores.shape[1])
        if images_left[image] and captions_left[caption]:
            taken.append((image, caption))
            images_left[image] -= 1
            captions_left[caption] -= 1
        if len(taken) == options.pairs:
            break
    return np.array(taken, np.int64).reshape(-1, 2)
