"""Features of captions by a frozen text encoder, computed once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from data_pipelines.batches import caption_batches
from data_pipelines.caption_features import CaptionFeatures, write_caption_features
from data_pipelines.progress import Progress
from data_pipelines.records import Records, SplitRecords
from data_pipelines.sources import SPLITS
from data_pipelines.text import Tokenizer
from keras_xmr.config.schema import Config
from keras_xmr.model.retriever import Retriever
from keras_xmr.model.towers import features_of
from keras_xmr.training.features import check_constant, digest_of

_LOGGER = logging.getLogger(__name__)
_KEY = "train.precompute_captions"
FOLDER = "caption_features"


def frozen_caption_features(
    model: Retriever, records: Records, tokenizer: Tokenizer, config: Config
) -> Path:
    """The folder of the features of captions, which a training reads in place of word ids.

    They stand in `<records>/caption_features/<digest>/`, where the digest is that of everything
    they depend on, so that other runs with the same encoder find them.

    Args:
        model: The model, its text encoder frozen, with the weights that it will keep.
        records: The records.
        tokenizer: Makes word ids of the captions.
        config: The config of the run.

    Raises:
        EncoderError: If features are not the same at every step.
        CaptionFeaturesError: If the disk is full, or a file is damaged.
    """
    encoder = features_of(model.text_tower)
    encode = tf.function(
        lambda ids, training=False: _with_mask(encoder(ids, training=training)),
        reduce_retracing=True,
        autograph=False,
    )
    splits = [records.split(split) for split in SPLITS[:2] if split in records.splits]
    batch = config.evaluation.batch_size
    folder = records.folder / FOLDER / _digest(encoder, splits, tokenizer, config)
    _LOGGER.info("caption features: %s", folder)
    missing = [split for split in splits if CaptionFeatures.open(folder, split.split) is None]
    if missing:
        # Features that are there were written by an encoder that had passed.
        ids = tokenizer(tf.constant([caption.text for caption in splits[0].captions[:2]]))
        check_constant(
            _KEY,
            "text.encoder",
            config.model.text.encoder.name,
            encoder,
            lambda training=False: encode(ids, training=training)[0],
        )
    for split in missing:
        texts = [caption.text for caption in split.captions]
        write_caption_features(folder, split.split, _encoded(encode, texts, tokenizer, batch))
    return folder


def _with_mask(output: tf.Tensor | list[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    features, mask = output if isinstance(output, list) else (output, None)
    if mask is None:
        mask = tf.ones(tf.shape(features)[:2], tf.bool)
    return tf.cast(features, tf.float32), mask


def _encoded(
    encode: tf.types.experimental.PolymorphicFunction,
    texts: list[str],
    tokenizer: Tokenizer,
    batch: int,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    with Progress("computing caption features", len(texts), "captions") as bar:
        for ids in caption_batches(texts, tokenizer, batch):
            features, mask = encode(ids)
            yield features.numpy(), mask.numpy()
            bar.update(len(ids))


def _digest(
    encoder: keras.Model, splits: list[SplitRecords], tokenizer: Tokenizer, config: Config
) -> str:
    """A digest of everything that features depend on: the ids of all captions among it."""
    captions = {part.split: [caption.text for caption in part.captions] for part in splits}
    depends = {
        "encoder": config.model.text.encoder.model_dump(mode="json"),
        "precision": config.train.precision,
        "max_words": config.data.text.max_words,
        "tokenizer": {name: repr(content) for name, content in tokenizer.files().items()},
        "captions": captions,
    }
    return digest_of(depends, encoder)
