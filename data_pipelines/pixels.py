"""The pixels of an image file: what preparing, evaluating, serving and indexing mean by them.

Pixels are RGB, 8 bits a channel, as the standard of the format decodes them, and then

* the first frame, where there are several;
* the right way up, by the orientation of the EXIF data (of XMP's, nothing is read);
* on white, where they are transparent;
* the upper 8 of 16 bits;
* of CMYK, what is left of white once each ink and the black have been taken away;
* without colour management: profiles are ignored.

This module reads them with Pillow and is the reference. `data_pipelines.image_decoding` reads the
same in a graph of TensorFlow, for exported models. This module does not need TensorFlow.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import PurePath
from typing import BinaryIO

import numpy as np
from PIL import Image, UnidentifiedImageError

from data_pipelines.sources.base import RAW_SUFFIXES, UnreadableError

MAX_PIXELS = 1024**3 // 4 // 3
"""Larger images are refused: 256 MB as RGB, which is Pillow's limit too."""

# No format for which Pillow starts another program, as EPS does.
_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "AVIF")
_BEGINNINGS = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"RIFF", b"BM", b"II*\0", b"MM\0*")
_HEIF = {b"ftyp" + brand for brand in (b"heic", b"heix", b"hevc", b"hevx", b"mif1", b"msf1")}
_AVIF = (b"ftypavif", b"ftypavis")
_ORIENTATION, _SHORT = 0x0112, 3
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def read_pixels(data: bytes, name: str) -> np.ndarray:
    """The pixels of an image file, uint8 (H, W, 3).

    Args:
        data: The bytes of a JPEG, PNG, GIF, BMP, WebP, TIFF or AVIF file, or of a HEIC file where
            `pillow-heif` is installed.
        name: Its name, for the error message.

    Raises:
        UnreadableError: If it is not such a file, a broken one, or one of too many pixels.
    """
    with naming(data, name):
        return pixels_of(open_image(data), data)


@contextmanager
def naming(data: bytes, name: str) -> Iterator[None]:
    """Says which image file is meant when it cannot be read.

    Raises:
        UnreadableError: In place of what Pillow raises.
    """
    # Many begin as TIFF files, whose first image is a thumbnail.
    if PurePath(name).suffix.lower() in RAW_SUFFIXES and not data.startswith(_BEGINNINGS[:4]):
        raise UnreadableError(
            f"{name} is a RAW file of a camera, which is not read; save it as JPEG"
        )
    try:
        yield
    except UnidentifiedImageError:
        if _is_heif(data) and not _reads_heif():
            raise UnreadableError(
                f"{name} is a HEIC file, as phones write them; pip install 'keras-xmr[heic]' to "
                "read it, or save it as JPEG"
            ) from None
        if data.startswith(_BEGINNINGS) or _is_heif(data) or data[4:12] in _AVIF:
            raise UnreadableError(f"{name} is a broken image: it is cut off") from None
        if not data:
            raise UnreadableError(f"{name} is empty: its file has no bytes") from None
        if data[4:8] == b"ftyp":
            raise UnreadableError(f"{name} is a film, not an image") from None
        raise UnreadableError(
            f"{name} is not an image of a known format (it begins with {repr(data[:8])[1:]})"
        ) from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise UnreadableError(f"{name} has more than {MAX_PIXELS:,} pixels") from None
    except (OSError, SyntaxError, ValueError, struct.error) as error:
        raise UnreadableError(f"{name} is a broken image: {error}") from None


def open_image(data: bytes | BinaryIO) -> Image.Image:
    """An image file of a known format and size, of which nothing but the header is read.

    Its size is compared here: Pillow's own check is a warning, and filters of warnings are shared
    by all threads.

    Args:
        data: The bytes of the file, or the file, open at its beginning.

    Raises:
        PIL.Image.DecompressionBombError: If it has more than `MAX_PIXELS` pixels.
        OSError: If it is not an image.
    """
    file = io.BytesIO(data) if isinstance(data, bytes) else data
    heif = ("HEIF",) if _is_heif(file.read(12)) and _reads_heif() else ()
    file.seek(0)
    image = Image.open(file, formats=(*_FORMATS, *heif))
    if image.width * image.height > MAX_PIXELS:
        raise Image.DecompressionBombError
    return image


