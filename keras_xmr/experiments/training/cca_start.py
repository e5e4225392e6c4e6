"""Canonical correlation analysis as the start of the training of frozen towers."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf

from data_pipelines.batches import caption_batches, feature_batches, image_batches
from data_pipelines.records import Records, SplitRecords
from data_pipelines.text import Tokenizer, shortened
from keras_xmr.experiments.config.schema import CCAOptions, Config
from keras_xmr.experiments.training.held_out_ranks import held_out_log_ranks, predict
from keras_xmr.heads import Head, HeldOutRank
from keras_xmr.heads.pooling import Projection
from keras_xmr.heads.pooling.local_scaling import LocalScaling
from keras_xmr.judgements import Judgements, judge
from keras_xmr.layers.keras_compat import all_layers
from keras_xmr.linear.cca import CanonicalCorrelations, Projections
from keras_xmr.metrics import RSUM, evaluate_scores
from keras_xmr.model.retriever import Retriever
from keras_xmr.model.towers import features_of
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.progress import Progress
from keras_xmr.utils.vectors import unit_rows

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Averages:
    """Averages of the features of a split on the unit sphere, before they are centred.

    Attributes:
        images: Of N images (N, F).
        captions: Of M captions (M, G).
        image_ids: The row of the image of each caption, (M,).
        judgements: The relevance judgements.
        shortened: Of a random part of the words of a caption of each image that has one (K, G), and
            the rows of these images (K,), if a head reads them.
    """

    images: np.ndarray
    captions: np.ndarray
    image_ids: np.ndarray
    judgements: Judgements
    shortened: tuple[np.ndarray, np.ndarray] | None = None


def start_from_cca(
    model: Retriever, records: Records, tokenizer: Tokenizer, config: Config
) -> None:
    """Sets the poolings `projection` of both towers to regularised CCA of the training split.

    Args:
        model: The model, with the weights of its encoders.
        records: The records; features in place of images or captions are taken where they are.
        tokenizer: Makes word ids of the captions.
        config: The config of the run.

    Raises:
        UserError: If all images, or all captions, are alike.
    """
    train = averages_of_split(model, records.split("train"), tokenizer, config)
    for name, vectors in (("images", train.images), ("captions", train.captions)):
        if not np.ptp(vectors, axis=0).any():
            raise UserError(
                f"train.start: the features of all {name} of the training split are the same, so "
                "nothing correlates with them; look at the data, or write train.start: random"
            )
    validation = None
    if "val" in records.splits:
        validation = averages_of_split(model, records.split("val"), tokenizer, config)
    image, caption = (t.get_layer("head") for t in (model.image_tower, model.text_tower))
    if isinstance(caption, HeldOutRank):
        shorter = _shortened(model, records.split("train"), tokenizer, config)
        train = replace(train, shortened=shorter)
    begin_at_cca(image, caption, train, validation, config.train.cca)


def begin_at_cca(
    image_head: Head,
    caption_head: Head,
    train: Averages,
    validation: Averages | None,
    options: CCAOptions,
) -> None:
    """Sets the poolings `projection` of two heads.

    Ridges and exponent are those with the best sum of recalls on the validation split; without
    one, the first value of each option. Scores are cosines of the projections, for any matcher.
    """
    cca = CanonicalCorrelations(train.images, train.captions, train.image_ids)
    pooling: Any = image_head.global_pooling
    width = pooling.closed_form or image_head.dimension
    if validation is not None:
        split = (validation.images, validation.captions, validation.judgements)
        rsum, best = cca.best(width, options.grid, *split)
        reached = f", validation rsum {rsum:.1f}"
    else:
        best, reached = next(cca.projections(width, *options.grid)), ""
    _LOGGER.info(
        "start: CCA of %s images and %s captions, ridges %g and %g, exponent %g%s%s",
        f"{len(train.images):,}",
        f"{len(train.captions):,}",
        best.image_ridge,
        best.caption_ridge,
        best.exponent,
        f", directions: {best.directions}" if options.directions else "",
        reached,
    )
    images = _begin(image_head, train.images, cca.image_mean, best.image)
    captions = _begin(caption_head, train.captions, cca.caption_mean, best.caption)
    caption_pooling: Any = caption_head.global_pooling
    if caption_pooling.local_scaling is not None:
        caption_pooling.local_scaling.serve_captions()
    heads = {"images": image_head, "captions": caption_head}
    _predict_ranks(heads, {"images": images, "captions": captions}, train, best)


def _begin(head: Head, vectors: np.ndarray, mean: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """Standardises the inputs of all poolings of a head, and sets the linear map of its embedding.

    Outputs have a mean norm of 1.

    Returns:
        The inputs of the linear map.
    """
    for layer in all_layers(head):
        if isinstance(layer, Projection):
            layer.standardise(vectors, mean)
    norm = np.linalg.norm((vectors - mean) @ kernel, axis=1).mean()
    pooling: Any = head.global_pooling
    pooling.begin_at(kernel / norm)
    return _inputs(pooling, vectors)


def _predict_ranks(
    heads: Mapping[str, Head], inputs: dict[str, np.ndarray], train: Averages, best: Projections
) -> None:
    """Sets the variance of heads that predict the rank of their item, by their inputs."""
    folds = [head.folds for head in heads.values() if isinstance(head, HeldOutRank)]
    if not folds:
        return
    fold_of = np.random.default_rng(0).permutation(len(train.images)) % max(folds)
    folds_of = {"images": fold_of, "captions": fold_of[train.image_ids]}
    if train.shortened is not None:
        averages, image_ids = train.shortened
        further = _inputs(heads["captions"].global_pooling, averages)
        inputs["captions"] = np.concatenate([inputs["captions"], further])
        folds_of["captions"] = np.append(folds_of["captions"], fold_of[image_ids])
    log_ranks = held_out_log_ranks(
        train.images, train.captions, train.image_ids, fold_of, best, train.shortened
    )
    for (side, head), values in zip(heads.items(), log_ranks, strict=True):
        if isinstance(head, HeldOutRank):
            slope, intercept, explained = predict(inputs[side], values, folds_of[side])
            head.set_prediction(slope, intercept)
            _LOGGER.info(
                "variance of %s: predicts %s of the variance of held-out log ranks",
                side,
                f"{100 * explained:.0f} %" if explained > 0 else "none",
            )


def averages_of_split(
    model: Retriever, split: SplitRecords, tokenizer: Tokenizer, config: Config
) -> Averages:
    """Computes the averaged features of both towers for a split."""
    every = np.arange(split.num_captions)
    images, captions = _averages(model, split, tokenizer, config, every)
    judgements = judge(config.data.judgements, split.caption_image, split.labels, len(split))
    return Averages(images, captions, split.caption_image, judgements)


def _shortened(
    model: Retriever, split: SplitRecords, tokenizer: Tokenizer, config: Config
) -> tuple[np.ndarray, np.ndarray]:
    """Returns `Averages.shortened` of a split."""
    order = np.random.default_rng(0).permutation(split.num_captions)
    images, first = np.unique(split.caption_image[order], return_index=True)
    texts = shortened(split.texts[caption] for caption in order[first])
    batches = caption_batches(texts, tokenizer, config.evaluation.batch_size)
    parts = []
    with Progress("computing features of shortened captions", len(texts), "captions") as bar:
        for averages in _tower_averages(model.text_tower, None, batches):
            parts.append(averages)
            bar.update(len(averages))
    return np.concatenate(parts), images


def _averages(
    model: Retriever,
    split: SplitRecords,
    tokenizer: Tokenizer,
    config: Config,
    order: np.ndarray,
    every: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the averaged features of every image, or every second one and so on, and of some
    captions.
    """
    batch = config.evaluation.batch_size
    numbers = None if every == 1 else np.arange(0, len(split), every)
    images = image_batches(split, config.data.image, batch, numbers)
    if split.caption_features is not None:
        captions = feature_batches(split.caption_features, order, batch)
    else:
        captions = caption_batches([split.texts[caption] for caption in order], tokenizer, batch)
    with split.naming_damage():
        of_images = list(_tower_averages(model.image_tower, model.feature_tower, images))
    of_captions = list(_tower_averages(model.text_tower, model.caption_feature_tower, captions))
    return np.concatenate(of_images), np.concatenate(of_captions)


