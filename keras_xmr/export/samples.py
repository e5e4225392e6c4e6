"""Image files on which an exported model is compared with the pixels of training."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image

_ORIENTATION = 0x0112


def image_files() -> dict[str, bytes]:
    """Makes small image files of every format, by their format and property."""
    random = np.random.default_rng(0)
    photo = Image.fromarray(random.integers(0, 256, (7, 9, 3), np.uint8)).resize((131, 97))
    opacity = Image.linear_gradient("L").resize(photo.size)
    transparent, palette = photo.copy(), photo.quantize(32)
    transparent.putalpha(opacity)
    deep = Image.fromarray(random.integers(0, 2**16, (97, 131), np.uint16))
    turned = Image.Exif()
    turned[_ORIENTATION] = 6
    return {
        "plain JPEG": _file(photo, "JPEG"),
        "rotated JPEG": _file(photo, "JPEG", exif=turned),
        "grey JPEG": _file(photo.convert("L"), "JPEG"),
        "CMYK JPEG": _file(Image.merge("CMYK", [*photo.split(), opacity]), "JPEG"),
        "transparent PNG": _file(transparent, "PNG"),
        "palette PNG": _file(palette, "PNG", transparency=palette.getpixel((65, 48))),
        "16-bit PNG": _file(deep, "PNG"),
        "GIF": _file(palette, "GIF", transparency=palette.getpixel((65, 48))),
        "BMP": _file(photo, "BMP"),
    }


def some_inputs(tower: Any) -> np.ndarray:
    """A few random inputs of an image tower: pixels uint8 (3, H, W, 3), or regions float32."""
    random = np.random.default_rng(0)
    shape = [size or 3 for size in (3, *tower.input_shape[1:])]
    if tower.input.dtype == "uint8":
        return random.integers(0, 256, shape, np.uint8)
    return random.normal(size=shape).astype(np.float32)


def _file(image: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    # Of JPEG files in which colour is coarser than brightness, a part is not decoded quite as
    # the whole is.
    image.save(buffer, kind, **({"subsampling": 0} if kind == "JPEG" else {}), **options)
    return buffer.getvalue()
