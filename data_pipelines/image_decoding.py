"""Decoding of image files in a TensorFlow graph, as `data_pipelines.pixels` defines it."""

from __future__ import annotations

import tensorflow as tf

from data_pipelines.image_headers import Frame, Header

DCT = "INTEGER_ACCURATE"
"""Method of all JPEG decoding: by the standard, as Pillow does. TensorFlow's default is faster on
old machines, and differs by a few levels."""


def decode(data: tf.Tensor, header: Header) -> tf.Tensor:
    """Decodes an image file to upright pixels uint8 (H, W, 3).

    Args:
        data: The bytes of the file, a scalar string.
        header: Result of `read_header`, without a problem.
    """
    decoders = [
        lambda: tf.io.decode_jpeg(data, channels=3, dct_method=DCT),
        lambda: _decode_png(data, header.transparent),
        lambda: tf.io.decode_gif(_still(data, header.frame))[0],
        lambda: tf.io.decode_bmp(data, channels=3),
    ]
    pixels = tf.switch_case(header.kind, decoders)
    pixels = tf.ensure_shape(pixels, [None, None, 3])
    return _upright(pixels, header.orientation)


def _decode_png(data: tf.Tensor, transparent: tf.Tensor) -> tf.Tensor:
    return tf.cond(
        transparent,
        lambda: _on_white(tf.io.decode_png(data, channels=4)),
        lambda: tf.io.decode_png(data, channels=3),
    )


def _on_white(pixels: tf.Tensor) -> tf.Tensor:
    colour, opacity = tf.split(tf.cast(pixels, tf.uint16), [3, 1], axis=-1)
    return tf.cast((colour * opacity + 255 * (255 - opacity) + 127) // 255, tf.uint8)


def _still(data: tf.Tensor, frame: Frame) -> tf.Tensor:
    """Reduces a GIF file to its first frame, with white as its transparent colour.

    The decoder would read all frames, however many and large, and make transparent pixels black.
    """
    size = tf.cast(tf.strings.length(data), tf.int64)
    white = tf.strings.join(
        [
            _cut(data, 0, frame.transparent),
            b"\xff\xff\xff",
            _cut(data, frame.transparent + 3, size),
        ]
    )
    data = tf.where(frame.transparent > 0, white, data)
    return tf.strings.join([_cut(data, 0, frame.shared), _cut(data, frame.begin, frame.end), b";"])


def _cut(data: tf.Tensor, begin: tf.Tensor | int, end: tf.Tensor) -> tf.Tensor:
    return tf.strings.substr(data, tf.cast(begin, tf.int64), end - begin)


def _upright(pixels: tf.Tensor, orientation: tf.Tensor) -> tf.Tensor:
    """Applies the EXIF orientation: transposes pixels, then flips them."""

    def is_one_of(*values: int) -> tf.Tensor:
        return tf.reduce_any(orientation == tf.constant(values, tf.int64))

    pixels = tf.cond(is_one_of(5, 6, 7, 8), lambda: tf.transpose(pixels, [1, 0, 2]), lambda: pixels)
    pixels = tf.cond(is_one_of(2, 3, 6, 7), lambda: tf.reverse(pixels, [1]), lambda: pixels)
    return tf.cond(is_one_of(3, 4, 7, 8), lambda: tf.reverse(pixels, [0]), lambda: pixels)
