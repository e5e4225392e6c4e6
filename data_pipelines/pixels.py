"""From the bytes of an image file to pixels, with Pillow and NumPy: the definition for all uses.

An image file is decoded by the standard of its format to RGB with 8 bits per channel:

* the first frame is taken;
* the EXIF orientation is applied (XMP is ignored);
* transparent pixels are blended with white;
* of 16 bits the upper 8 are taken;
* CMYK is white minus each ink and minus black;
* colour profiles are ignored.

Records store JPEG files. So a file that is not an upright JPEG in RGB or grey is encoded as one
(`stored_jpeg`), and a model sees pixels of that JPEG: the centre, resized (`evaluation_pixels`).

`data_pipelines.image_decoding` computes the same in TensorFlow graphs, for batches and exported
models. This module does not import TensorFlow.
"""

from __future__ import annotations

import io
import math
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import PurePath
from typing import Any, BinaryIO, Literal, Protocol

import numpy as np
from PIL import Image, UnidentifiedImageError

from data_pipelines.photo_files import RAW_SUFFIXES, UnreadableError
from keras_xmr.utils.installing import install_command

MAX_PIXELS = 1024**3 // 4 // 3
"""Maximum number of pixels: 256 MB as RGB, which is also Pillow's limit."""

# Without formats for which Pillow starts another program, such as EPS.
_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "AVIF")
_BEGINNINGS = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"RIFF", b"BM", b"II*\0", b"MM\0*")
_HEIF = {b"ftyp" + brand for brand in (b"heic", b"heix", b"hevc", b"hevx", b"mif1", b"msf1")}
_AVIF = (b"ftypavif", b"ftypavis")
_ORIENTATION, _SHORT = 0x0112, 3
_QUALITY = 95
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class PixelOptions(Protocol):
    """Options that determine the pixels that a model sees, such as `ImageOptions`."""

    @property
    def size(self) -> int:
        """Height and width of the input of the model."""

    @property
    def resize(self) -> int:
        """Length of the short side before the centre is cropped."""

    @property
    def fit(self) -> Literal["center", "stretch"]:
        """Part of the photo."""

    @property
    def interpolation(self) -> Literal["bilinear", "bicubic"]:
        """Interpolation."""

    @property
    def store_side(self) -> int | None:
        """Maximum length of the short side of stored photos."""


def evaluation_pixels(data: bytes, name: str, options: PixelOptions) -> np.ndarray:
    """Decodes an image file to the pixels that a model sees in evaluation.

    Args:
        data: The bytes of the file.
        name: Name of the file, for the error message.
        options: Options of storing and decoding.

    Returns:
        Pixels uint8 (size, size, 3).

    Raises:
        UnreadableError: If it is not an image, is broken, or has too many pixels.
    """
    return stored_pixels(stored_jpeg(data, name, options.store_side), name, options)


def stored_jpeg(data: bytes, name: str, store_side: int | None = None) -> bytes:
    """Converts an image file to the JPEG file that records store.

    An upright JPEG in RGB or grey that is not resized is kept, without decoding it. Pixels of all
    other files are encoded as a JPEG.

    Args:
        data: The bytes of the file.
        name: Name of the file, for the error message.
        store_side: Maximum length of the short side; None keeps all pixels.

    Raises:
        UnreadableError: If it is not an image, is broken, or has too many pixels.
    """
    with naming(data, name):
        image = open_image(data)
        shrinks = store_side is not None and min(image.size) > store_side
        if not shrinks and is_plain_jpeg(image):
            return data
        pixels = Image.fromarray(pixels_of(image, data))
        if store_side is not None and shrinks:
            width, height = (round(side * store_side / min(pixels.size)) for side in pixels.size)
            pixels = _scaled(pixels, width, height, Image.Resampling.LANCZOS)
        return encode(pixels, quality=_QUALITY, subsampling=0)


