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

    Subclasses declare the unit of `batch_size` in `UNIT`.

    Args:
        records: The training split. One with fewer captions, or images, than a batch is trained
            with all of them in each step.
        batch_size: Number of pairs, or images, per step.
        seed: Seed of the order.
        devices: Number of devices that share a batch evenly.

    Attributes:
        batch_size: Number of pairs, or images, per step; fewer in a smaller split.
        steps: Steps per epoch.
        has_several: Whether an image comes with any number of captions. Otherwise batches consist
            of pairs: as many images as captions.

    Raises:
        UserError: If the split is too small for a batch of two, or of one per device.
    """

    UNIT: ClassVar[str] = "pairs"
    has_several = False

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
        """Returns captions, with `has_several` padded with -1: int64 (steps, batch_size[, C])."""
        order = self._random(number).permutation(self._count)
        return order[: self.steps * self.batch_size].reshape(self.steps, self.batch_size)

    def images(self, batch: np.ndarray) -> np.ndarray:
        """Returns the images of a batch, or of a part of one: int64 (N,)."""
        return self.caption_image[batch]

    def positives(self) -> np.ndarray:
        """Returns the matching pairs of a batch of different images: boolean (images, captions)."""
        return np.eye(self.batch_size, dtype=bool)

    def _random(self, epoch: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, epoch])


class PairSampler(Sampler):
    """All captions in random order, each with its image, without an incomplete last batch."""


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
    """All images that have captions in random order, each with all or some of its captions.

    An epoch iterates over the images, without an incomplete last batch. As no image is twice in a
    batch, an encoder reads an image once per epoch. The released code of Bleeker and de Rijke 2022
    trains Smooth-AP with batches of all captions: they hold all annotated captions of a query.

    Args:
        records: The training split.
        batch_size: Number of images per step.
        seed: Seed of the order, and of the captions.
        devices: Number of devices that share a batch evenly.
        captions: Number of captions of an image, drawn at random; None for all of them.
    """

    UNIT = "images"

    def __init__(
        self,
        records: SplitRecords,
        batch_size: int,
        seed: int,
        devices: int = 1,
        captions: int | None = None,
    ) -> None:
        super().__init__(records, batch_size, seed, devices)
        self.captions_per_image = captions
        self.has_several = captions != 1

    def _total(self) -> tuple[int, str]:
        return int(np.count_nonzero(np.diff(self.first_caption))), "images with captions"

    def epoch(self, number: int) -> np.ndarray:
        """Returns captions: int64 (steps, batch_size, C), padded with -1, or without C of one."""
        random = self._random(number)
        sizes = np.diff(self.first_caption)
        images = random.permutation(np.flatnonzero(sizes))[: self.steps * self.batch_size]
        own = np.arange(sizes.max())
        if self.captions_per_image is not None:
            draws = random.random((len(images), len(own)))
            draws[own >= sizes[images, None]] = 1
            own = np.sort(np.argsort(draws, axis=1)[:, : self.captions_per_image], axis=1)
        captions = np.where(own < sizes[images, None], self.first_caption[images, None] + own, -1)
        shape = (self.steps, self.batch_size, *captions.shape[1:])
        return captions.reshape(shape if self.has_several else shape[:2])

    def images(self, batch: np.ndarray) -> np.ndarray:
        """Returns the images of a batch, or of a part of one: int64 (N,)."""
        return self.caption_image[batch[:, 0] if self.has_several else batch]

    def positives(self) -> np.ndarray:
        """Returns the matching pairs of the first batch."""
        positives = super().positives()
        if not self.has_several:
            return positives
        return np.repeat(positives, (self.epoch(0)[0] >= 0).sum(axis=1), axis=1)


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
    "one_per_class": OnePerClassSampler,
    "images": ImageSampler,
    "offline_negatives": OfflineNegativeSampler,
}
"""Samplers by the value of `train.sampler`."""
