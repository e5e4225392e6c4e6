"""Mixed training images: Mixup (Zhang et al. 2018) and CutMix (Yun et al. 2019).

Each image of a batch may be mixed with that of the next pair. What is drawn is a function of the
seed and the step, and is drawn for the whole batch, so it does not depend on who loads which
part of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from data_pipelines.images import decode_for_training
from data_pipelines.options import ImageOptions
from data_pipelines.records import parse

_STREAM = 7  # sets these random numbers apart from others of the same seed and step


@dataclass(frozen=True, eq=False)
class Mix:
    """How the images of a batch are mixed.

    Attributes:
        partner: The place in the batch of the pair whose image is mixed in, int64 (B,).
        ratio: The part of each image that stays its own, float32 (B,); 1 where none is mixed in.
        box: Top, left, height and width of what is replaced, int32 (B, 4); without an area where
            images are blended instead.
    """

    partner: np.ndarray
    ratio: np.ndarray
    box: np.ndarray


def draw_mix(batch_size: int, options: ImageOptions, seed: int, step: int) -> Mix:
    """Draws how the images of one batch are mixed.

    Args:
        batch_size: Pairs of the global batch.
        options: Probabilities, and the size of the images.
        seed: Seed of the training.
        step: Step of the training.
    """
    random = np.random.default_rng([seed, step, _STREAM])
    kind = random.random(batch_size)
    ratio = random.beta(options.mix_concentration, options.mix_concentration, batch_size)
    center = random.integers(0, options.size, (2, batch_size))
    cut = (kind >= options.mixup) & (kind < options.mixup + options.cutmix)
    half = np.where(cut, options.size * np.sqrt(1 - ratio) / 2, 0)
    begin = np.clip(np.round(center - half), 0, options.size).astype(np.int32)
    end = np.clip(np.round(center + half), 0, options.size).astype(np.int32)
    height, width = end - begin
    ratio = np.where(cut, 1 - height * width / options.size**2, ratio)
    ratio = np.where(kind < options.mixup + options.cutmix, ratio, 1)
    return Mix(
        partner=np.roll(np.arange(batch_size), -1),
        ratio=ratio.astype(np.float32),
        box=np.stack([*begin, height, width], axis=1),
    )


def mix_image(
    image: tf.Tensor,
    record: tf.Tensor,
    ratio: tf.Tensor,
    box: tf.Tensor,
    options: ImageOptions,
    seed: tf.Tensor,
) -> tf.Tensor:
    """A training image, mixed with another that is read for it, if the ratio is below 1.

    Args:
        image: Pixels uint8 (size, size, 3).
        record: Record of the other image, a scalar string; anything where none is mixed in.
        ratio: See `Mix`.
        box: See `Mix`.
        options: How the other image is cropped and augmented.
        seed: Stateless seed of that, int (2,).

    Returns:
        Pixels uint8 (size, size, 3).
    """

    def mix() -> tf.Tensor:
        jpeg = parse(record, None)["encoded"]
        return mix_pixels(image, decode_for_training(jpeg, options, seed), ratio, box)

    return tf.cond(ratio < 1, mix, lambda: image)


def mix_pixels(image: tf.Tensor, other: tf.Tensor, ratio: tf.Tensor, box: tf.Tensor) -> tf.Tensor:
    """The image with a box of the other one, or blended with it if the box is empty.

    Args:
        image: Pixels uint8 (H, W, 3).
        other: Pixels of the same shape.
        ratio: The part of `image` in a blend.
        box: Top, left, height and width, int32 (4,).

    Returns:
        Pixels uint8 (H, W, 3).
    """
    top, left, height, width = tf.unstack(box)
    rows, columns = tf.range(image.shape[0]), tf.range(image.shape[1])
    inside = ((rows >= top) & (rows < top + height))[:, None, None] & (
        (columns >= left) & (columns < left + width)
    )[None, :, None]
    own, mixed_in = tf.cast(image, tf.float32), tf.cast(other, tf.float32)
    blend = tf.saturate_cast(tf.round(ratio * own + (1 - ratio) * mixed_in), tf.uint8)
    return tf.where(height * width > 0, tf.where(inside, other, image), blend)
