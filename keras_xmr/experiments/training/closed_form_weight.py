"""The weight of a part of an embedding in closed form, and the correction for hubs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from data_pipelines.records import Records
from data_pipelines.text import Tokenizer
from keras_xmr.experiments.config.schema import Config
from keras_xmr.experiments.training.checkpoints import Progress
from keras_xmr.experiments.training.feature_averages import (
    averages,
    averages_of_split,
    standardised,
)
from keras_xmr.heads.pooling import Projection
from keras_xmr.heads.pooling.local_scaling import LocalScaling
from keras_xmr.judgements import Judgements
from keras_xmr.metrics import RSUM, evaluate_scores
from keras_xmr.model.retriever import Retriever
from keras_xmr.utils.vectors import unit_rows

_LOGGER = logging.getLogger(__name__)

WEIGHTS = (2 / 3, 0.5, 0.8, 0.9, 1 / 3, 0.2, 1.0, 0.0)
"""Weights to try, the first of equals wins: 1 is CCA alone, 0 the learned part alone."""


def weighted_poolings(model: Retriever) -> list[Projection]:
    """Returns the poolings of both towers, if they have a part in closed form."""
    heads = [tower.get_layer("head") for tower in (model.image_tower, model.text_tower)]
    poolings = [head.global_pooling for head in heads]
    return [p for p in poolings if isinstance(p, Projection) and p.closed_form]


def choices_made(
    model: Retriever, progress: Progress, steps_per_epoch: int
) -> dict[str, Any] | None:
    """Returns the choices of a training, which an update may keep; None without a closed form."""
    if not (poolings := weighted_poolings(model)):
        return None
    scaling = poolings[0].local_scaling
    return {
        "cca": progress.cca,
        "rank_strengths": progress.rank_strengths,
        "local_scaling": scaling is not None and bool(float(scaling.weight)),
        "weight": float(poolings[0].closed_form_weight),
        "is_trained": progress.best_step > 0,
        "epochs": progress.best_step // steps_per_epoch,
    }


@dataclass(frozen=True)
class Weighing:
    """The choice of `choose_weight`.

    Attributes:
        weight: The weight of the closed form.
        local_scaling: Whether cosines are scaled locally (CSLS).
        rsum: The sum of recalls on the validation split, in percent.
    """

    weight: float
    local_scaling: bool
    rsum: float

    def __str__(self) -> str:
        shares = f"closed form {100 * self.weight:.0f} %, trained {100 * (1 - self.weight):.0f} %"
        return f"{shares}, {'with' if self.local_scaling else 'without'} correction for hubs (CSLS)"


def choose_weight(
    model: Retriever,
    records: Records,
    tokenizer: Tokenizer,
    config: Config,
    weights: Sequence[float] = WEIGHTS,
    local_scaling: bool | None = None,
) -> Weighing:
    """Sets the weight of the closed form, and then whether cosines are scaled locally (CSLS).

    Each is that with the largest sum of recalls on the validation split. Compares cosines, whatever
    the matcher.

    Args:
        model: The model, with the weights that its training ended with.
        records: The records; features in place of images or captions are taken where they are.
        tokenizer: Makes word ids of the captions.
        config: The config of the run.
        weights: Weights to try; the first of equals wins.
        local_scaling: Whether cosines are scaled locally; None for what is better.
    """
    poolings = weighted_poolings(model)
    split = averages_of_split(model, records.split("val"), tokenizer, config)
    sides = [_vectors(p, a) for p, a in zip(poolings, (split.images, split.captions), strict=True)]
    fixed, learned = (images @ captions.T for images, captions in zip(*sides, strict=True))
    sums = {
        weight: _rsum(weight * fixed + (1 - weight) * learned, split.judgements)
        for weight in weights
    }
    best = max(sums, key=lambda weight: sums[weight])
    for pooling in poolings:
        pooling.closed_form_weight.assign(best)
    is_used, scaled = False, 0.0
    scalings = [p.local_scaling for p in poolings if p.local_scaling is not None]
    if scalings:
        train = records.split("train")
        # A caption of each image; of more images than are kept every second one, and so on.
        every = -(-len(train) // scalings[0].items)
        kept = averages(model, train, tokenizer, config, train.first_caption[:-1:every], every)
        joined = [_joined(_vectors(p, a), best) for p, a in zip(poolings, kept, strict=True)]
        hubness = _scale_locally(scalings, joined, [_joined(vectors, best) for vectors in sides])
        scaled = _rsum(best * fixed + (1 - best) * learned - hubness, split.judgements)
        is_used = scaled >= sums[best] if local_scaling is None else local_scaling
        for scaling in scalings:
            scaling.weight.assign(float(is_used))
    chosen = Weighing(best, is_used, scaled if is_used else sums[best])
    _LOGGER.info("validation RSUM %.1f: %s", chosen.rsum, chosen)
    return chosen


def _scale_locally(
    scalings: Sequence[LocalScaling], kept: Sequence[np.ndarray], sides: Sequence[np.ndarray]
) -> np.ndarray:
    """Gives both towers training items of the other side.

    Args:
        scalings: The scaling of images, and of captions.
        kept: Vectors of training images, and of a caption per image.
        sides: Vectors of validation images, and of captions.

    Returns:
        The mean hubness of each pair of these (images, captions), which CSLS subtracts.
    """
    of_images = scalings[0].set_neighbours(kept[1], sides[0])
    of_captions = scalings[1].set_neighbours(kept[0], sides[1])
    return (of_images[:, None] + of_captions) / 2


def _rsum(scores: np.ndarray, judgements: Judgements) -> float:
    return evaluate_scores(scores, judgements).summary[RSUM]


def _joined(vectors: Sequence[np.ndarray], weight: float) -> np.ndarray:
    """Joins fixed and learned vectors, of which the closed form has a weight: float32."""
    fixed, learned = vectors
    both = [np.sqrt(weight) * fixed, np.sqrt(1 - weight) * learned]
    return np.concatenate(both, axis=1).astype(np.float32)


def _vectors(pooling: Projection, averages: np.ndarray) -> list[np.ndarray]:
    """Returns the fixed and the learned vectors of some averages, each on the unit sphere."""
    inputs = standardised(pooling, averages)
    kernels = pooling.closed_form_kernel, pooling.kernel
    return [unit_rows(inputs @ kernel.numpy()) for kernel in kernels]
