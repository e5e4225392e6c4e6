"""Inspects a model on a split: attention on a few photos, and negatives with a gradient."""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from data_pipelines.images import decode_for_evaluation
from data_pipelines.records import SplitRecords
from keras_xmr.config.model_compatibility import attends
from keras_xmr.config.schema import Config
from keras_xmr.evaluation.results import Attention, EmbeddedSplit, GradientCounts
from keras_xmr.model.objective import relations
from keras_xmr.model.retriever import Retriever
from keras_xmr.model.towers import features_of

PHOTOS = 4
"""Number of photos shown."""


def compute_attention(
    model: Retriever, part: SplitRecords, config: Config, kept: SplitRecords | None = None
) -> Attention | None:
    """Attention maps of the image head on photos spread over a split.

    Args:
        model: The model.
        part: The split.
        config: The config of the run.
        kept: The split with features in place of its images, if these are kept.

    Returns:
        The maps; None for a model of regions or without attention over places.
    """
    if not (len(part) and attends(config)):
        return None
    chosen = np.linspace(0, len(part) - 1, min(PHOTOS, len(part))).round().astype(int).tolist()
    seen = [decode_for_evaluation(part.encoded(i), config.data.image).numpy() for i in chosen]
    attention = ImageAttention(model.image_tower)
    if kept is not None and kept.holds == "regions":
        maps = attention.of_features(kept.regions(np.array(chosen)))
    else:
        maps = attention(np.stack(seen))
    return Attention([part.image_keys[i] for i in chosen], np.stack(seen), maps) if maps else None


class ImageAttention:
    """Attention of the head of an image tower, as maps over the image.

    Args:
        tower: The tower, which takes pixels.
    """

    def __init__(self, tower: keras.Model) -> None:
        self._features, self._head = features_of(tower), tower.get_layer("head")

    def __call__(self, pixels: Any) -> dict[str, np.ndarray]:
        """Maps of some images (Wei et al. 2023, Fig. 10).

        Args:
            pixels: Images uint8 (N, size, size, 3).

        Returns:
            Maps float32 (N, K, n, n) by name, rows from above: the weight of each position.
            Tokens without a position, such as a class token, are omitted. Empty where features
            have no positions, or the head does not attend to them.
        """
        features = self._features(pixels, training=False)
        return self.of_features(*(features if isinstance(features, list | tuple) else [features]))

    def of_features(self, features: Any, mask: Any = None) -> dict[str, np.ndarray]:
        """The same for local features (N, L, F) of the encoder, and their mask (N, L)."""
        side = math.isqrt(features.shape[1])
        if side < 2:
            return {}
        maps = self._head.attention_maps(features, mask)
        return {name: _reshape_to_grid(np.asarray(weights), side) for name, weights in maps.items()}


def _reshape_to_grid(weights: np.ndarray, side: int) -> np.ndarray:
    """Weights (N, K, L) as (N, K, side, side): images are square, other tokens come first."""
    places: np.ndarray = weights[:, :, weights.shape[2] - side * side :]
    return places.reshape(*weights.shape[:2], side, side).astype(np.float32)


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
    with tf.GradientTape() as tape:
        tape.watch(scores)
        parts = loss.parts(scores, image, caption, related, tf.constant(_LATE, tf.int64))
        value = sum(parts.values())
    gradient = tape.gradient(value, scores)
    if gradient is None:
        return None
    size, negative = np.abs(gradient.numpy()), ~related["positives"].numpy()
    counts = []
    for axis in (1, 0):
        pushed = (size > 0) & (size >= _LEAST * size.max(axis, keepdims=True))
        counts.append((pushed & negative).sum(axis))
    return np.stack(counts)
