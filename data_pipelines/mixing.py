"""Mixed training images: Mixup (Zhang et al. 2018) and CutMix (Yun et al. 2019).

Each image of a batch may be mixed with that of the next pair. The random numbers are a function of
the seed and the step, and are drawn for the whole batch, so they do not depend on which worker
loads a part.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from data_pipelines.images import rectangle
from data_pipelines.options import ImageOptions

_STREAM = 7  # separates these random numbers from others of the same seed and step


@dataclass(frozen=True, eq=False)
class Mix:
    """Mixing of the images of a batch.

    Attributes:
        partner: Position in the batch of the pair of the mixed-in image, int64 (B,).
        ratio: Share of each image that remains, float32 (B,); 1 without mixing.
        box: Top, left, height and width of the replaced rectangle, int32 (B, 4); without an area
            where images are blended instead.
    """

    partner: np.ndarray
    ratio: np.ndarray
    box: np.ndarray


def draw_mix(batch_size: int, options: ImageOptions, seed: int, step: int) -> Mix:
    """Draws the mixing of the images of one batch.

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


def mix_pixels(image: tf.Tensor, other: tf.Tensor, ratio: tf.Tensor, box: tf.Tensor) -> tf.Tensor:
    """Inserts a box of the other image, or blends both if the box is empty.

    Args:
        image: Pixels uint8 (H, W, 3).
        other: Pixels of the same shape.
        ratio: The share of `image` in a blend.
        box: Top, left, height and width, int32 (4,).

    Returns:
        Pixels uint8 (H, W, 3).
    """
    top, left, height, width = tf.unstack(box)
    inside = rectangle(image, top, left, height, width)
    first, second = tf.cast(image, tf.float32), tf.cast(other, tf.float32)
    blend = tf.saturate_cast(tf.round(ratio * first + (1 - ratio) * second), tf.uint8)
    return tf.where(height * width > 0, tf.where(inside, other, image), blend)
