"""Averages of the features of frozen encoders, the inputs of linear maps in closed form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse
import tensorflow as tf

from data_pipelines.batches import caption_batches, feature_batches, image_batches
from data_pipelines.records import SplitRecords
from data_pipelines.text import Tokenizer, shortened
from keras_xmr.experiments.config.schema import Config
from keras_xmr.heads.pooling import Projection
from keras_xmr.judgements import Judgements, judge
from keras_xmr.model.retriever import Retriever
from keras_xmr.model.towers import features_of
from keras_xmr.utils.progress import Progress


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


def averages_of_split(
    model: Retriever, split: SplitRecords, tokenizer: Tokenizer, config: Config
) -> Averages:
    """Computes the averaged features of both towers for a split."""
    every = np.arange(split.num_captions)
    images, captions = averages(model, split, tokenizer, config, every)
    judgements = judge(config.data.judgements, split.caption_image, split.labels, len(split))
    return Averages(images, captions, split.caption_image, judgements)


def shortened_averages(
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


def standardised(pooling: Projection, averages: np.ndarray) -> np.ndarray:
    """Returns standardised averages, the inputs of the linear map of a pooling `projection`."""
    return (averages - pooling.centre.numpy()) * float(pooling.scale)
