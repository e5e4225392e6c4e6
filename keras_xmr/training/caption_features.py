"""Features of captions by a frozen text encoder, computed once."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from data_pipelines.batches import caption_batches
from data_pipelines.caption_features import (
    CaptionFeatures,
    features_name,
    write_caption_features,
)
from data_pipelines.columns import Strings
from data_pipelines.progress import Progress
from data_pipelines.records import Records
from data_pipelines.sources import Split
from data_pipelines.text import Tokenizer
from keras_xmr.config.schema import Config
from keras_xmr.model.retriever import Retriever
from keras_xmr.model.towers import features_of
from keras_xmr.training.features import check_constant, digest_of, splits_of_run

_LOGGER = logging.getLogger(__name__)
_KEY = "train.precompute_captions"
FOLDER = "caption_features"


def frozen_caption_features(
    model: Retriever, records: Records, tokenizer: Tokenizer, config: Config
) -> Path:
    """The folder of the features of captions, which a run reads in place of word ids.

    They stand in `<records>/caption_features/<digest>/`, where the digest is that of the encoder,
    and are named by the captions, so that other runs with the same encoder find them.

    Args:
        model: The model, its text encoder frozen, with the weights that it will keep.
        records: The records.
        tokenizer: Makes word ids of the captions.
        config: The config of the run.

    Raises:
        EncoderError: If features are not the same at every step.
        CaptionFeaturesError: If the disk is full, or a file is damaged.
    """
    encoder = CaptionEncoder(model.text_tower, records, tokenizer, config)
    splits = splits_of_run(config, records)
    if encoder.missing(splits):
        # Features that are there were written by an encoder that had passed.
        encoder.check()
    encoder.write(splits)
    return encoder.folder


class CaptionEncoder:
    """The encoder of a text tower, and the features of it that are kept beside the records.

    Args:
        tower: The text tower.
        records: The records.
        tokenizer: Makes word ids of the captions.
        config: The config of the run.

    Attributes:
        folder: The folder of the features; encoders with other weights have another.
    """

    def __init__(
        self, tower: keras.Model, records: Records, tokenizer: Tokenizer, config: Config
    ) -> None:
        self._encoder = features_of(tower)
        self._records = records
        self._tokenizer = tokenizer
        self._config = config
        self.folder = records.folder / FOLDER / _digest(self._encoder, tokenizer, config)
        self._encode = tf.function(
            lambda ids, training=False: _with_mask(self._encoder(ids, training=training)),
            reduce_retracing=True,
            autograph=False,
        )

    def check(self) -> None:
        """Refuses an encoder whose features change while a model trains; see `check_constant`."""
        captions = self._records.split("train").captions[:2]
        ids = self._tokenizer(tf.constant([caption.text for caption in captions]))
        check_constant(
            _KEY,
            "text.encoder",
            self._config.model.text.encoder.name,
            self._encoder,
            lambda training=False: self._encode(ids, training=training)[0],
        )

    def missing(self, splits: Sequence[Split]) -> dict[str, Strings]:
        """The captions of some splits that have no features yet, by the name of these."""
        texts = [self._records.split(split).texts for split in splits]
        named = {features_name(*pair): pair[1] for pair in zip(splits, texts, strict=True)}
        return {n: t for n, t in named.items() if CaptionFeatures.open(self.folder, n) is None}

    def write(self, splits: Sequence[Split]) -> None:
        """Computes the features of some splits, where they are missing."""
        _LOGGER.info("caption features: %s", self.folder)
        for name, texts in self.missing(splits).items():
            batch = self._config.evaluation.batch_size
            batches = _encoded(self._encode, list(texts), self._tokenizer, batch)
            write_caption_features(self.folder, name, batches)


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


def _digest(encoder: keras.Model, tokenizer: Tokenizer, config: Config) -> str:
    """A digest of everything that features depend on besides the captions."""
    depends = {
        "encoder": config.model.text.encoder.model_dump(mode="json"),
        "precision": config.train.precision,
        "max_words": config.data.text.max_words,
        "tokenizer": {name: repr(content) for name, content in tokenizer.files().items()},
    }
    return digest_of(depends, encoder)
