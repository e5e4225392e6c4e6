"""Decoding and augmentation of images in TensorFlow graphs.

Evaluation and exported models see pixels as `data_pipelines.pixels` defines them.
"""

from __future__ import annotations

import tensorflow as tf

from data_pipelines.image_headers import (
    has_few_pixels,
    is_jpeg,
    is_png,
    is_transparent,
    read_orientation,
    sides,
)
from data_pipelines.options import ImageOptions
from data_pipelines.photo_files import UnreadableError
from data_pipelines.pixels import MAX_PIXELS, stored_jpeg

# The mean of ImageNet, so that erased pixels are about zero after its subtraction.
_ERASED = (124, 116, 104)


def checked_jpeg(data: bytes, name: str, store_side: int | None = None) -> bytes:
    """Converts an image file to the JPEG file that records store, as `stored_jpeg` does.

    A file that is kept is decoded once, so that it cannot stop a training.

    Args:
        data: The bytes of the file.
        name: Name of the image, for the error message.
        store_side: Maximum length of the short side; None keeps all pixels.

    Raises:
        UnreadableError: If it is not an image, is broken, or has too many pixels.
    """
    jpeg = stored_jpeg(data, name, store_side)
    if jpeg is data:
        try:
            tf.io.decode_jpeg(data, channels=3)
        except tf.errors.InvalidArgumentError:
            raise UnreadableError(f"{name} is a broken image: it is cut off or damaged") from None
    return jpeg


def decode_for_training(jpeg: tf.Tensor, options: ImageOptions, seed: tf.Tensor) -> tf.Tensor:
    """Decodes a training image with random crop, resizing, mirroring and erasing.

    Only the crop is decoded.

    Args:
        jpeg: Bytes of a JPEG file, a scalar string.
        options: Size and augmentation.
        seed: Stateless seed, int (2,).

    Returns:
        Pixels uint8 (size, size, 3).
    """
    crop_seed, flip_seed, erase_seed = tf.unstack(tf.random.split(seed, 3))
    if options.crop == "random_resized":
        window = _random_window(tf.io.extract_jpeg_shape(jpeg), options, crop_seed)
        image = _to_uint8(_resize_view(_decode_jpeg(jpeg, window), options.size))
    else:
        image = decode_for_evaluation(jpeg, options)
    # As uint8, these steps need a quarter of the bytes of floats.
    if options.flip:
        image = tf.image.stateless_random_flip_left_right(image, flip_seed)
    if options.cutout:
        image = cutout(image, options.cutout, options.cutout_area, erase_seed)
    return image


def decode_for_evaluation(jpeg: tf.Tensor, options: ImageOptions) -> tf.Tensor:
    """Decodes a JPEG file of records to pixels uint8 (size, size, 3), as `stored_pixels` does.

    The centre equals resizing the short side to `resize` and cropping, in one step.
    """
    # All of it, as the edges of a part of a JPEG are decoded differently.
    pixels = tf.io.decode_jpeg(jpeg, channels=3, dct_method=DCT)
    if options.fit == "stretch" or options.interpolation == "bicubic":
        return _scaled_whole(pixels, options)
    top, left, side = _center_window(tf.shape(pixels), options)
    return _to_uint8(_resize(pixels[top : top + side, left : left + side], options.size))


def decode_any_for_evaluation(
    data: tf.Tensor, options: ImageOptions, name: tf.Tensor | str = "the image"
) -> tf.Tensor:
    """Decodes a JPEG or a PNG file as `evaluation_pixels` does.

    Args:
        data: The bytes of the file, a scalar string.
        options: Options of storing and decoding.
        name: Name of the image in errors.

    Returns:
        Pixels uint8 (size, size, 3).

    Raises:
        tf.errors.InvalidArgumentError: If it is neither, has too many pixels, or is broken.
    """
    fits = (is_jpeg(data) | is_png(data)) & has_few_pixels(data)
    why = f"is not a JPEG or a PNG, or has more than {MAX_PIXELS:,} pixels; save it as a JPEG"
    checked = tf.debugging.Assert(fits, [tf.strings.join([name, why], " ")])
    with tf.control_dependencies([checked] if checked is not None else []):
        data = tf.identity(data)
    return decode_for_evaluation(_stored_jpeg_in_graph(data, options.store_side), options)