def stored_pixels(jpeg: bytes, name: str, options: PixelOptions) -> np.ndarray:
    """Decodes the JPEG of a record to the pixels that a model sees in evaluation.

    Args:
        jpeg: The bytes of the file, from `stored_jpeg`.
        name: Name of the file, for the error message.
        options: Options of decoding.

    Returns:
        Pixels uint8 (size, size, 3).

    Raises:
        UnreadableError: If it is broken.
    """
    pixels, size = read_pixels(jpeg, name), options.size
    if options.fit == "stretch" or options.interpolation == "bicubic":
        return _scaled_whole(Image.fromarray(pixels), options)
    height, width = pixels.shape[:2]
    # As in graphs, in single precision.
    exact = np.float32(min(height, width)) * np.float32(size) / np.float32(options.resize)
    side = max(1, int(np.rint(exact)))
    top, left = (height - side) // 2, (width - side) // 2
    return _resized(pixels[top : top + side, left : left + side], size)


def read_pixels(data: bytes, name: str) -> np.ndarray:
    """Decodes an image file to pixels uint8 (H, W, 3).

    Args:
        data: The bytes of a JPEG, PNG, GIF, BMP, WebP, TIFF or AVIF file, or of a HEIC file where
            `pillow-heif` is installed.
        name: Name of the file, for the error message.

    Raises:
        UnreadableError: If it is not such a file, is broken, or has too many pixels.
    """
    with naming(data, name):
        return pixels_of(open_image(data), data)


@contextmanager
def naming(data: bytes, name: str) -> Iterator[None]:
    """Converts exceptions of Pillow to errors that name the image file.

    Raises:
        UnreadableError: If Pillow raises an exception.
    """
    # Many are TIFF files that begin with a thumbnail.
    if PurePath(name).suffix.lower() in RAW_SUFFIXES and not data.startswith(_BEGINNINGS[:4]):
        raise UnreadableError(
            f"{name} is a camera RAW file, which is not supported; save it as JPEG"
        )
    try:
        yield
    except UnidentifiedImageError:
        if _is_heif(data) and not _reads_heif():
            raise UnreadableError(
                f"{name} is a HEIC file, as phones write them; {install_command('heic')} reads it, "
                "or save it as JPEG"
            ) from None
        if data.startswith(_BEGINNINGS) or _is_heif(data) or data[4:12] in _AVIF:
            raise UnreadableError(f"{name} is a broken image: it is cut off") from None
        if not data:
            raise UnreadableError(f"{name} is empty: its file has no bytes") from None
        if data[4:8] == b"ftyp":
            raise UnreadableError(f"{name} is a video, not an image") from None
        raise UnreadableError(
            f"{name} is not an image of a known format (it begins with {repr(data[:8])[1:]})"
        ) from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise UnreadableError(f"{name} has more than {MAX_PIXELS:,} pixels") from None
    except (OSError, SyntaxError, ValueError, struct.error) as error:
        raise UnreadableError(f"{name} is a broken image: {error}") from None


