"""From image files to pixels."""

from __future__ import annotations

import io
import warnings

import tensorflow as tf
from PIL import Image, ImageOps, UnidentifiedImageError

from data_pipelines.options import ImageOptions
from data_pipelines.sources import UnreadableError

_ORIENTATION = 0x0112
_BACKGROUND = (255, 255, 255)
_BEGINNINGS = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"RIFF", b"BM")

# What is left of an erased pixel once the mean of ImageNet has been subtracted from it: zero.
_ERASED = (123.675, 116.28, 103.53)


def to_jpeg(data: bytes, name: str) -> bytes:
    """The JPEG file that records hold of an image.

    A JPEG in RGB or grey, the right way up, stays as it is. Everything else that Pillow reads
    (PNG, WebP, CMYK, a palette, a camera's rotation flag, ...) is converted, transparent pixels
    to white.

    Args:
        data: The bytes of the file.
        name: Its name, for the error message.

    Raises:
        UnreadableError: If it is not an image, or a broken one.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image = Image.open(io.BytesIO(data))
        upright = image.getexif().get(_ORIENTATION, 1) == 1
        if image.format != "JPEG" or image.mode not in ("RGB", "L") or not upright:
            data = _convert(image)
        tf.io.decode_jpeg(data, channels=3)
    except UnidentifiedImageError:
        if data.startswith(_BEGINNINGS):
            raise UnreadableError(f"{name} is a broken image: it is cut off") from None
        raise UnreadableError(f"{name} is not an image (it begins with {data[:8]!r})") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise UnreadableError(f"{name} has more pixels than can be read safely") from None
    except (OSError, SyntaxError, ValueError, tf.errors.InvalidArgumentError) as error:
        reason = str(error).partition("[Op:")[0].partition("}} ")
        raise UnreadableError(f"{name} is a broken image: {reason[2] or reason[0]}") from None
    return data


def _convert(image: Image.Image) -> bytes:
    image = ImageOps.exif_transpose(image)
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, (*_BACKGROUND, 255)), image)
    buffer = io.BytesIO()
    image.convert("RGB").save(buffer, "JPEG", quality=95)
    return buffer.getvalue()


def decode_for_training(jpeg: tf.Tensor, options: ImageOptions, seed: tf.Tensor) -> tf.Tensor:
    """Pixels of a training image: cropped, resized, mirrored and erased at random.

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
        image = _resize(tf.io.decode_and_crop_jpeg(jpeg, window, channels=3), options.size)
    else:
        image = _decode_center(jpeg, options)
    if options.flip:
        image = tf.image.stateless_random_flip_left_right(image, flip_seed)
    if options.cutout:
        image = cutout(image, options.cutout, options.cutout_area, erase_seed)
    return _to_uint8(image)


def decode_for_evaluation(jpeg: tf.Tensor, options: ImageOptions) -> tf.Tensor:
    """Pixels uint8 (size, size, 3) of the centre of a JPEG file.

    The same as resizing the short side to `resize` and cropping the centre, in one step.
    """
    return _to_uint8(_decode_center(jpeg, options))


def decode_any_for_evaluation(data: tf.Tensor, options: ImageOptions) -> tf.Tensor:
    """Like `decode_for_evaluation`, for the bytes of a JPEG, PNG, GIF or BMP file."""

    def other() -> tf.Tensor:
        image = tf.io.decode_image(data, channels=3, expand_animations=False)
        image.set_shape([None, None, 3])
        top, left, side = _center_window(tf.shape(image), options)
        return _resize(image[top : top + side, left : left + side], options.size)

    return _to_uint8(tf.cond(tf.io.is_jpeg(data), lambda: _decode_center(data, options), other))


def cutout(
    image: tf.Tensor, probability: float, area: tuple[float, float], seed: tf.Tensor
) -> tf.Tensor:
    """Erases a rectangle of an image, with some probability (Zhong et al. 2020).

    The rectangle takes the mean colour of ImageNet, has an aspect ratio of 0.3 to 1 / 0.3, and
    lies within the image.

    Args:
        image: Pixels float (H, W, 3).
        probability: How often anything is erased.
        area: Smallest and largest part of the image that is erased.
        seed: Stateless seed, int (2,).

    Returns:
        Pixels float (H, W, 3).
    """
    height, width = image.shape[0], image.shape[1]
    draw = tf.random.stateless_uniform([5], seed)
    part = area[0] + draw[1] * (area[1] - area[0])
    aspect = tf.exp((2 * draw[2] - 1) * tf.math.log(1 / 0.3))
    h = tf.minimum(tf.round(tf.sqrt(part * aspect * height * width)), height)
    w = tf.minimum(tf.round(tf.sqrt(part / aspect * height * width)), width)
    top, left = tf.floor(draw[3] * (height - h + 1)), tf.floor(draw[4] * (width - w + 1))
    rows, columns = tf.range(height, dtype=tf.float32), tf.range(width, dtype=tf.float32)
    inside = ((rows >= top) & (rows < top + h))[:, None, None] & (
        (columns >= left) & (columns < left + w)
    )[None, :, None]
    return tf.where(inside & (draw[0] < probability), tf.constant(_ERASED), image)


def _random_window(shape: tf.Tensor, options: ImageOptions, seed: tf.Tensor) -> tf.Tensor:
    """Top, left, height, width of a random resized crop."""
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
    """Top, left and side of the square of the image that evaluation sees."""
    short = tf.cast(tf.minimum(shape[0], shape[1]), tf.float32)
    side = tf.cast(tf.round(short * options.size / options.resize), tf.int32)
    side = tf.maximum(side, 1)
    return (shape[0] - side) // 2, (shape[1] - side) // 2, side


def _decode_center(jpeg: tf.Tensor, options: ImageOptions) -> tf.Tensor:
    top, left, side = _center_window(tf.io.extract_jpeg_shape(jpeg), options)
    window = tf.stack([top, left, side, side])
    return _resize(tf.io.decode_and_crop_jpeg(jpeg, window, channels=3), options.size)


def _resize(image: tf.Tensor, size: int) -> tf.Tensor:
    return tf.ensure_shape(
        tf.image.resize(image, [size, size], method="bilinear", antialias=True), [size, size, 3]
    )


def _to_uint8(image: tf.Tensor) -> tf.Tensor:
    return tf.saturate_cast(tf.round(image), tf.uint8)