def _stored_jpeg_in_graph(data: tf.Tensor, store_side: int | None) -> tf.Tensor:
    """Converts a JPEG or a PNG file to the JPEG file that records store, as `stored_jpeg` does."""
    orientation = read_orientation(data)
    is_plain = is_jpeg(data) & (orientation == 1)
    is_plain &= tf.cond(is_jpeg(data), lambda: tf.io.extract_jpeg_shape(data)[2] < 4, lambda: False)
    if store_side is not None:
        is_plain &= tf.reduce_min(sides(data)) <= store_side

    def encoded() -> tf.Tensor:
        pixels = _shrunk(decode(data, orientation), store_side)
        return tf.io.encode_jpeg(pixels, format="rgb", quality=95, chroma_downsampling=False)

    return tf.cond(is_plain, lambda: data, encoded)


def _shrunk(pixels: tf.Tensor, store_side: int | None) -> tf.Tensor:
    """Shrinks the short side of an image to `store_side`, if it is longer."""
    if store_side is None:
        return pixels
    shape = tf.cast(tf.shape(pixels)[:2], tf.float64)
    short = tf.reduce_min(shape)
    height, width = tf.unstack(tf.cast(tf.round(shape * store_side / short), tf.int32))
    return tf.cond(
        short > store_side, lambda: _scaled(pixels, height, width, "lanczos3"), lambda: pixels
    )


def cutout(
    image: tf.Tensor, probability: float, area: tuple[float, float], seed: tf.Tensor
) -> tf.Tensor:
    """Erases a rectangle of an image, with some probability (Zhong et al. 2020).

    The rectangle takes the mean colour of ImageNet, has an aspect ratio of 0.3 to 1 / 0.3, and
    lies within the image.

    Args:
        image: Pixels uint8 (H, W, 3).
        probability: Probability of erasing.
        area: Smallest and largest erased share of the image.
        seed: Stateless seed, int (2,).

    Returns:
        Pixels uint8 (H, W, 3).
    """
    draw = tf.random.stateless_uniform([5], seed)
    return tf.cond(draw[0] < probability, lambda: _erased(image, area, draw), lambda: image)


def _erased(image: tf.Tensor, area: tuple[float, float], draw: tf.Tensor) -> tf.Tensor:
    """Erases the rectangle that is given by the last four of five uniform random numbers."""
    height, width = image.shape[0], image.shape[1]
    share = area[0] + draw[1] * (area[1] - area[0])
    aspect = tf.exp((2 * draw[2] - 1) * tf.math.log(1 / 0.3))
    h = tf.minimum(tf.round(tf.sqrt(share * aspect * height * width)), height)
    w = tf.minimum(tf.round(tf.sqrt(share / aspect * height * width)), width)
    top, left = tf.floor(draw[3] * (height - h + 1)), tf.floor(draw[4] * (width - w + 1))
    return tf.where(rectangle(image, top, left, h, w), tf.constant(_ERASED, tf.uint8), image)


def rectangle(
    image: tf.Tensor, top: tf.Tensor, left: tf.Tensor, height: tf.Tensor, width: tf.Tensor
) -> tf.Tensor:
    """Returns which pixels of an image are inside a rectangle, boolean (H, W, 1)."""
    rows, columns = (tf.range(side, dtype=top.dtype) for side in image.shape[:2])
    inside_rows = (rows >= top) & (rows < top + height)
    inside_columns = (columns >= left) & (columns < left + width)
    return (inside_rows[:, None] & inside_columns)[..., None]


def _random_window(shape: tf.Tensor, options: ImageOptions, seed: tf.Tensor) -> tf.Tensor:
    """Draws top, left, height and width of a random resized crop."""
    begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
        shape,
        tf.zeros([1, 0, 4]),
        seed,
        min_object_covered=0.0,
        aspect_ratio_range=(3 / 4, 4 / 3),
        area_range=options.crop_area,
        use_image_if_no_bounding_boxes=True,
    )
    return tf.concat([begin[:2], size[:2]], axis=0)


