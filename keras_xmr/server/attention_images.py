"""Where the model looks in a photo, as pictures."""

from __future__ import annotations

import io
from collections.abc import Mapping

import numpy as np
from PIL import Image

from keras_xmr.reporting.heat import named_maps, overlay

_LEAST = 288


def pictures_of(pixels: np.ndarray, maps: Mapping[str, np.ndarray]) -> dict[str, bytes]:
    """What the model sees of a photo, under each map, as JPEG files by the names of the maps.

    Args:
        pixels: What it sees, uint8 (size, size, 3); small pictures are enlarged.
        maps: By name, maps (K, n, n).
    """
    side = max(_LEAST, len(pixels))
    seen = np.asarray(Image.fromarray(pixels).resize((side, side), Image.Resampling.BICUBIC))
    return {name: _jpeg(overlay(seen, weights)) for name, weights in named_maps(maps).items()}


def _jpeg(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=85)
    return buffer.getvalue()
