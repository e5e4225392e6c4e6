"""Attention maps of the head of an image tower."""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np

from keras_xmr.model.towers import features_of


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
