"""Canonical correlation analysis as the start of the training of frozen towers."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np

from data_pipelines.records import Records
from data_pipelines.text import Tokenizer
from keras_xmr.experiments.config.schema import Config
from keras_xmr.experiments.config.train_section import CCAOptions
from keras_xmr.experiments.training.feature_averages import (
    Averages,
    averages_of_split,
    shortened_averages,
    standardised,
)
from keras_xmr.experiments.training.held_out_ranks import held_out_log_ranks, predict
from keras_xmr.heads import Head, HeldOutRank
from keras_xmr.heads.pooling import Projection
from keras_xmr.judgements.judgement_files import BatchGrades
from keras_xmr.layers.keras_compat import all_layers
from keras_xmr.linear.cca import CanonicalCorrelations, Projections
from keras_xmr.model.retriever import Retriever
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.matrix_threads import matrix_threads

_LOGGER = logging.getLogger(__name__)


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
        shorter = shortened_averages(model, records.split("train"), tokenizer, config)
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
    pooling = _projection(image_head)
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
    caption_pooling = _projection(caption_head)
    if caption_pooling.local_scaling is not None:
        caption_pooling.local_scaling.serve_captions()
    heads = {"images": image_head, "captions": caption_head}
    inputs = {"images": images, "captions": captions}
    strengths = _predict_ranks(heads, inputs, train, best, tried.rank_strengths)
    return ClosedForm(CCAOptions(**best.options), strengths)


def _projection(head: Head) -> Projection:
    """Returns the pooling of a head, which the config has checked."""
    return cast(Projection, head.global_pooling)


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
    pooling = _projection(head)
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
        further = standardised(_projection(heads["captions"]), averages)
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
