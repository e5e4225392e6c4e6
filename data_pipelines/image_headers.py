"""Headers of JPEG and PNG files, read in a TensorFlow graph before decoding.

Phones store photos turned, with their orientation in EXIF data, which TensorFlow ignores.
"""

from __future__ import annotations

import tensorflow as tf

from data_pipelines.pixels import MAX_PIXELS

_ORIENTATION, _SHORT = 0x0112, 3
_MOST_SEGMENTS, _MOST_ENTRIES = 500, 200
_MOST_CHUNKS = 200_000
_BEYOND, _COLOUR_TYPE, _FIRST_CHUNK = 64, 25, 8


class _Bytes:
    """Bytes of a file, a scalar string; zero beyond its end."""

    def __init__(self, data: tf.Tensor) -> None:
        values = tf.cast(tf.io.decode_raw(data, tf.uint8), tf.int32)
        self.size = tf.size(values)
        self._values = tf.concat([values, tf.zeros([_BEYOND], tf.int32)], axis=0)

    def number(self, at: tf.Tensor, width: int, little: tf.Tensor | bool = False) -> tf.Tensor:
        """Reads a whole number, int32, of at most four bytes."""
        at = tf.clip_by_value(at, 0, self.size)
        encoded = self._values[at : at + width]
        encoded = tf.cond(tf.convert_to_tensor(little), lambda: encoded[::-1], lambda: encoded)
        powers = tf.constant([256**place for place in reversed(range(width))], tf.int64)
        number = tf.reduce_sum(tf.cast(encoded, tf.int64) * powers)
        return tf.cast(tf.minimum(number, 2**30), tf.int32)


def is_jpeg(data: tf.Tensor) -> tf.Tensor:
    """Returns whether a file begins as a JPEG, a scalar boolean."""
    return tf.equal(tf.strings.substr(data, 0, 3), b"\xff\xd8\xff")


def is_png(data: tf.Tensor) -> tf.Tensor:
    """Returns whether a file begins as a PNG, a scalar boolean."""
    return tf.equal(tf.strings.substr(data, 0, 4), b"\x89PNG")


def sides(data: tf.Tensor) -> tf.Tensor:
    """Reads height and width of a JPEG or a PNG from its header, int32 (2,), before rotation."""
    file = _Bytes(data)
    png = tf.stack([file.number(tf.constant(place), 4) for place in (20, 16)])
    return tf.cond(is_jpeg(data), lambda: tf.io.extract_jpeg_shape(data)[:2], lambda: png)


def has_few_pixels(data: tf.Tensor) -> tf.Tensor:
    """Returns whether the header of a JPEG or a PNG has at most `MAX_PIXELS`, a scalar boolean."""
    return tf.reduce_prod(tf.cast(sides(data), tf.float64)) <= MAX_PIXELS


def is_transparent(data: tf.Tensor) -> tf.Tensor:
    """Returns whether a PNG has an opacity per pixel or transparent colours, a scalar boolean."""
    has_opacity = _Bytes(data).number(tf.constant(_COLOUR_TYPE), 1) & 4 > 0
    return has_opacity | (_find_chunk(data, b"tRNS") > 0)


def read_orientation(data: tf.Tensor) -> tf.Tensor:
    """Returns the EXIF orientation of a JPEG or a PNG, int32: 1 (upright) to 8."""
    file = _Bytes(data)
    exif = tf.cond(
        is_jpeg(data), lambda: _find_exif(data, file), lambda: _find_chunk(data, b"eXIf")
    )
    little = file.number(exif, 2) == 0x4949
    table = exif + file.number(exif + 4, 4, little)
    numbers = tf.range(tf.minimum(file.number(table, 2, little), _MOST_ENTRIES))

    def value(number: tf.Tensor) -> tf.Tensor:
        tag, field_type, value = (
            file.number(table + 2 + 12 * number + p, 2, little) for p in (0, 2, 8)
        )
        return tf.where((tag == _ORIENTATION) & (field_type == _SHORT), value, 0)

    values = tf.concat([tf.map_fn(value, numbers), [0]], axis=0)
    first = values[tf.argmax(values != 0)]
    return tf.where((exif > 0) & (first >= 1) & (first <= 8), first, 1)


def _find_exif(data: tf.Tensor, file: _Bytes) -> tf.Tensor:
    """Returns where the EXIF data of a JPEG begin, int32; 0 if there are none."""

    def next_segment(at: tf.Tensor, exif: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        name = tf.strings.substr(data, tf.minimum(at + 4, file.size), 6)
        found = (file.number(at, 2) == 0xFFE1) & tf.equal(name, b"Exif\0\0")
        return at + 2 + file.number(at + 2, 2), tf.where(found & (exif == 0), at + 10, exif)

    def goes_on(at: tf.Tensor, exif: tf.Tensor) -> tf.Tensor:
        marker = file.number(at, 2)
        return (exif == 0) & (marker >= 0xFFC0) & (marker < 0xFFFF) & (marker != 0xFFDA)

    start = tf.constant(2), tf.constant(0)
    _, exif = tf.while_loop(goes_on, next_segment, start, maximum_iterations=_MOST_SEGMENTS)
    return exif


def _find_chunk(data: tf.Tensor, name: bytes) -> tf.Tensor:
    """Returns where the content of the first chunk of a PNG with this name begins, int32, or 0."""
    file = _Bytes(data)

    def next_chunk(at: tf.Tensor, content: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        found = tf.equal(tf.strings.substr(data, at + 4, 4), name)
        return at + 12 + file.number(at, 4), tf.where(found, at + 8, content)

    def goes_on(at: tf.Tensor, content: tf.Tensor) -> tf.Tensor:
        is_end = tf.equal(tf.strings.substr(data, tf.minimum(at + 4, file.size), 4), b"IEND")
        return (content == 0) & (at + 8 <= file.size) & ~is_end

    def walk() -> tf.Tensor:
        start = tf.constant(_FIRST_CHUNK), tf.constant(0)
        return tf.while_loop(goes_on, next_chunk, start, maximum_iterations=_MOST_CHUNKS)[1]

    # Large files have thousands of chunks, and most files not this one.
    return tf.cond(
        tf.strings.regex_full_match(data, rb"\C*" + name + rb"\C*"), walk, lambda: tf.constant(0)
    )
