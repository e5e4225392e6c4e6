"""Attention of a model on a few photos."""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np

from data_pipelines.image_decoding import decode_for_evaluation
from data_pipelines.records import SplitRecords
from keras_xmr.experiments.config.model_facts import attends
from keras_xmr.experiments.config.schema import Config
from keras_xmr.experiments.evaluation.split_evaluation import Attention
from keras_xmr.model.retriever import Retriever
from keras_xmr.model.towers import features_of

PHOTOS = 4
"""Number of photos shown."""


def compute_attention(
    model: Retriever, split_records: SplitRecords, config: Config, kept: SplitRecords | None = None
) -> Attention | None:
    """Returns attention maps of the image head on photos spread over a split.

    Args:
        model: The model.
        split_records: The split.
        config: The config of the run.
        kept: The split with features in place of its images, if these are kept.

    Returns:
        The maps; None for a model of regions or without attention over places.
    """
    if not (len(split_records) and attends(config)):
        return None
    chosen = (
        np.linspace(0, len(split_records) - 1, min(PHOTOS, len(split_records)))
        .round()
        .astype(int)
        .tolist()
    )
    seen = [
        decode_for_evaluation(split_records.encoded(i), config.data.image).numpy() for i in chosen
    ]
    attention = ImageAttention(model.image_tower)
    if kept is not None and kept.holds == "regions":
        maps = attention.of_features(kept.regions(np.array(chosen)))
    else:
        maps = attention(np.stack(seen))
    return (
        Attention([split_records.image_keys[i] for i in chosen], np.stack(seen), maps)
        if maps
        else None
    )


class ImageAttention:
    """Attention of the head of an image tower, as maps over the image.

    Args:
        tower: The tower, which takes pixels.
    """

    def __init__(self, tower: keras.Model) -> None:
        self._features, self._head = features_of(tower), tower.get_layer("head")

    def __call__(self, pixels: Any) -> dict[str, np.ndarray]:
        """Returns the attention weights of some images as maps.

        The heat maps of Wei et al. 2023, Fig. 10, are other ones: `figures.heat_maps`.

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
        """Returns the same for local features (N, L, F) of the encoder, and their mask (N, L)."""
        side = math.isqrt(features.shape[1])
        if side < 2:
            return {}
        maps = self._head.attention_maps(features, mask)
        return {name: _reshape_to_grid(np.asarray(weights), side) for name, weights in maps.items()}


def _reshape_to_grid(weights: np.ndarray, side: int) -> np.ndarray:
    """Returns weights (N, K, L) as (N, K, side, side): images are square, other tokens come
    first.
    """
    places: np.ndarray = weights[:, :, weights.shape[2] - side * side :]
    return places.reshape(*weights.shape[:2], side, side).astype(np.float32)
