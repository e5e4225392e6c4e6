"""Samplers of the images and captions of batches."""

from __future__ import annotations

import logging
from typing import ClassVar

import numpy as np

from data_pipelines.records import SplitRecords
from keras_xmr.utils.errors import UserError

_LOGGER = logging.getLogger(__name__)


class Sampler:
    """Base class of samplers. The order is a function of seed and epoch: random, by default.

    Subclasses declare the unit of `batch_size` in `UNIT`, and in `SEVERAL` whether an image comes
    with any number of captions. Otherwise batches consist of pairs: as many images as captions.

    Args:
        records: The training split. One with fewer captions, or images, than a batch is trained
            with all of them in each step.
        batch_size: Number of pairs, or images, per step.
        seed: Seed of the order.
        devices: Number of devices that share a batch evenly.

    Attributes:
        batch_size: Number of pairs, or images, per step; fewer in a smaller split.
        steps: Steps per epoch.

    Raises:
        UserError: If the split is too small for a batch of two, or of one per device.
    """

    UNIT: ClassVar[str] = "pairs"
    SEVERAL: ClassVar[bool] = False

    def __init__(self, records: SplitRecords, batch_size: int, seed: int, devices: int = 1) -> None:
        self.first_caption = records.first_caption
        self.caption_image = records.caption_image
        self.seed = seed
        count, unit = self._total()
        self.batch_size = min(batch_size, count // devices * devices)
        if self.batch_size < 2:
            raise UserError(
                f"the training split has {count} {unit}; a batch needs {max(devices, 2)} or more"
            )
        if self.batch_size < batch_size:
            _LOGGER.warning(
                "train.batch_size: %d is more than the %d %s of the training split; "
                "batches are of %d",
                *(batch_size, count, unit, self.batch_size),
            )
        self._count, self.steps = count, count // self.batch_size

    def _total(self) -> tuple[int, str]:
        """Returns the number of items of an epoch, and the word for them."""
        return len(self.caption_image), "captions"

    def epoch(self, number: int) -> np.ndarray:
        """Returns the captions, or with `SEVERAL` the images: int64 (steps, batch_size)."""
        order = self._random(number).permutation(self._count)
        return order[: self.steps * self.batch_size].reshape(self.steps, self.batch_size)

    def images(self, batch: np.ndarray) -> np.ndarray:
        """Returns the images of a batch, or of a part of one: int64 (N,)."""
        return self.caption_image[batch]

    def captions(self, batch: np.ndarray) -> np.ndarray:
        """Returns the captions: int64 (N,); with `SEVERAL` (N, maximum), padded with -1."""
        return batch

    def positives(self) -> np.ndarray:
        """Returns the matching pairs of a batch of different images: boolean (images, captions)."""
        return np.eye(self.batch_size, dtype=bool)

    def _random(self, epoch: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, epoch])


class PairSampler(Sampler):
    """All captions in random order, each with its image, without an incomplete last batch."""


class OneCaptionPerImageSampler(Sampler):
    """All images that have captions in random order, each with one of its captions at random.

    An epoch iterates over the images, without an incomplete last batch. As no image is twice in a
    batch, its other captions are of other images, and an encoder reads an image once per epoch.
    """

    UNIT = "images"

    def _total(self) -> tuple[int, str]:
        return int(np.count_nonzero(np.diff(self.first_caption))), "images with captions"

    def epoch(self, number: int) -> np.ndarray:
        """Returns a random caption of each image: int64 (steps, batch_size)."""
        random = self._random(number)
        sizes = np.diff(self.first_caption)
        images = random.permutation(np.flatnonzero(sizes))
        drawn = (random.random(self._count) * sizes[images]).astype(np.int64)
        captions = self.first_caption[images] + drawn
        return captions[: self.steps * self.batch_size].reshape(self.steps, self.batch_size)