def _is_heif(data: bytes) -> bool:
    """Whether a file begins as HEIC files do."""
    return data[4:12] in _HEIF


@cache
def _reads_heif() -> bool:
    """Has Pillow read HEIC files, if the package for it is installed."""
    try:
        import pillow_heif
    except ImportError:
        return False
    pillow_heif.register_heif_opener()
    return True


def is_plain_jpeg(image: Image.Image) -> bool:
    """Whether an image file is an upright JPEG file in RGB or grey."""
    plain = image.format in ("JPEG", "MPO") and image.mode in ("RGB", "L")
    return plain and _orientation(image) == 1


def pixels_of(image: Image.Image, data: bytes) -> np.ndarray:
    """The pixels of an image that `open_image` gave for these bytes, uint8 (H, W, 3)."""
    image.load()
    pixels = _rgb(image, data[24] if image.format == "PNG" else 8)
    turn = _UPRIGHT.get(_orientation(image))
    return pixels if turn is None else np.asarray(Image.fromarray(pixels).transpose(turn))


def _rgb(image: Image.Image, depth: int) -> np.ndarray:
    """Pixels uint8 (H, W, 3), of which a PNG file has `depth` bits a channel."""
    if "transparency" in image.info and depth != 8:
        _scale_transparency(image, depth)
    if image.mode.startswith("I;16") or (image.mode == "I" and depth == 16):
        grey = (np.asarray(image) >> 8).astype(np.uint8)
        return np.repeat(grey[..., None], 3, axis=-1)
    if image.mode == "P" and image.palette is None:
        raise ValueError("its palette is missing")
    if image.mode in ("I", "F"):
        raise ValueError(
            f"it has 32 bits a channel ({image.mode}), whose range is not known; "
            "save it with 8 or 16 bits"
        )
    if image.mode == "CMYK":
        paper = 255 - np.asarray(image).astype(np.uint16)
        return (paper[..., :3] * paper[..., 3:] // 255).astype(np.uint8)
    if image.has_transparency_data:
        return on_white(np.asarray(image.convert("RGBA")))
    return np.asarray(image.convert("RGB"))


def on_white(pixels: np.ndarray) -> np.ndarray:
    """Colours on white, uint8 (H, W, 3), of pixels with opacity, uint8 (H, W, 4)."""
    colour, opacity = pixels[..., :3].astype(np.uint16), pixels[..., 3:].astype(np.uint16)
    return ((colour * opacity + 255 * (255 - opacity) + 127) // 255).astype(np.uint8)


def orientation(exif: bytes) -> int:
    """The orientation from 1 (upright) to 8 that EXIF data give, and 1 if they give none."""
    exif = exif.removeprefix(b"Exif\0\0")
    order = "<" if exif[:2] == b"II" else ">"
    try:
        (start,) = struct.unpack_from(f"{order}I", exif, 4)
        (count,) = struct.unpack_from(f"{order}H", exif, start)
        for entry in range(start + 2, start + 2 + 12 * count, 12):
            tag, kind, number, value = struct.unpack_from(f"{order}HHIHxx", exif, entry)
            if (tag, kind, number) == (_ORIENTATION, _SHORT, 1):
                return value if 1 <= value <= 8 else 1
    except struct.error:
        pass  # It ends before what it announces.
    return 1


def _orientation(image: Image.Image) -> int:
    if image.format == "TIFF":
        # Its own tags; newer versions of Pillow turn it themselves, and remove the tag.
        found: int = image.getexif().get(_ORIENTATION, 1)
        return found
    return orientation(image.info.get("exif", b""))


def _scale_transparency(image: Image.Image, depth: int) -> None:
    """Makes the transparent grey of a PNG file one of 8 bits, as its pixels are."""
    if depth == 16:
        raise ValueError("a transparent colour of 16 bits is not known; save it with 8 bits")
    if image.mode == "L":
        image.info["transparency"] *= 255 // (2**depth - 1)
