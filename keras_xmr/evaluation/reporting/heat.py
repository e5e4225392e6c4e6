"""Maps of attention over photos."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from PIL import Image

# From cold to hot: blue, green, yellow, red.
_STOPS = (0.0, 0.35, 0.7, 1.0)
_COLOURS = np.array([(30, 40, 140), (40, 170, 120), (250, 220, 60), (220, 30, 30)], np.float32)
_STRENGTH = 0.55


def overlay(pixels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """A photo under the colours of a map: red where the weight is largest, blue where it is 0.

    Args:
        pixels: The photo, uint8 (H, W, 3).
        weights: The map, from 0 (h, w), over the whole photo.

    Returns:
        Pixels uint8 (H, W, 3).
    """
    top = float(weights.max())
    part = Image.fromarray((weights / top if top > 0 else weights).astype(np.float32))
    height, width = pixels.shape[:2]
    heat = np.clip(np.asarray(part.resize((width, height), Image.Resampling.BICUBIC)), 0, 1)
    colour = np.stack([np.interp(heat, _STOPS, channel) for channel in _COLOURS.T], axis=-1)
    mixed = (1 - _STRENGTH) * pixels + _STRENGTH * colour
    return np.asarray(np.round(mixed), np.uint8)


def named_maps(maps: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The maps of several sets by name.

    Args:
        maps: By name, maps (K, h, w).

    Returns:
        By name, with a number where K > 1, maps (h, w).
    """
    return {
        f"{name} {number}" if len(several) > 1 else name: one
        for name, several in maps.items()
        for number, one in enumerate(several, 1)
    }