def _center_window(
    shape: tf.Tensor, options: ImageOptions
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns top, left and side of the square that evaluation uses."""
    short = tf.cast(tf.minimum(shape[0], shape[1]), tf.float32)
    side = tf.cast(tf.round(short * options.size / options.resize), tf.int32)
    side = tf.maximum(side, 1)
    return (shape[0] - side) // 2, (shape[1] - side) // 2, side


def _decode_jpeg(jpeg: tf.Tensor, window: tf.Tensor) -> tf.Tensor:
    """Decodes a window (top, left, height, width) of a JPEG file."""
    return tf.io.decode_and_crop_jpeg(jpeg, window, channels=3, dct_method=DCT)


def _resize(image: tf.Tensor, size: int) -> tf.Tensor:
    """Resizes to float (size, size, 3); an image of that size is not changed."""
    resized = tf.cond(
        tf.reduce_all(tf.shape(image)[:2] == size),
        lambda: tf.cast(image, tf.float32),
        lambda: tf.image.resize(image, [size, size], method="bilinear", antialias=True),
    )
    return tf.ensure_shape(resized, [size, size, 3])


def _resize_view(image: tf.Tensor, size: int) -> tf.Tensor:
    """Resizes like `_resize`; enlarging takes half the time.

    Antialiasing changes enlarged images only by rounding.
    """
    resized = tf.cond(
        tf.reduce_all(tf.shape(image)[:2] <= size),
        lambda: tf.image.resize(image, [size, size], method="bilinear"),
        lambda: _resize(image, size),
    )
    return tf.ensure_shape(resized, [size, size, 3])


def _scaled_whole(image: tf.Tensor, options: ImageOptions) -> tf.Tensor:
    """Scales a photo as the preprocessors of CLIP and SigLIP do, uint8 (size, size, 3).

    The long side is rounded down where the centre is cropped.
    """
    size = options.size
    if options.fit == "stretch":
        height = width = tf.constant(size)
    else:
        shape = tf.shape(image)[:2]
        scaled = shape * options.resize // tf.reduce_min(shape)
        height, width = tf.unstack(tf.maximum(scaled, options.resize))
    scaled = _scaled(image, height, width, options.interpolation)
    top, left = (height - size) // 2, (width - size) // 2
    return tf.ensure_shape(scaled[top : top + size, left : left + size], [size, size, 3])


def _scaled(image: tf.Tensor, height: tf.Tensor, width: tf.Tensor, method: str) -> tf.Tensor:
    """Scales an image as Pillow does, to uint8: columns first, rounded, then rows.

    Pillow uses fixed-point numbers; with floats, pixels near a half before rounding differ by 1.
    """
    for rows in (tf.shape(image)[0], height):
        image = tf.image.resize(image, [rows, width], method, antialias=True)
        image = tf.cast(tf.clip_by_value(tf.floor(image + 0.5), 0, 255), tf.uint8)
    return image


def _to_uint8(image: tf.Tensor) -> tf.Tensor:
    """Rounds values from 0 to 255 to uint8."""
    return tf.cast(tf.round(image), tf.uint8)


DCT = "INTEGER_ACCURATE"
"""Method of all JPEG decoding: by the standard, as Pillow does. TensorFlow's default is faster on
old machines, and differs by a few levels."""


def decode(data: tf.Tensor, orientation: tf.Tensor) -> tf.Tensor:
    """Decodes a JPEG or a PNG file to upright pixels uint8 (H, W, 3), as `read_pixels` does.

    Args:
        data: The bytes of the file, a scalar string.
        orientation: From `read_orientation`.
    """
    pixels = tf.cond(
        is_jpeg(data),
        lambda: tf.io.decode_jpeg(data, channels=3, dct_method=DCT),
        lambda: _decode_png(data),
    )
    return _upright(tf.ensure_shape(pixels, [None, None, 3]), orientation)


def _decode_png(data: tf.Tensor) -> tf.Tensor:
    """Decodes a PNG file; transparent pixels are blended with white."""
    return tf.cond(
        is_transparent(data),
        lambda: _on_white(tf.io.decode_png(data, channels=4)),
        lambda: tf.io.decode_png(data, channels=3),
    )


def _on_white(pixels: tf.Tensor) -> tf.Tensor:
    """Blends pixels with opacity, uint8 (H, W, 4), with white, to uint8 (H, W, 3)."""
    # In 32 bits, as TensorFlow cannot divide unsigned numbers of 16.
    values = tf.cast(pixels, tf.int32)
    colour, opacity = values[..., :3], values[..., 3:]
    return tf.cast((colour * opacity + 255 * (255 - opacity) + 127) // 255, tf.uint8)


def _upright(pixels: tf.Tensor, orientation: tf.Tensor) -> tf.Tensor:
    """Applies the EXIF orientation: transposes pixels, then flips them."""

    def is_one_of(*values: int) -> tf.Tensor:
        return tf.reduce_any(orientation == tf.constant(values))

    pixels = tf.cond(is_one_of(5, 6, 7, 8), lambda: tf.transpose(pixels, [1, 0, 2]), lambda: pixels)
    pixels = tf.cond(is_one_of(2, 3, 6, 7), lambda: tf.reverse(pixels, [1]), lambda: pixels)
    return tf.cond(is_one_of(3, 4, 7, 8), lambda: tf.reverse(pixels, [0]), lambda: pixels)
