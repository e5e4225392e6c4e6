"""Which image-caption pairs make the batches of an epoch."""

from __future__ import annotations

import abc

import numpy as np

from data_pipelines.errors import UserError
from data_pipelines.records import SplitRecords


class Sampler(abc.ABC):
    """The order of training. The same seed and epoch always give the same order.

    Args:
        records: The training split.
        batch_size: Pairs a step.
        seed: Seed of the order.

    Attributes:
        steps: Steps an epoch.

    Raises:
        UserError: If the split is too small for one batch.
    """

    def __init__(self, records: SplitRecords, batch_size: int, seed: int) -> None:
        self.first_caption = records.first_caption
        self.caption_image = records.caption_image
        self.batch_size = batch_size
        self.seed = seed
        self.steps = records.num_captions // batch_size
        if self.steps == 0:
            raise UserError(
                f"train.batch_size: {batch_size} is more than the {records.num_captions} captions "
                "of the training split"
            )

    @abc.abstractmethod
    def epoch(self, number: int) -> np.ndarray:
        """The captions of one epoch, by number: int64 (steps, batch_size)."""

    def _random(self, epoch: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, epoch])


class PairSampler(Sampler):
    """All captions in random order, each with its image; the incomplete last batch is left out."""

    def epoch(self, number: int) -> np.ndarray:
        """A permutation of the captions."""
        order = self._random(number).permutation(len(self.caption_image))
        return order[: self.steps * self.batch_size].reshape(self.steps, self.batch_size)


class OnePerClassSampler(Sampler):
    """Every batch holds one random caption of each of `batch_size` different classes.

    With as many classes as `batch_size`, this is the sampler of Chun et al. 2021 for CUB.

    Raises:
        UserError: If there are fewer classes than `batch_size`.
    """

    def __init__(self, records: SplitRecords, batch_size: int, seed: int) -> None:
        super().__init__(records, batch_size, seed)
        classes = np.array([labels[0] for labels in records.labels], np.int64)[self.caption_image]
        self.by_class = np.argsort(classes, kind="stable")
        _, self.starts, self.sizes = np.unique(
            classes[self.by_class], return_index=True, return_counts=True
        )
        if batch_size > len(self.sizes):
            raise UserError(
                f"train.batch_size: {batch_size} is more than the {len(self.sizes)} classes of the "
                "training split, of which train.sampler 'one_per_class' takes one pair each"
            )

    def epoch(self, number: int) -> np.ndarray:
        """As many batches as `PairSampler` has, each with its own random classes and captions."""
        random = self._random(number)
        draws = random.random((self.steps, len(self.sizes)))
        classes = np.argsort(draws, axis=1)[:, : self.batch_size]
        within = np.floor(random.random(classes.shape) * self.sizes[classes]).astype(np.int64)
        return self.by_class[self.starts[classes] + within]


SAMPLERS: dict[str, type[Sampler]] = {"pairs": PairSampler, "one_per_class": OnePerClassSampler}
"""The samplers, by the names that `train.sampler` takes."""
