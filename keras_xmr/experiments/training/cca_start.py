"""Canonical correlation analysis as the start of the training of frozen towers."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse
import tensorflow as tf

from data_pipelines.batches import caption_batches, feature_batches, image_batches
from data_pipelines.records import Records, SplitRecords
from data_pipelines.text import Tokenizer, shortened
from keras_xmr.experiments.config.schema import Config
from keras_xmr.experiments.config.train_section import CCAOptions
from keras_xmr.experiments.training.held_out_ranks import held_out_log_ranks, predict
from keras_xmr.heads import Head, HeldOutRank
from keras_xmr.heads.pooling import Projection
from keras_xmr.judgements import Judgements, judge
from keras_xmr.judgements.judgement_files import BatchGrades
from keras_xmr.layers.keras_compat import all_layers
from keras_xmr.linear.cca import CanonicalCorrelations, Projections
from keras_xmr.model.retriever import Retriever
from keras_xmr.model.towers import features_of
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.matrix_threads import matrix_threads
from keras_xmr.utils.progress import Progress

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Averages:
    """Averages of the features of a split on the unit sphere, before they are centred.

    Attributes:
        images: Of N images (N, F).
        captions: Of M captions (M, G).
        image_ids: The row of the image of each caption, (M,).
        judgements: The relevance judgements.
        weights: Weights of pairs, sparse (N, M), in place of 1 for each caption with its image.
        shortened: Of a random part of the words of a caption of each image that has one (K, G), and
            the rows of these images (K,), if a head reads them.
    """

    images: np.ndarray
    captions: np.ndarray
    image_ids: np.ndarray
    judgements: Judgements
    weights: scipy.sparse.csr_array | None = None
    shortened: tuple[np.ndarray, np.ndarray] | None = None


@dataclass(frozen=True)
class ClosedForm:
    """The choices of a start at CCA.

    Attributes:
        options: The options of CCA, one value of each; values to try, where they are an argument.
        rank_strengths: The strengths by which heads predict ranks, of "images" and "captions";
            missing ones are chosen.
    """

    options: CCAOptions
    rank_strengths: Mapping[str, float] = field(default_factory=dict)


def start_from_cca(
    model: Retriever,
    records: Records,
    tokenizer: Tokenizer,
    config: Config,
    kept: ClosedForm | None = None,
    grades: BatchGrades | None = None,
) -> ClosedForm:
    """Sets the poolings `projection` of both towers to regularised CCA of the training split.

    Args:
        model: The model, with the weights of its encoders.
        records: The records; features in place of images or captions are taken where they are.
        tokenizer: Makes word ids of the captions.
        config: The config of the run.
        kept: Choices of a former training, in place of the config's options.
        grades: Human judgements of pairs: the weight of a pair that somebody judged is its grade.

    Returns:
        The choices.

    Raises:
        UserError: If all images, or all captions, are alike, or all pairs are judged wrong.
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
    if grades is not None:
        train = replace(train, weights=grades.pair_weights(train.image_ids))
    with matrix_threads(len(train.images)):
        return begin_at_cca(image, caption, train, validation, kept or ClosedForm(config.train.cca))


def begin_at_cca(
    image_head: Head,
    caption_head: Head,
    train: Averages,
    validation: Averages | None,
    tried: ClosedForm,
) -> ClosedForm:
    """Sets the poolings `projection` of two heads.

    Ridges and exponent are those with the best sum of recalls on the validation split; without
    one, the first value of each option. Scores are cosines of the projections, for any matcher.

    Returns:
        The choices.

    Raises:
        UserError: If all pairs are judged wrong.
    """
    try:
        cca = CanonicalCorrelations(train.images, train.captions, train.image_ids, train.weights)
    except ValueError:
        raise UserError(
            "data.training_judgements: all training pairs are judged wrong, so there is nothing "
            "to learn from"
        ) from None
    pooling: Any = image_head.global_pooling
    width = pooling.closed_form or image_head.dimension
    options = tried.options
    if validation is not None and options.settings > 1:
        split = (validation.images, validation.captions, validation.judgements)
        rsum, best = cca.best(width, options.grid, *split)
        reached = f": validation RSUM {rsum:.1f}"
    else:
        best, reached = next(cca.projections(width, *options.grid)), ""
    _LOGGER.info(
        "closed form: linear maps of %s images and %s captions (CCA; ridges %g and %g, exponent "
        "%g, %d directions)%s",
        f"{len(train.images):,}",
        f"{len(train.captions):,}",
        best.image_ridge,
        best.caption_ridge,
        best.exponent,
        best.directions,
        reached,
    )
    images = _begin(image_head, train.images, cca.image_mean, best.image)
    captions = _begin(caption_head, train.captions, cca.caption_mean, best.caption)
    caption_pooling: Any = caption_head.global_pooling
    if caption_pooling.local_scaling is not None:
        caption_pooling.local_scaling.serve_captions()
    heads = {"images": image_head, "captions": caption_head}
    inputs = {"images": images, "captions": captions}
    strengths = _predict_ranks(heads, inputs, train, best, tried.rank_strengths)
    return ClosedForm(CCAOptions(**best.options), strengths)


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
    return standardised(pooling, vectors)


def _predict_ranks(
    heads: Mapping[str, Head],
    inputs: dict[str, np.ndarray],
    train: Averages,
    best: Projections,
    kept: Mapping[str, float],
) -> dict[str, float]:
    """Sets the variance of heads that predict the rank of their item, by their inputs.

    Returns:
        The strengths of the predictions.
    """
    folds = [head.folds for head in heads.values() if isinstance(head, HeldOutRank)]
    if not folds:
        return {}
    fold_of = np.random.default_rng(0).permutation(len(train.images)) % max(folds)
    folds_of = {"images": fold_of, "captions": fold_of[train.image_ids]}
    if train.shortened is not None:
        averages, image_ids = train.shortened
        further = standardised(heads["captions"].global_pooling, averages)
        inputs["captions"] = np.concatenate([inputs["captions"], further])
        folds_of["captions"] = np.append(folds_of["captions"], fold_of[image_ids])
    log_ranks = held_out_log_ranks(
        train.images, train.captions, train.image_ids, fold_of, best, train.shortened
    )
    strengths = {}
    for (side, head), values in zip(heads.items(), log_ranks, strict=True):
        if isinstance(head, HeldOutRank):
            fitted = predict(inputs[side], values, folds_of[side], kept.get(side))
            head.set_prediction(fitted.slope, fitted.intercept)
            strengths[side] = fitted.strength
            _LOGGER.info("uncertainty of %s: %s", side, _explained(fitted.explained))
    return strengths


def _explained(share: float) -> str:
    """Says how well the ranks of held-out items are predicted."""
    if share < 0.005:
        return "their features do not tell how badly one is found, so it means nothing"
    return f"their features explain {100 * share:.0f} % of how badly new ones are found"


def averages_of_split(
    model: Retriever, split: SplitRecords, tokenizer: Tokenizer, config: Config
) -> Averages:
    """Computes the averaged features of both towers for a split."""
    every = np.arange(split.num_captions)
    images, captions = averages(model, split, tokenizer, config, every)
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
    features = []
    with Progress("computing features of shortened captions", len(texts), "captions") as bar:
        for batch in _tower_averages(model.text_tower, None, batches):
            features.append(batch)
            bar.update(len(batch))
    return np.concatenate(features), images


def averages(
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


def standardised(pooling: Any, averages: np.ndarray) -> np.ndarray:
    """Returns standardised averages, the inputs of the linear map of a pooling `projection`."""
    return (averages - pooling.centre.numpy()) * float(pooling.scale)
