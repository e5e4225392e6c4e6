"""Gradient counting: negatives with a gradient (Bleeker and de Rijke 2022)."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from data_pipelines.records import SplitRecords
from keras_xmr.evaluation.results import EmbeddedSplit, GradientCounts
from keras_xmr.model.relations import relations
from keras_xmr.model.retriever import Retriever

BATCHES = 4
_LEAST = 0.01
_LATE = 10**9  # after every warm-up


def count_gradients(
    model: Retriever, part: SplitRecords, embedded: EmbeddedSplit, batch_size: int
) -> GradientCounts | None:
    """Counts in batches of a split, as training would have them, the negatives with a gradient.

    A negative counts if the gradient of its score is at least 1 % of the largest of its query.

    Args:
        model: The trained model.
        part: The split.
        embedded: Its embeddings.
        batch_size: Pairs of a batch.

    Returns:
        Counts of each loss that reads scores and matches; None without one,
        or of tokens, or of a split that is too small.
    """
    captions = np.random.default_rng(0).permutation(part.num_captions)
    batches = [captions[n * batch_size : (n + 1) * batch_size] for n in range(BATCHES)]
    batches = [batch for batch in batches if len(batch) == batch_size]
    names = [name for name in model.objective.names if "/" not in name]
    losses = {
        name: loss
        for name, loss in zip(names, model.objective.losses_, strict=True)
        if loss.contract.reads_scores
        and loss.contract.reads_matches
        and not loss.contract.reads_relevance
    }
    if "tokens" in embedded.images or not batches or not losses:
        return None
    counts_by_loss: dict[str, list[np.ndarray]] = {}
    for batch in batches:
        images = part.caption_image[batch]
        image = _prepared(model, embedded.images, images, "image")
        caption = _prepared(model, embedded.captions, batch, "caption")
        related = relations({"image_id": tf.constant(images)}, "pairs")
        for name, loss in losses.items():
            if (counts := _counts(model, loss, image, caption, related)) is not None:
                counts_by_loss.setdefault(name, []).append(counts)
    counted = {name: np.concatenate(several, axis=1) for name, several in counts_by_loss.items()}
    return GradientCounts(batch_size, counted) if counted else None


def _prepared(model: Retriever, embedding: Any, rows: np.ndarray, side: Any) -> Any:
    chosen = {name: tf.constant(np.asarray(values)[rows]) for name, values in embedding.items()}
    return model.matcher.prepare(chosen, side)


def _counts(
    model: Retriever, loss: Any, image: Any, caption: Any, related: Any
) -> np.ndarray | None:
    """Negatives with a gradient of each image and of each caption: int (2, N)."""
    scores = model.matcher(image, caption)
    more = {"step": tf.constant(_LATE, tf.int64)} if loss.contract.reads_step else {}
    with tf.GradientTape() as tape:
        tape.watch(scores)
        value = sum(loss(scores, image, caption, related, **more).values())
    gradient = tape.gradient(value, scores)
    if gradient is None:
        return None
    size, negative = np.abs(gradient.numpy()), ~related["positives"].numpy()
    counts = []
    for axis in (1, 0):
        pushed = (size > 0) & (size >= _LEAST * size.max(axis, keepdims=True))
        counts.append((pushed & negative).sum(axis))
    return np.stack(counts)
