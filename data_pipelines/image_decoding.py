"""The pixels of an image file in a graph of TensorFlow, as `data_pipelines.pixels` defines them."""

from __future__ import annotations

import tensorflow as tf

from data_pipelines.image_headers import Frame, Header

DCT = "INTEGER_ACCURATE"
"""How JPEG files are decoded, wherever they are: by the standard, as Pillow does it. The default
of TensorFlow is faster on old machines, and a few levels off."""


def decode(data: tf.Tensor, header: Header) -> tf.Tensor:
    """Pixels uint8 (H, W, 3) of an image file, the right way up.

    Args:
        data: The bytes of the file, a scalar string.
        header: What `read_header` says of it, which must not be a problem.
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
    """A GIF file of nothing but its first frame, with white for its transparent colour.

    The decoder reads all frames, however many and large they are, and makes transparent pixels
    black.
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
    """Turns pixels as the orientation of EXIF says: along the diagonal, and then along the axes."""

    def among(*values: int) -> tf.Tensor:
        return tf.reduce_any(orientation == tf.constant(values, tf.int64))

    pixels = tf.cond(among(5, 6, 7, 8), lambda: tf.transpose(pixels, [1, 0, 2]), lambda: pixels)
    pixels = tf.cond(among(2, 3, 6, 7), lambda: tf.reverse(pixels, [1]), lambda: pixels)
    return tf.cond(among(3, 4, 7, 8), lambda: tf.reverse(pixels, [0]), lambda: pixels)