def open_image(data: bytes | BinaryIO) -> Image.Image:
    """Opens an image file of a known format and size; only the header is read.

    The size is checked here: Pillow only warns, and filters of warnings are shared by all threads.

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
    """Returns whether a file begins like a HEIC file."""
    return data[4:12] in _HEIF


@cache
def _reads_heif() -> bool:
    """Registers HEIC files with Pillow if the package is installed; returns whether it is."""
    try:
        import pillow_heif
    except ImportError:
        return False
    pillow_heif.register_heif_opener()
    return True


def is_plain_jpeg(image: Image.Image) -> bool:
    """Returns whether an image file is an upright JPEG file in RGB or grey."""
    plain = image.format in ("JPEG", "MPO") and image.mode in ("RGB", "L")
    return plain and _orientation(image) == 1


def pixels_of(image: Image.Image, data: bytes) -> np.ndarray:
    """Returns the pixels, uint8 (H, W, 3), of an image that `open_image` opened."""
    image.load()
    depth = data[24] if image.format == "PNG" else 8
    if depth == 16 and "transparency" in image.info and image.mode in ("RGB", "I;16"):
        pixels = on_white(_with_deep_transparency(image, data))
    else:
        pixels = _rgb(image, depth)
    turn = _UPRIGHT.get(_orientation(image))
    return pixels if turn is None else np.asarray(Image.fromarray(pixels).transpose(turn))


def _rgb(image: Image.Image, depth: int) -> np.ndarray:
    """Converts an image to pixels uint8 (H, W, 3); a PNG file has `depth` bits per channel."""
    if "transparency" in image.info and image.mode == "L":
        # Of a PNG file with few bits per channel, scaled to 8 bits as its pixels are.
        image.info["transparency"] *= 255 // (2**depth - 1)
    if image.mode.startswith("I;16") or (image.mode == "I" and depth == 16):
        grey = (np.asarray(image) >> 8).astype(np.uint8)
        return np.repeat(grey[..., None], 3, axis=-1)
    if image.mode == "P" and image.palette is None:
        raise ValueError("its palette is missing")
    if image.mode in ("I", "F"):
        raise ValueError(
            f"it has 32 bits per channel ({image.mode}) of unknown range; save it with 8 or 16 bits"
        )
    if image.mode == "CMYK":
        paper = 255 - np.asarray(image).astype(np.uint16)
        return (paper[..., :3] * paper[..., 3:] // 255).astype(np.uint8)
    if image.has_transparency_data:
        return on_white(np.asarray(image.convert("RGBA")))
    return np.asarray(image.convert("RGB"))


def on_white(pixels: np.ndarray) -> np.ndarray:
    """Blends pixels with opacity, uint8 (H, W, 4), with white, to uint8 (H, W, 3)."""
    colour, opacity = pixels[..., :3].astype(np.uint16), pixels[..., 3:].astype(np.uint16)
    return ((colour * opacity + 255 * (255 - opacity) + 127) // 255).astype(np.uint8)


def _resized(pixels: np.ndarray, size: int) -> np.ndarray:
    """Resizes a square by bilinear interpolation with antialiasing, in floats, to uint8."""
    if len(pixels) == size:
        return pixels
    channels = [Image.fromarray(pixels[..., c].astype(np.float32)) for c in range(3)]
    resized = [c.resize((size, size), Image.Resampling.BILINEAR) for c in channels]
    return np.rint(np.stack(resized, axis=-1)).astype(np.uint8)


def _scaled_whole(image: Image.Image, options: PixelOptions) -> np.ndarray:
    """Scales a photo as the preprocessors of CLIP and SigLIP do, uint8 (size, size, 3).

    The long side is rounded down where the centre is cropped.
    """
    size, (width, height) = options.size, image.size
    resample = Image.Resampling[options.interpolation.upper()]
    if options.fit == "stretch":
        return np.asarray(_scaled(image, size, size, resample))
    short = min(width, height)
    width, height = width * options.resize // short, height * options.resize // short
    scaled = np.asarray(_scaled(image, width, height, resample))
    top, left = (height - size) // 2, (width - size) // 2
    return scaled[top : top + size, left : left + size]


def _scaled(image: Image.Image, width: int, height: int, resample: Image.Resampling) -> Image.Image:
    """Scales columns first, then rows: Pillow 13 takes rows first where that is faster."""
    return image.resize((width, image.height), resample).resize((width, height), resample)


def encode(image: Image.Image, file_format: str = "JPEG", **options: Any) -> bytes:
    """Encodes an image as a file.

    Args:
        image: The image.
        file_format: Format of the file.
        **options: Options of Pillow for this format.
    """
    buffer = io.BytesIO()
    image.save(buffer, file_format, **options)
    return buffer.getvalue()


def orientation(exif: bytes) -> int:
    """Returns the orientation in EXIF data from 1 (upright) to 8, 1 by default."""
    exif = exif.removeprefix(b"Exif\0\0")
    order = "<" if exif[:2] == b"II" else ">"
    try:
        (start,) = struct.unpack_from(f"{order}I", exif, 4)
        (count,) = struct.unpack_from(f"{order}H", exif, start)
        for entry in range(start + 2, start + 2 + 12 * count, 12):
            tag, field_type, number, value = struct.unpack_from(f"{order}HHIHxx", exif, entry)
            if (tag, field_type, number) == (_ORIENTATION, _SHORT, 1):
                return value if 1 <= value <= 8 else 1
    except struct.error:
        pass  # The data end too early.
    return 1


def _orientation(image: Image.Image) -> int:
    if image.format == "TIFF":
        # Newer versions of Pillow rotate TIFF files, and remove the tag.
        return int(image.getexif().get(_ORIENTATION, 1))
    return orientation(image.info.get("exif", b""))


def _with_deep_transparency(image: Image.Image, data: bytes) -> np.ndarray:
    """Returns the pixels, uint8 (H, W, 4), of a PNG file with a transparent colour of 16 bits.

    A pixel is transparent if all of its 16 bits equal the colour. Pillow reads the upper 8 bits of
    a colour, or the lower ones where it takes its bytes for reversed.
    """
    if image.mode == "RGB":
        reversed_image = open_image(data)
        reversed_image.tile = [(*tile[:3], "RGB;16L") for tile in reversed_image.tile]
        upper, lower = np.asarray(image), np.asarray(reversed_image)
    else:
        values = np.repeat(np.asarray(image).astype(np.uint16)[..., None], 3, axis=-1)
        upper, lower = (values >> 8).astype(np.uint8), (values & 255).astype(np.uint8)
    colour = np.broadcast_to(np.asarray(image.info["transparency"], np.uint16), 3)
    is_clear = ((upper == colour >> 8) & (lower == colour & 255)).all(axis=-1)
    return np.dstack([upper, np.where(is_clear, 0, 255).astype(np.uint8)])


def thumbnail(data: bytes, name: str, size: int) -> bytes:
    """Returns a small JPEG of a photo, the right way up and on white.

    Args:
        data: The bytes of its file.
        name: Name of the file, for the message.
        size: The longer side, in pixels.

    Raises:
        UnreadableError: If it is broken.
    """
    with naming(data, name):
        image = open_image(data)
        # JPEG is decoded no larger than it needs to be, which takes a fraction of the time.
        shrink = 2 * size / max(image.size)
        image.draft(None, tuple(max(1, int(shrink * side)) for side in image.size))
        small = Image.fromarray(pixels_of(image, data))
    small.thumbnail((size, size))
    return encode(small, quality=80)


def reduced(data: bytes, name: str, most: int) -> bytes:
    """Decodes an image file, and returns it or, if it is larger, a smaller JPEG.

    Args:
        data: The bytes of the file.
        name: Name of the file, for the message.
        most: Maximum number of pixels.

    Raises:
        UnreadableError: If it is broken.
    """
    with naming(data, name):
        image = open_image(data)
        factor = math.sqrt(image.width * image.height / most)
        if factor <= 1:
            pixels_of(image, data)
            return data
        size = [max(1, int(side / factor)) for side in image.size]
        image.draft(None, (size[0], size[1]))
        small = Image.fromarray(pixels_of(_coarse(image, data, most), data))
    small.thumbnail((max(size), max(size)))
    return encode(small, quality=95, subsampling=0)


def _coarse(image: Image.Image, data: bytes, most: int) -> Image.Image:
    """Averages blocks of pixels of a large image, where this does not change their meaning."""
    has_bytes = image.format != "TIFF" and (image.format != "PNG" or data[24] == 8)
    if not (has_bytes and image.mode in ("RGB", "RGBA", "L", "P")):
        return image
    if image.has_transparency_data:
        image = image.convert("RGBA")
    elif image.mode == "P":
        image = image.convert("RGB")
    factor = int(math.sqrt(image.width * image.height / most))
    return image.reduce(factor) if factor > 1 else image