def _tower_averages(
    tower: tf.keras.Model, on_features: tf.keras.Model | None, batches: tf.data.Dataset
) -> Iterator[np.ndarray]:
    """Yields the averages of items, of their features where the model is called on those."""
    pooling = tower.get_layer("head").global_pooling
    encoder = None if on_features is not None else features_of(tower)

    @tf.function(input_signature=[batches.element_spec], autograph=False)
    def average(inputs: tf.Tensor) -> tf.Tensor:
        if encoder is None:
            mask = tf.reduce_any(inputs != 0, axis=-1) if inputs.shape[1] is None else None
            return pooling.average(inputs, mask)
        output = encoder(inputs, training=False)
        return pooling.average(*output) if isinstance(output, list) else pooling.average(output)

    for inputs in batches:
        yield average(inputs).numpy().astype(np.float64)


WEIGHTS = (2 / 3, 0.5, 0.8, 0.9, 1 / 3, 0.2, 1.0, 0.0)
"""Weights to try, the first of equals wins: 1 is CCA alone, 0 the learned part alone."""


def weighted_poolings(model: Retriever) -> list[Projection]:
    """Returns the poolings of both towers, if they have a part in closed form."""
    heads = [tower.get_layer("head") for tower in (model.image_tower, model.text_tower)]
    poolings = [head.global_pooling for head in heads]
    return [p for p in poolings if isinstance(p, Projection) and p.closed_form]


