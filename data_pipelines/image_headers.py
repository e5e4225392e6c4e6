"""Orientation and size of JPEG and PNG files, read in a TensorFlow graph before decoding.

An exported model depends on this module: phones store photos turned, with their orientation in
EXIF data, and a decoder of TensorFlow ignores it.
"""

from __future__ import annotations

import tensorflow as tf

from data_pipelines.pixels import MAX_PIXELS

_ORIENTATION, _SHORT = 0x0112, 3
_MOST_SEGMENTS, _MOST_ENTRIES = 500, 200
_BEYOND = 64


class _Bytes:
    """Bytes of a file, zero beyond its end.

    Args:
        data: A scalar string.
    """

    def __init__(self, data: tf.Tensor) -> None:
        values = tf.cast(tf.io.decode_raw(data, tf.uint8), tf.int32)
        self.size = tf.size(values)
        self._values = tf.concat([values, tf.zeros([_BEYOND], tf.int32)], axis=0)

    def number(self, at: tf.Tensor, width: int, little: tf.Tensor | bool = False) -> tf.Tensor:
        """Reads a whole number, int32, of at most four bytes."""
        at = tf.clip_by_value(at, 0, self.size)
        part = self._values[at : at + width]
        part = tf.cond(tf.convert_to_tensor(little), lambda: part[::-1], lambda: part)
        powers = tf.constant([256**place for place in reversed(range(width))], tf.int64)
        number = tf.reduce_sum(tf.cast(part, tf.int64) * powers)
        return tf.cast(tf.minimum(number, 2**30), tf.int32)


def is_jpeg(data: tf.Tensor) -> tf.Tensor:
    """Whether a file begins as a JPEG, a scalar boolean."""
    return tf.equal(tf.strings.substr(data, 0, 3), b"\xff\xd8\xff")


def is_png(data: tf.Tensor) -> tf.Tensor:
    """Whether a file begins as a PNG, a scalar boolean."""
    return tf.equal(tf.strings.substr(data, 0, 4), b"\x89PNG")


def has_few_pixels(data: tf.Tensor) -> tf.Tensor:
    """Whether a PNG has at most `MAX_PIXELS` by its header; true for others."""
    file = _Bytes(data)
    pixels = tf.cast(file.number(tf.constant(16), 4), tf.float64)
    pixels *= tf.cast(file.number(tf.constant(20), 4), tf.float64)
    return tf.logical_not(is_png(data)) | (pixels <= MAX_PIXELS)


def read_orientation(data: tf.Tensor) -> tf.Tensor:
    """Returns the EXIF orientation of a JPEG, int32: 1 (upright) to 8, and 1 without any.

    Args:
        data: The bytes of the file, a scalar string.
    """
    file = _Bytes(data)

    def next_segment(at: tf.Tensor, exif: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        name = tf.strings.substr(data, tf.minimum(at + 4, file.size), 6)
        found = (file.number(at, 2) == 0xFFE1) & tf.equal(name, b"Exif\0\0")
        return at + 2 + file.number(at + 2, 2), tf.where(found & (exif == 0), at + 10, exif)

    def goes_on(at: tf.Tensor, exif: tf.Tensor) -> tf.Tensor:
        marker = file.number(at, 2)
        return (exif == 0) & (marker >= 0xFFC0) & (marker < 0xFFFF) & (marker != 0xFFDA)

    start = tf.constant(2), tf.constant(0)
    _, exif = tf.while_loop(goes_on, next_segment, start, maximum_iterations=_MOST_SEGMENTS)
    little = file.number(exif, 2) == 0x4949
    table = exif + file.number(exif + 4, 4, little)
    entries = tf.minimum(file.number(table, 2, little), _MOST_ENTRIES)

    def next_entry(entry: tf.Tensor, value: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        at = table + 2 + 12 * entry
        is_one = (file.number(at, 2, little) == _ORIENTATION) & (
            file.number(at + 2, 2, little) == _SHORT
        )
        return entry + 1, tf.where(is_one, file.number(at + 8, 2, little), value)

    _, value = tf.while_loop(
        lambda entry, value: (entry < entries) & (value == 0),
        next_entry,
        (tf.constant(0), tf.constant(0)),
    )
    return tf.where((exif > 0) & (value >= 1) & (value <= 8), value, 1)
