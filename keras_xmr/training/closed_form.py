"""Chooses the weight of the closed-form part of projections against the learned part."""

from __future__ import annotations

import logging

import numpy as np

from data_pipelines.records import Records
from data_pipelines.text import Tokenizer
from keras_xmr.config.schema import Config
from keras_xmr.metrics import evaluate_scores
from keras_xmr.model.retriever import Retriever
from keras_xmr.pooling import Pooling, Projection
from keras_xmr.training.cca_start import averages_of_split
from keras_xmr.vectors import unit_rows

_LOGGER = logging.getLogger(__name__)

WEIGHTS = (2 / 3, 0.5, 0.8, 0.9, 1 / 3, 0.2, 1.0, 0.0)
"""Weights to try, the first of equals wins: 1 is CCA alone, 0 the learned part alone."""


def weighted_poolings(model: Retriever) -> list[Projection]:
    """The poolings of both towers, if they have a part in closed form."""
    heads = [tower.get_layer("head") for tower in (model.image_tower, model.text_tower)]
    poolings = [head.global_pooling for head in heads]
    return [p for p in poolings if isinstance(p, Projection) and p.closed_form]


def choose_weight(model: Retriever, records: Records, tokenizer: Tokenizer, config: Config) -> None:
    """Sets the weight of the closed form to the best one on the validation split.

    Compares the sums of recalls of the weighted mean of both cosines, whatever the matcher.

    Args:
        model: The model, with the weights that its training ended with.
        records: The records; features in place of images or captions are taken where they are.
        tokenizer: Makes word ids of the captions.
        config: The config of the run.
    """
    poolings = weighted_poolings(model)
    split = averages_of_split(model, records.split("val"), tokenizer, config)
    sides = [_parts(p, a) for p, a in zip(poolings, (split.images, split.captions), strict=True)]
    fixed, learned = (images @ captions.T for images, captions in zip(*sides, strict=True))
    sums = {
        weight: evaluate_scores(weight * fixed + (1 - weight) * learned, split.judgements).summary[
            "rsum"
        ]
        for weight in WEIGHTS
    }
    best = max(sums, key=lambda weight: sums[weight])
    for pooling in poolings:
        pooling.closed_form_weight.assign(best)
    _LOGGER.info(
        "weight of the closed form: %.2f, validation rsum %.1f (closed form alone %.1f, learned "
        "alone %.1f)",
        best,
        *(100 * sums[weight] for weight in (best, 1.0, 0.0)),
    )


def _parts(pooling: Pooling, averages: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both parts of the vectors of some averages, each on the unit sphere."""
    inputs = (averages - pooling.centre.numpy()) * float(pooling.scale)
    kernels = pooling.closed_form_kernel, pooling.kernel
    first, second = (unit_rows(inputs @ kernel.numpy()) for kernel in kernels)
    return first, second
