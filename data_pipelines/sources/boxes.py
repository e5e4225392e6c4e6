"""Boxes of regions as additional features."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def with_boxes(features: np.ndarray, boxes: np.ndarray, size: tuple[float, float]) -> np.ndarray:
    """Appends the box and the area of each region to its features.

    Args:
        features: Float (R, F).
        boxes: Left, top, right and bottom of each region (R, 4), in pixels.
        size: Width and height of the image, in pixels; (1, 1) if boxes are relative already.

    Returns:
        Float32 (R, F + 5): the last columns are x1, y1, x2, y2 and the area, from 0 to 1.

    Raises:
        ValueError: If a box exceeds the image by more than one pixel, or its corners are not in
            this order.
    """
    import numpy as np

    width, height = size
    places = np.asarray(boxes, np.float32) / np.array([width, height, width, height], np.float32)
    slack = 1 / min(width, height) if min(width, height) > 1 else 1e-3
    if not (np.isfinite(places).all() and (places >= -slack).all() and (places <= 1 + slack).all()):
        raise ValueError(f"a box is outside of its image of {width:g} x {height:g}")
    places = places.clip(0, 1)
    sides = places[:, 2:] - places[:, :2]
    if (sides < 0).any():
        raise ValueError("a box is not left, top, right, bottom")
    area = sides.prod(axis=1, keepdims=True)
    return np.concatenate([features, places, area], axis=1, dtype=np.float32)