def choose_weight(model: Retriever, records: Records, tokenizer: Tokenizer, config: Config) -> None:
    """Sets the weight of the closed form, and then whether cosines are scaled locally (CSLS).

    Each is that with the largest sum of recalls on the validation split. Compares cosines, whatever
    the matcher.

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
        weight: _rsum(weight * fixed + (1 - weight) * learned, split.judgements)
        for weight in WEIGHTS
    }
    best = max(sums, key=lambda weight: sums[weight])
    for pooling in poolings:
        pooling.closed_form_weight.assign(best)
    _LOGGER.info(
        "weight of the closed form: %.2f, validation rsum %.1f (closed form alone %.1f, learned "
        "alone %.1f)",
        best,
        *(sums[weight] for weight in (best, 1.0, 0.0)),
    )
    scalings = [p.local_scaling for p in poolings if p.local_scaling is not None]
    if scalings:
        train = records.split("train")
        # A caption of each image; of more images than are kept every second one, and so on.
        every = -(-len(train) // scalings[0].items)
        averages = _averages(model, train, tokenizer, config, train.first_caption[:-1:every], every)
        kept = [_joined(_parts(p, a), best) for p, a in zip(poolings, averages, strict=True)]
        hubness = _scale_locally(scalings, kept, [_joined(parts, best) for parts in sides])
        scores = best * fixed + (1 - best) * learned - hubness
        scaled = _rsum(scores, split.judgements)
        is_used = scaled >= sums[best]
        for scaling in scalings:
            scaling.weight.assign(float(is_used))
        _LOGGER.info(
            "local scaling (CSLS): validation rsum %.1f, without %.1f: %s",
            scaled,
            sums[best],
            "used" if is_used else "not used",
        )


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


def _inputs(pooling: Any, averages: np.ndarray) -> np.ndarray:
    """Returns standardised averages, the inputs of the linear map of a pooling `projection`."""
    return (averages - pooling.centre.numpy()) * float(pooling.scale)


def _joined(parts: Sequence[np.ndarray], weight: float) -> np.ndarray:
    """Returns both parts of some vectors, of which the closed form has a weight: float32."""
    fixed, learned = parts
    both = [np.sqrt(weight) * fixed, np.sqrt(1 - weight) * learned]
    return np.concatenate(both, axis=1).astype(np.float32)


def _parts(pooling: Projection, averages: np.ndarray) -> list[np.ndarray]:
    """Returns both parts of the vectors of some averages, each on the unit sphere."""
    inputs = _inputs(pooling, averages)
    kernels = pooling.closed_form_kernel, pooling.kernel
    return [unit_rows(inputs @ kernel.numpy()) for kernel in kernels]
