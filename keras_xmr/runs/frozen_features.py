"""Features of frozen encoders, computed once and stored next to the records.

They are in `<records>/features/<digest>/` and `<records>/caption_features/<digest>/`, where the
digest is that of everything they depend on, so that other runs with the same encoder use them too.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

import keras
import numpy as np
import tensorflow as tf

from data_pipelines.batches import caption_batches, image_batches
from data_pipelines.caption_features import CaptionFeatures, features_name, write_caption_features
from data_pipelines.features import missing_images, open_features, write_features
from data_pipelines.records import Records
from data_pipelines.shards import FEATURES
from data_pipelines.sources import SPLITS, Split
from data_pipelines.split_index import Strings
from data_pipelines.text import Tokenizer
from keras_xmr.config.schema import Config
from keras_xmr.encoders import EncoderError
from keras_xmr.layers.backbone import run_by_length
from keras_xmr.model.towers import features_of, run_images
from keras_xmr.utils.progress import Progress

_LOGGER = logging.getLogger(__name__)
_BYTES = 2
CAPTION_FEATURES = "caption_features"


class Towers(Protocol):
    """An object with two trained towers, such as `Retriever`; they may be loaded on access."""

    @property
    def image_tower(self) -> Any:
        """The image tower."""

    @property
    def text_tower(self) -> Any:
        """The text tower."""


def with_features(
    records: Records,
    towers: Towers,
    tokenizer: Tokenizer,
    config: Config,
    splits: Sequence[Split] = (),
) -> Records:
    """Adds to the records the features of the frozen encoders of a trained model.

    They are those that its training read, where every phase froze the encoder. Images and words
    are read where the training read them, and in splits without features.

    Args:
        records: The records.
        towers: The trained towers.
        tokenizer: Makes word ids of the captions.
        config: The config of the run.
        splits: Splits to compute missing features for, if the folder of the records is
            writable.

    Raises:
        RecordsError: If a record is damaged, a feature is too large for half precision, or the
            disk is full.
    """
    is_writable = os.access(records.folder, os.W_OK)
    wanted = [split for split in splits if is_writable and split in records.splits]
    features = kept_image_features(records, towers, config, wanted)
    folder = None
    if config.train.precompute_captions and _is_frozen(config, "text"):
        folder = CaptionEncoder(towers.text_tower, records, config, tokenizer).write(wanted)
    return replace(records, image_features=features, caption_features=folder)


def kept_image_features(
    records: Records, towers: Towers, config: Config, splits: Sequence[Split] = ()
) -> Records | None:
    """The features of images alone, of `splits` and of all splits that have them; None if none."""
    if not (config.train.precompute_features and _is_frozen(config, "image")):
        return None
    encoder = ImageEncoder(towers.image_tower, records, config)
    return encoder.write(splits) if splits else open_features(encoder.folder)


def _is_frozen(config: Config, side: Literal["image", "text"]) -> bool:
    return all(phase.freezes_encoder(side) for phase in config.train.phases)


def features_for_training(encoder: ImageEncoder | CaptionEncoder) -> Any:
    """Computes the features that a training reads; an interrupted computation is resumed.

    Args:
        encoder: The encoder, frozen, with the weights that it will keep.

    Returns:
        Those of all splits that the run needs, as `encoder.write` returns them.

    Raises:
        EncoderError: If features are not the same at every step.
        RecordsError: If a record is damaged, or the disk is full.
    """
    needed = {*SPLITS[:2], *encoder.config.evaluation.splits}
    splits = [split for split in SPLITS if split in needed and split in encoder.records.splits]
    if encoder.missing(splits):
        # Existing features were written by an encoder that had passed.
        encoder.check()
    return encoder.write(splits)


class _FrozenEncoder:
    """The encoder of a tower, and its features on disk.

    Args:
        tower: The tower.
        records: The records.
        config: The config of the run.
    """

    _side: Literal["image", "text"]
    _key: str
    """The option by which a training reads the features."""
    _place: str
    """The folder of all features in that of the records."""

    def __init__(self, tower: keras.Model, records: Records, config: Config) -> None:
        self._encoder = features_of(tower)
        self.records, self.config = records, config

    def _folder_of(self, depends: Mapping[str, Any]) -> Path:
        """The folder of features that depend on the encoder, its weights, and values of options."""
        depends = {
            "encoder": self.config.model.towers[self._side].encoder.model_dump(mode="json"),
            "precision": self.config.train.precision,
            **depends,
        }
        digest = hashlib.sha256(json.dumps(depends, sort_keys=True).encode())
        for weight in self._encoder.weights:
            digest.update(repr(tuple(weight.shape)).encode())
            digest.update(weight.numpy().tobytes())
        return self.records.folder / self._place / digest.hexdigest()[:16]

    def _check_constant(self, plain: tf.Tensor, trained: tf.Tensor) -> None:
        """Checks that the features of a few items are the same while a model trains."""
        name = self.config.model.towers[self._side].encoder.name
        if self._encoder.trainable_weights:
            raise EncoderError(
                f"{self._key}: freezing {self._side}.encoder does not freeze "
                f"{self._encoder.trainable_weights[0].path} of {name!r}, so its features change; "
                "leave it out"
            )
        if not np.allclose(plain, trained, rtol=1e-3, atol=1e-3 * np.abs(plain).max()):
            raise EncoderError(
                f"{self._key}: {name!r} has layers that are random in training even if they are "
                "frozen, such as dropout, so its features are never twice the same; leave it out, "
                "or choose another encoder"
            )


class ImageEncoder(_FrozenEncoder):
    """The encoder of an image tower, and its features on disk.

    Args:
        tower: The image tower.
        records: Records of images.
        config: The config of the run.

    Attributes:
        folder: The folder of the features; encoders with other weights have another.
        encode: The encoder as a graph, from pixels to float32 features.

    Raises:
        EncoderError: If its features have a mask, and cannot be stored.
    """

    _side, _key, _place = "image", "train.precompute_features", FEATURES

    def __init__(self, tower: keras.Model, records: Records, config: Config) -> None:
        super().__init__(tower, records, config)
        if len(self._encoder.outputs) > 1:
            raise EncoderError("model.image.encoder: its features have a mask, and cannot be kept")
        splits = records.manifest["splits"].values()
        shards = [shard["sha256"] for split in splits for shard in split["shards"]]
        self.folder = self._folder_of({"shards": shards, **config.data.image.seen})
        # Of any number of images: the two of the check and whole batches share the graph.
        inputs = tf.TensorSpec(self._encoder.input.shape, self._encoder.input.dtype)
        self.encode = tf.function(
            partial(self._features, training=False), [inputs], autograph=False
        )

    def missing(self, splits: Sequence[Split]) -> int:
        """The number of images of some splits that have no features yet."""
        return missing_images(self.records, splits, self.folder)

    def check(self) -> None:
        """Refuses an encoder with features that change while a model trains.

        Raises:
            EncoderError: If it is one.
        """
        split = self.records.split("train")
        with split.naming_damage():
            pixels = next(iter(image_batches(split, self.config.data.image, 2)))
        in_training = tf.function(partial(self._features, training=True), autograph=False)
        self._check_constant(self.encode(pixels), in_training(pixels))

    def _features(self, pixels: tf.Tensor, training: bool) -> tf.Tensor:
        return tf.cast(run_images(self._encoder, pixels, training), tf.float32)

    def write(self, splits: Sequence[Split]) -> Records:
        """Computes the missing features of some splits; returns all, as records of regions."""
        shape = tuple(self._encoder.output.shape[1:])
        _log_size(self.missing(splits), self.records, self.folder, shape)
        return write_features(
            self.records,
            splits,
            self.folder,
            lambda pixels: self.encode(pixels).numpy(),
            shape,
            self.config.data.image,
            self.config.evaluation.batch_size,
        )


class CaptionEncoder(_FrozenEncoder):
    """The encoder of a text tower, and its features on disk.

    Args:
        tower: The text tower.
        records: The records.
        config: The config of the run.
        tokenizer: Makes word ids of the captions.

    Attributes:
        folder: The folder of the features; encoders with other weights have another.
        encode: The encoder as a graph, from word ids to float32 features and their mask.
    """

    _side, _key, _place = "text", "train.precompute_captions", CAPTION_FEATURES

    def __init__(
        self, tower: keras.Model, records: Records, config: Config, tokenizer: Tokenizer
    ) -> None:
        super().__init__(tower, records, config)
        self._tokenizer = tokenizer
        files = {name: repr(content) for name, content in tokenizer.files().items()}
        self.folder = self._folder_of({"max_words": config.data.text.max_words, "tokenizer": files})
        # A separate graph, which all parts of a batch share.
        encode = tf.function(
            lambda ids, training: _with_mask(self._encoder(ids, training=training)),
            reduce_retracing=True,
            autograph=False,
        )
        self.encode = tf.function(
            lambda ids, training=False: run_by_length(
                lambda part: encode(part, training), ids, tokenizer.pad
            ),
            reduce_retracing=True,
            autograph=False,
        )

    def missing(self, splits: Sequence[Split]) -> dict[str, Strings]:
        """The captions of some splits that have no features yet, by the name of these."""
        texts = [self.records.split(split).texts for split in splits]
        named = {features_name(*pair): pair[1] for pair in zip(splits, texts, strict=True)}
        return {n: t for n, t in named.items() if CaptionFeatures.open(self.folder, n) is None}

    def check(self) -> None:
        """Refuses an encoder with features that change while a model trains.

        Raises:
            EncoderError: If it is one.
        """
        captions = self.records.split("train").captions[:2]
        ids = self._tokenizer(tf.constant([caption.text for caption in captions]))
        self._check_constant(self.encode(ids)[0], self.encode(ids, training=True)[0])

    def write(self, splits: Sequence[Split]) -> Path:
        """Computes the missing features of some splits; returns the folder of all."""
        _LOGGER.info("caption features: %s", self.folder)
        for name, texts in self.missing(splits).items():
            write_caption_features(self.folder, name, self._encoded(list(texts)))
        return self.folder

    def _encoded(self, texts: list[str]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Features and masks of captions, in batches."""
        batch_size = self.config.evaluation.batch_size
        with Progress("computing caption features", len(texts), "captions") as bar:
            for ids in caption_batches(texts, self._tokenizer, batch_size):
                features, mask = self.encode(ids)
                yield features.numpy(), mask.numpy()
                bar.update(len(ids))


def _with_mask(output: tf.Tensor | list[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    features, mask = output if isinstance(output, list) else (output, None)
    if mask is None:
        mask = tf.ones(tf.shape(features)[:2], tf.bool)
    return tf.cast(features, tf.float32), mask


def _log_size(missing: int, records: Records, folder: Path, shape: tuple[int, ...]) -> None:
    """Logs how much disk the features of the missing images take, before they are computed."""
    size = missing * math.prod(shape) * _BYTES
    if not missing:
        _LOGGER.info("features: %s", folder)
        return
    _LOGGER.info(
        "features: %s images x %d positions x %d numbers x %d bytes = %s on disk, in %s",
        f"{missing:,}",
        *shape,
        _BYTES,
        _bytes(size),
        folder,
    )
    free = shutil.disk_usage(records.folder).free
    if size > free:
        _LOGGER.warning("the disk has only %s left", _bytes(free))


def _bytes(count: float) -> str:
    """A number of bytes, readable."""
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.1f} GB"
