"""Attention maps of a photo as images."""

from __future__ import annotations

import io
from collections.abc import Mapping

import numpy as np
from PIL import Image

from keras_xmr.reporting.heat import named_maps, overlay

_LEAST = 288


def render_attention(pixels: np.ndarray, maps: Mapping[str, np.ndarray]) -> dict[str, bytes]:
    """Renders a photo under each attention map, as JPEG files by the names of the maps.

    Args:
        pixels: Its pixels, uint8 (size, size, 3); small ones are enlarged.
        maps: Maps (K, n, n) by name.
    """
    side = max(_LEAST, len(pixels))
    seen = np.asarray(Image.fromarray(pixels).resize((side, side), Image.Resampling.BICUBIC))
    return {name: _jpeg(overlay(seen, weights)) for name, weights in named_maps(maps).items()}


def _jpeg(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=85)
    return buffer.getvalue()
