"""Headers of image files, parsed in a TensorFlow graph before the image is decoded.

A graph cannot catch the error of a decoder, so the structure of a file is checked before: its
format, its number of pixels, whether it is cut off. An exported model depends on this module for
the orientation and transparency of photos.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from data_pipelines.pixels import MAX_PIXELS

JPEG, PNG, GIF, BMP, OTHER = range(5)

# Limits the parts that are read, so that no file keeps a server busy. PNG files of 100 million
# bytes, and GIF files with a first frame of 5 million, have this many.
_loop = partial(tf.while_loop, maximum_iterations=20_000)

_ORIENTATION, _SHORT = 0x0112, 3
_FRAMES = [code for code in range(0xC0, 0xD0) if code not in (0xC4, 0xC8, 0xCC)]
_DAMAGED = "is a broken image: it is cut off or damaged"


class Frame(NamedTuple):
    """Offsets of the first frame of a GIF file, scalar tensors int64.

    Attributes:
        begin: Its begin; 0 without a frame.
        end: Its end; 0 if it is cut off.
        shared: End of the part that all frames share: sizes, and a table of colours.
        transparent: Offset of the transparent colour; 0 without one.
    """

    begin: tf.Tensor
    end: tf.Tensor
    shared: tf.Tensor
    transparent: tf.Tensor


class Header(NamedTuple):
    """Header of an image file, as scalar tensors.

    Attributes:
        height: Height of the image as stored, int64.
        width: Width of the image as stored, int64.
        problem: Reason why it cannot be decoded, string; empty if it can.
        kind: Index of its format, int32.
        orientation: EXIF orientation from 1 (upright) to 8, int64.
        transparent: Whether a PNG file has transparent pixels, bool.
        frame: The first frame of a GIF file.
    """

    height: tf.Tensor
    width: tf.Tensor
    problem: tf.Tensor
    kind: tf.Tensor
    orientation: tf.Tensor
    transparent: tf.Tensor
    frame: Frame


class Bytes:
    """Bytes of a file as numbers, zero beyond its end.

    Args:
        values: The bytes, uint8 (N,).
    """

    _BEYOND = 16

    def __init__(self, values: tf.Tensor) -> None:
        self.size = tf.size(values, tf.int64)
        self._values = tf.concat([values, tf.zeros([self._BEYOND], tf.uint8)], axis=0)

    def numbers(
        self, at: tf.Tensor | int, *places: tuple[int, int], little: tf.Tensor | bool = False
    ) -> list[tf.Tensor]:
        """Reads numbers, scalars int64, at (offset, width in bytes) after a position."""
        begin = tf.clip_by_value(tf.cast(at, tf.int64), 0, self.size)
        values = tf.slice(self._values, begin[None], [max(offset + w for offset, w in places)])
        return _numbers(values, places, little)

    def table(
        self,
        at: tf.Tensor,
        rows: tf.Tensor,
        *places: tuple[int, int],
        little: tf.Tensor | bool = False,
    ) -> list[tf.Tensor]:
        """Reads columns, int64 (rows,), of a table at most `_BEYOND` bytes wide."""
        width = max(offset + w for offset, w in places)
        rows = tf.clip_by_value(rows, 0, (self.size - at) // width)
        values = tf.reshape(self._values[at : at + width * rows], [-1, width])
        return _numbers(values, places, little)

    def part(self, begin: tf.Tensor, end: tf.Tensor) -> Bytes:
        """Returns the bytes from `begin` to `end`."""
        return Bytes(self._values[begin : tf.minimum(end, self.size)])

    def has_after(self, at: tf.Tensor, first: int, second: int) -> tf.Tensor:
        """Whether two bytes are consecutive anywhere after a position."""
        values = self._values[at:]
        return tf.reduce_any((values[:-1] == first) & (values[1:] == second))


def read_header(data: tf.Tensor) -> Header:
    """Parses the header of an image file, and finds reasons why it cannot be decoded.

    Args:
        data: The bytes of the file, a scalar string.
    """
    file = Bytes(tf.io.decode_raw(data, tf.uint8))
    readers = [_jpeg, _png, _gif, _bmp, _other]
    kind = _kind(file)
    header = tf.switch_case(kind, [lambda read=read: read(file) for read in readers])
    return header._replace(kind=kind)


def _first_frame(file: Bytes) -> Frame:
    """Finds the first frame of a GIF file."""

    def step(*state: tf.Tensor) -> list[tf.Tensor]:
        at, inside, begin, end, key = state
        # Here begins a block, or a part of its content; the last part is empty.
        first, label, flags, index, colours = file.numbers(
            at, (0, 1), (1, 1), (3, 1), (6, 1), (9, 1)
        )
        extends, shows = ~inside & (first == 0x21), ~inside & (first == 0x2C)
        skip = _where(extends, 2, _where(shows, 11 + _colours(colours), file.size))
        ends = inside & (first == 0) & (begin > 0) & (at < file.size)
        return [
            at + _where(inside, first + 1, skip),
            ~inside | (first != 0),
            _where(shows, at, begin),
            _where(ends, at + 1, end),
            _where(extends & (label == 0xF9), _where(flags % 2 == 1, index, -1), key),
        ]

    (flags,) = file.numbers(10, (0, 1))
    shared = 13 + _colours(flags)
    none = tf.constant(0, tf.int64)
    _, _, begin, end, key = _loop(
        lambda at, inside, begin, end, key: (end == 0) & (at < file.size),
        step,
        [shared, tf.constant(False), none, none, none - 1],
    )
    (flags,) = file.numbers(begin, (9, 1))
    local = _colours(flags)
    table, size = _where(local > 0, begin + 10, 13), _where(local > 0, local, shared - 13)
    return Frame(begin, end, shared, _where((key >= 0) & (3 * key < size), table + 3 * key, 0))


def _kind(file: Bytes) -> tf.Tensor:
    """Returns the index of the format, from the first bytes."""
    beginnings = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"BM")
    first = file.numbers(0, *[(0, len(beginning)) for beginning in beginnings])
    known = [number == _number(name) for number, name in zip(first, beginnings, strict=True)]
    return tf.argmax(tf.stack([*known, tf.constant(True)]), output_type=tf.int32)


def _jpeg(file: Bytes) -> Header:
    """Reads all markers up to the first scan."""

    def step(*state: tf.Tensor) -> list[tf.Tensor]:
        at, frame, exif, adobe, _ = state
        first, code, length, name, height, width, channels = file.numbers(
            at, (0, 1), (1, 1), (2, 2), (4, 6), (5, 2), (7, 2), (9, 1)
        )
        ends = (first != 0xFF) | (code == 0xDA) | (code == 0xD9)
        skip = _where(code == 0xFF, 1, 2 + length)  # 0xFF is repeated to fill a gap.
        is_frame = tf.reduce_any(code == _FRAMES)
        is_exif = (code == 0xE1) & (name == _number(b"Exif\0\0")) & (exif[0] == 0)
        return [
            _where(ends, at, at + skip),
            _where(is_frame, [height, width, channels], frame),
            _where(is_exif, [at + 10, at + 2 + length], exif),
            adobe | ((code == 0xEE) & (name == _number(b"Adobe\0"))),
            ends,
        ]

    none, no = tf.zeros([], tf.int64), tf.constant(False)
    start = [none + 2, tf.stack([none] * 3), tf.stack([none] * 2), no, no]
    at, frame, exif, adobe, _ = _loop(lambda *state: ~state[-1], step, start)
    (scan,) = file.numbers(at, (0, 2))
    whole = (scan == 0xFFDA) & file.has_after(at, 0xFF, 0xD9)
    return _header(
        frame[0],
        frame[1],
        (~whole, _DAMAGED),
        ((frame[2] == 4) & ~adobe, "is a CMYK image without an Adobe marker; save it as RGB"),
        orientation=_orient(file.part(exif[0], exif[1])),
    )


def _png(file: Bytes) -> Header:
    """Reads all chunks: EXIF data may come last."""

    def step(*state: tf.Tensor) -> list[tf.Tensor]:
        at, keyed, exif, _ = state
        length, name = file.numbers(at, (0, 4), (4, 4))
        return [
            at + 12 + length,
            keyed | (name == _number(b"tRNS")),
            _where(name == _number(b"eXIf"), [at + 8, at + 8 + length], exif),
            name == _number(b"IEND"),
        ]

    none, no = tf.zeros([], tf.int64), tf.constant(False)
    _, keyed, exif, ended = _loop(
        lambda at, keyed, exif, ended: ~ended & (at < file.size),
        step,
        [none + 8, no, tf.stack([none] * 2), no],
    )
    width, height, depth, colours = file.numbers(16, (0, 4), (4, 4), (8, 1), (9, 1))
    return _header(
        height,
        width,
        (~ended, _DAMAGED),
        (keyed & (depth == 16), "has a transparent colour of 16 bits; save it with 8 bits"),
        orientation=_orient(file.part(exif[0], exif[1])),
        transparent=keyed | (colours == 4) | (colours == 6),
    )


def _gif(file: Bytes) -> Header:
    """Reads the first frame, which must be complete and fill the image."""
    frame = _first_frame(file)
    width, height = file.numbers(6, (0, 2), (2, 2), little=True)
    left, top, *size = file.numbers(frame.begin, (1, 2), (3, 2), (5, 2), (7, 2), little=True)
    fills = (left + top == 0) & (size[0] == width) & (size[1] == height)
    return _header(
        height,
        width,
        (frame.end == 0, _DAMAGED),
        (~fills, "is a GIF file with a first frame smaller than the image; save it as PNG"),
        frame=frame,
    )


def _bmp(file: Bytes) -> Header:
    """Reads the header; only uncompressed files with three bytes per pixel can be decoded."""
    begin, header = file.numbers(10, (0, 4), (4, 4), little=True)
    width, height, bits, compression = file.numbers(
        18, (0, 4), (4, 4), (10, 2), (12, 4), little=True
    )
    # Files that are stored from top to bottom have a negative height.
    height = _where(height >= 2**31, 2**32 - height, height)
    usual = (header >= 40) & (bits == 24) & (compression == 0)
    whole = file.size >= begin + (3 * width + 3) // 4 * 4 * height
    return _header(
        height,
        width,
        (~usual, "is a BMP file of another kind than 24 bits, not compressed; save it as PNG"),
        (~whole, _DAMAGED),
    )


def _other(file: Bytes) -> Header:
    one = tf.ones([], tf.int64)
    wrong = "is not a JPEG, PNG, GIF or BMP file; save it as one of them"
    return _header(one, one, (file.size == 0, "is empty"), (file.size > 0, wrong))


def _header(
    height: tf.Tensor,
    width: tf.Tensor,
    *problems: tuple[tf.Tensor, str],
    orientation: tf.Tensor | None = None,
    transparent: tf.Tensor | bool = False,
    frame: Frame | None = None,
) -> Header:
    """Returns the header of a file, with the first of its problems that holds."""
    none = tf.zeros([], tf.int64)
    pixels = tf.cast(height, tf.float64) * tf.cast(width, tf.float64)
    too_many = pixels > MAX_PIXELS, f"has more than {MAX_PIXELS:,} pixels"
    first = tf.constant("")
    for holds, problem in (*problems, (pixels < 1, _DAMAGED), too_many):
        first = tf.where((first == "") & holds, problem, first)
    return Header(
        height=height,
        width=width,
        problem=first,
        kind=tf.constant(OTHER),
        orientation=none + 1 if orientation is None else orientation,
        transparent=tf.convert_to_tensor(transparent),
        frame=Frame(none, none, none, none) if frame is None else frame,
    )


def _orient(exif: Bytes) -> tf.Tensor:
    """Returns the orientation in EXIF data, 1 by default, as `pixels.orientation` does."""
    (order,) = exif.numbers(0, (0, 2))
    little = order == _number(b"II")
    (start,) = exif.numbers(4, (0, 4), little=little)
    (count,) = exif.numbers(start, (0, 2), little=little)
    tag, kind, number, value, _ = exif.table(
        start + 2, count, (0, 2), (2, 2), (4, 4), (8, 2), (10, 2), little=little
    )
    matches = (tag == _ORIENTATION) & (kind == _SHORT) & (number == 1)
    value = tf.concat([value[matches], tf.ones([1], tf.int64)], axis=0)[0]
    return _where((value >= 1) & (value <= 8), value, 1)


def _colours(flags: tf.Tensor) -> tf.Tensor:
    """Size in bytes of the table of colours of a GIF file."""
    return _where(flags >= 128, 3 * 2 ** (flags % 8 + 1), 0)


def _numbers(
    values: tf.Tensor, places: Sequence[tuple[int, int]], little: tf.Tensor | bool
) -> list[tf.Tensor]:
    """Converts bytes (..., width) to numbers int64 (...), each at its offset and width."""
    weights = np.zeros((2, len(places), values.shape[-1]), np.int64)
    for row, (offset, width) in enumerate(places):
        powers = 256 ** np.arange(width)
        weights[:, row, offset : offset + width] = powers[::-1], powers
    chosen = weights[int(little)] if isinstance(little, bool) else _where(little, *weights[::-1])
    products = tf.cast(values, tf.int64)[..., None, :] * chosen
    return tf.unstack(tf.reduce_sum(products, axis=-1), axis=-1)


def _number(name: bytes) -> int:
    return int.from_bytes(name, "big")


def _where(condition: tf.Tensor, yes: Any, no: Any) -> tf.Tensor:
    """`tf.where` for positions, which are int64."""
    return tf.where(condition, tf.cast(yes, tf.int64), tf.cast(no, tf.int64))