class OnePerClassSampler(Sampler):
    """Batches of one random caption of each of `batch_size` different classes.

    With as many classes as `batch_size`, this is the sampler of Chun et al. 2021 for CUB.

    Raises:
        UserError: If there are fewer classes than `batch_size`.
    """

    def __init__(self, records: SplitRecords, batch_size: int, seed: int, devices: int = 1) -> None:
        super().__init__(records, batch_size, seed, devices)
        classes = np.array([(*labels, -1)[0] for labels in records.labels])[self.caption_image]
        self.by_class = np.argsort(classes, kind="stable")
        _, self.starts, self.sizes = np.unique(
            classes[self.by_class], return_index=True, return_counts=True
        )
        if batch_size > len(self.sizes):
            lower = f"lower it to {len(self.sizes)}, or " if len(self.sizes) > 1 else ""
            raise UserError(
                f"train.batch_size: {batch_size} is more than the {len(self.sizes)} classes of the "
                "training split, and train.sampler 'one_per_class' takes one pair per class; "
                f"{lower}set train.sampler to pairs"
            )

    def epoch(self, number: int) -> np.ndarray:
        """Returns as many batches as `PairSampler`, of random classes and captions."""
        random = self._random(number)
        draws = random.random((self.steps, len(self.sizes)))
        classes = np.argsort(draws, axis=1)[:, : self.batch_size]
        within = np.floor(random.random(classes.shape) * self.sizes[classes]).astype(np.int64)
        return self.by_class[self.starts[classes] + within]


class ImageSampler(Sampler):
    """All images in random order, each with all its captions.

    An epoch iterates over the images, without an incomplete last batch. The released code of
    Bleeker and de Rijke 2022 trains Smooth-AP with such batches: they hold all annotated captions
    of a query.
    """

    UNIT = "images"
    SEVERAL = True

    def _total(self) -> tuple[int, str]:
        return len(self.first_caption) - 1, "images"

    def images(self, batch: np.ndarray) -> np.ndarray:
        """Returns the batch."""
        return batch

    def captions(self, batch: np.ndarray) -> np.ndarray:
        """Returns all captions of each image."""
        first, end = self.first_caption[batch, None], self.first_caption[batch + 1, None]
        captions = first + np.arange((end - first).max())
        return np.where(captions < end, captions, -1)

    def positives(self) -> np.ndarray:
        """Returns the matching pairs of the first batch."""
        counts = (self.captions(self.epoch(0)[0]) >= 0).sum(axis=1)
        return np.repeat(super().positives(), counts, axis=1)


class OfflineNegativeSampler(Sampler):
    """A third of a batch are random pairs, and the rest is hard for them (Chen et al. 2020).

    The second third has for each random pair a caption that is hard for its image, and the last
    one an image that is hard for its caption: each with an item that it matches. An epoch
    iterates over all captions as random pairs. Negatives are drawn of `negatives`, which a training
    mines from the whole split before each epoch.

    Attributes:
        negatives: Captions that are hard for each image (N, K), and images that are hard for each
            caption (M, K'); None before any are mined, and then all items are drawn from.
    """

    negatives: tuple[np.ndarray, ...] | None = None

    def __init__(self, records: SplitRecords, batch_size: int, seed: int, devices: int = 1) -> None:
        super().__init__(records, batch_size, seed, devices)
        self.anchors = self.batch_size // 3
        self.batch_size = 3 * self.anchors
        if not self.anchors or self.batch_size % devices:
            raise UserError(
                f"train.batch_size: {batch_size} makes batches of {self.batch_size} with "
                f"train.sampler 'offline_negatives', which takes thirds on {devices} devices; "
                f"set it to a multiple of {3 * devices}"
            )
        self.steps = self._count // self.anchors

    def epoch(self, number: int) -> np.ndarray:
        """Returns the captions of random pairs, hard captions, and captions of hard images."""
        random = self._random(number)
        order = random.permutation(self._count)[: self.steps * self.anchors]
        pairs = order.reshape(self.steps, self.anchors)
        images = self.caption_image[pairs]
        draws = random.random((3, *pairs.shape))
        if self.negatives is None:
            hard = (draws[0] * self._count).astype(np.int64)
            hard_images = (draws[1] * (len(self.first_caption) - 1)).astype(np.int64)
        else:
            hard, hard_images = (
                values[rows, (draw * values.shape[1]).astype(np.int64)]
                for values, rows, draw in zip(self.negatives, (images, pairs), draws, strict=False)
            )
        first = self.first_caption[hard_images]
        size = self.first_caption[hard_images + 1] - first
        own = first + (draws[2] * size).astype(np.int64)
        return np.concatenate([pairs, hard, np.where(size, own, hard)], axis=1)


SAMPLERS: dict[str, type[Sampler]] = {
    "pairs": PairSampler,
    "one_caption_per_image": OneCaptionPerImageSampler,
    "one_per_class": OnePerClassSampler,
    "images_with_all_captions": ImageSampler,
    "offline_negatives": OfflineNegativeSampler,
}
"""Samplers by the value of `train.sampler`."""
