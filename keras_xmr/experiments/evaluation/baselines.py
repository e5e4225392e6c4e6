"""Simpler models of the same features, which a trained one is compared with."""

from __future__ import annotations

from typing import Any

import numpy as np

from data_pipelines.batches import feature_batches, image_batches
from data_pipelines.records import Records, SplitRecords
from keras_xmr.experiments.config.model_facts import is_as_published
from keras_xmr.experiments.config.schema import Config
from keras_xmr.experiments.config.train_section import CCAOptions
from keras_xmr.experiments.evaluation.split_evaluation import Evaluation
from keras_xmr.judgements import judge
from keras_xmr.linear.cca import CanonicalCorrelations, Projections
from keras_xmr.linear.hubness import pair_hubness
from keras_xmr.metrics import measure
from keras_xmr.utils.matrix_threads import matrix_threads
from keras_xmr.utils.vectors import unit_rows

LINEAR = "linear model (CCA)"
"""The row of the linear model."""

LINEAR_CSLS = "linear model (CCA) with CSLS"
"""The row of the linear model with the correction that the trained one may use."""

ZERO_SHOT = "zero-shot model (no training)"
"""The row of the encoders as they were published."""

WORDS = {
    LINEAR: (
        "regularised canonical correlation analysis of the averaged features of the frozen "
        "encoders, in closed form; its options are the best on the validation split"
    ),
    LINEAR_CSLS: (
        "the same; its cosines are corrected for items that are near everything (CSLS); the "
        "trained model uses this correction where it helps on the validation split"
    ),
    ZERO_SHOT: (
        "cosine of the embeddings of both frozen encoders, as they were published for each other"
    ),
}
"""Descriptions of the baselines."""

_OPTIONS = CCAOptions(
    image_ridges=(10, 1, 100),
    caption_ridges=(3, 0.3),
    exponents=(0.5, 1),
    directions=(128, 64),
)
"""Some of the options of `csv_pretrained`, for hundreds of photos and for thousands."""

_MOST = 100_000
"""Captions of a training split: of more, the vectors take gigabytes."""


Vectors = tuple[np.ndarray, np.ndarray]
"""Vectors of images (N, F) and of captions (M, G)."""


def add_baselines(
    evaluation: Evaluation, records: Records, config: Config, kept: CCAOptions | None = None
) -> CCAOptions | None:
    """Adds the metrics of simpler models of the features of frozen encoders.

    *Zero-shot*: where both encoders are the towers of one CLIP or SigLIP, they are compared with
    each other as they were published.

    *Linear*: regularised CCA, in closed form. Features are averaged over the places of an image and
    the words of a caption; where features of images are never negative, square roots are taken
    (Arandjelovic and Zisserman 2012). Ridges, exponent and number of directions are the best on the
    validation split, if there is one. Where the model scales cosines locally (CSLS, Conneau et al.
    2018, section 2.3), so does a second row.

    Nothing is added where the features of both sides are not kept, or scores do not fit in memory.

    Args:
        evaluation: The evaluation of a model on a split.
        records: The records with the features of its encoders; see `with_features`.
        config: The config of its run.
        kept: The options of the linear model, one value of each, in place of a choice.

    Returns:
        The options of the linear model; None without one.
    """
    split: Any = evaluation.split
    own_split = records.split(split)
    if not (evaluation.matchers[0].scores.is_dense and _has_features(own_split)):
        return None
    tested = _means_of_split(own_split, config)
    with matrix_threads(max(len(records.split(name)) for name in records.splits)):
        options, scores = _linear_scores(tested, records, config, kept)
    if _is_joint(config) and not is_as_published(config):
        images, captions = _unit(tested, False)
        scores[ZERO_SHOT] = (images @ captions.T).astype(np.float32)
    for name, values in scores.items():
        measured = measure(values, evaluation.ground_truth, config.evaluation.folds)
        evaluation.baselines[name] = measured
    return options


def _is_joint(config: Config) -> bool:
    """Returns whether both encoders are the towers of one published model, in its joint space."""
    image, text = (
        [getattr(tower.encoder, key, None) for key in ("preset", "weights", "output")]
        for tower in (config.model.image, config.model.text)
    )
    return image == text and image[1:] == ["preset", "pooled"]


def _linear_scores(
    tested: Vectors, records: Records, config: Config, kept: CCAOptions | None
) -> tuple[CCAOptions | None, dict[str, np.ndarray]]:
    """Returns the options of CCA, and scores on the features of a split, by row; none where it
    cannot be learned.
    """
    if "train" not in records.splits:
        return None, {}
    train_split = records.split("train")
    if train_split.num_captions > _MOST or not _has_features(train_split):
        return None, {}
    train = _means_of_split(train_split, config)
    if not all(np.ptp(means, axis=0).any() for means in train):
        return None, {}  # Where all are alike, nothing correlates.
    rooted = bool(min(train[0].min(), tested[0].min()) >= 0)
    cca = CanonicalCorrelations(*_unit(train, rooted), train_split.caption_image)
    best = _choose(cca, records, config, rooted, kept)
    images, captions = cca.project(best, *_unit(tested, rooted))
    scores = {LINEAR: images @ captions.T}
    if count := getattr(config.model.image.pooling, "local_scaling", 0):
        # Each image with its first caption, as the model has them.
        firsts = np.unique(train_split.caption_image, return_index=True)[1][
            :: -(-len(train_split) // count)
        ]
        neighbours = train[0][train_split.caption_image[firsts]], train[1][firsts]
        near = cca.project(best, *_unit(neighbours, rooted))
        scores[LINEAR_CSLS] = scores[LINEAR] - pair_hubness((images, captions), near)
    return CCAOptions(**best.options), scores


def _choose(
    cca: CanonicalCorrelations,
    records: Records,
    config: Config,
    rooted: bool,
    kept: CCAOptions | None,
) -> Projections:
    """Returns the maps that are best on the validation split, or that are kept."""
    width, grid = max(_OPTIONS.directions), (kept or _OPTIONS).grid
    if kept is not None:
        return next(cca.projections(width, *grid))
    split = records.split("val") if "val" in records.splits else None
    if split is None or not _has_features(split):
        return next(cca.projections(width, *grid))
    vectors = _unit(_means_of_split(split, config), rooted)
    judgements = judge(config.data.judgements, split.caption_image, split.labels, len(split))
    return cca.best(width, grid, *vectors, judgements)[1]


def _has_features(split: SplitRecords) -> bool:
    return split.holds != "images" and split.caption_features is not None


def _means_of_split(split: SplitRecords, config: Config) -> Vectors:
    size, order = config.evaluation.batch_size, np.arange(split.num_captions)
    images = image_batches(split, config.data.image, size)
    features: Any = split.caption_features
    captions = feature_batches(features, order, size)
    with split.naming_damage():
        image_means, caption_means = (
            np.concatenate([_means(batch) for batch in batches.as_numpy_iterator()])
            for batches in (images, captions)
        )
    return image_means, caption_means


def _means(features: np.ndarray) -> np.ndarray:
    """Returns the means (B, F) of features (B, L, F) over the places that are there, float64."""
    there = (features != 0).any(axis=-1).sum(axis=-1, keepdims=True)
    return features.sum(axis=1, dtype=np.float64) / np.maximum(there, 1)


def _unit(means: Vectors, rooted: bool) -> Vectors:
    images, captions = means
    return unit_rows(np.sqrt(images) if rooted else images), unit_rows(captions)
