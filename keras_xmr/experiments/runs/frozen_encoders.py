"""Encoders of frozen towers, and their features on disk, next to the records.

The folder is `<records>/features/<digest>/`, where the digest is of all that features depend on but
the items. So other runs with the same encoder use them too, and so does a run with other photos.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from pydantic import ByteSize
from scipy.sparse import csr_matrix, vstack

from data_pipelines.batches import caption_batches, image_batches
from data_pipelines.features import Features, FeatureStore, Writer, text_keys
from data_pipelines.records import Records
from data_pipelines.shards import FEATURES
from data_pipelines.sources import Split
from data_pipelines.split_index import SplitIndex
from data_pipelines.text import Tokenizer
from keras_xmr.encoders import EncoderError
from keras_xmr.experiments.config.schema import Config
from keras_xmr.layers.backbone import run_by_length
from keras_xmr.model.towers import cheap_features_of, run_images, stored_features_of
from keras_xmr.utils.progress import Progress
from keras_xmr.utils.sides import Side
from keras_xmr.utils.vectors import chunks

_LOGGER = logging.getLogger(__name__)
_BYTES = 2
_TRIED = 2
"""Number of images by which a duration is estimated."""

OpensFeatures = Callable[[SplitIndex], Features | None]
"""Opens the features of a split; None if some are missing."""


class _FrozenEncoder:
    """The encoder of a tower, and its features on disk.

    Args:
        tower: The tower.
        records: The folder of the records.
        config: The config of the run.
    """

    _side: Side
    _key: str
    """The option by which a training reads the features."""
    _item: str
    folder: Path

    def __init__(self, tower: keras.Model, records: Path, config: Config) -> None:
        self._encoder = stored_features_of(tower)
        self._records, self.config = records, config

    def store(self) -> FeatureStore:
        """Opens the store as it is now.

        Raises:
            RecordsError: If it is damaged.
        """
        return FeatureStore(self.folder)

    def writing(self) -> AbstractContextManager[Writer]:
        """Opens the store to add features; see `FeatureStore.writing`."""
        return self.store().writing(self._item, self._key)

    def _folder_of(self, depends: Mapping[str, object]) -> Path:
        """Returns the folder of features that depend on the encoder, its weights, and
        values of options.
        """
        depends = {
            "encoder": self.config.model.towers[self._side].encoder.model_dump(mode="json"),
            "precision": self.config.train.precision,
            **depends,
        }
        digest = hashlib.sha256(json.dumps(depends, sort_keys=True).encode())
        for weight in self._encoder.weights:
            digest.update(repr(tuple(weight.shape)).encode())
            digest.update(weight.numpy().tobytes())
        return self._records / FEATURES / digest.hexdigest()[:16]

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
        records: The folder of the records.
        config: The config of the run.

    Attributes:
        shape: L and F of the features of an image.
        folder: The folder of the features; encoders with other weights have another.
        encode: The encoder as a graph, from pixels to float32 features.

    Raises:
        EncoderError: If its features have a mask, and cannot be stored.
    """

    _side, _key, _item = "image", "train.precompute_features", "an image"

    def __init__(self, tower: keras.Model, records: Path, config: Config) -> None:
        super().__init__(tower, records, config)
        if len(self._encoder.outputs) > 1:
            raise EncoderError("model.image.encoder: its features have a mask, and cannot be kept")
        self.shape: tuple[int, ...] = tuple(self._encoder.output.shape[1:])
        self.folder = self._folder_of(dict(config.data.image.seen))
        # Of any number of images: the two of the check and whole batches share the graph.
        inputs = tf.TensorSpec(self._encoder.input.shape, self._encoder.input.dtype)
        self.encode = tf.function(
            partial(self._features, training=False), [inputs], autograph=False
        )

    def check(self, records: Records) -> None:
        """Refuses an encoder with features that change while a model trains.

        Raises:
            EncoderError: If it is one.
        """
        split = records.split("train")
        with split.naming_damage():
            pixels = next(iter(image_batches(split, self.config.data.image, 2)))
        in_training = tf.function(partial(self._features, training=True), autograph=False)
        self._check_constant(self.encode(pixels), in_training(pixels))

    def expect(self, records: Records, splits: Sequence[Split]) -> tuple[int, float]:
        """Returns the number of images with missing features, and the expected seconds."""
        records, store = records.without_features(), self.store()
        opened = [records.split(split) for split in splits]
        missing = sum(len(store.missing(one.index.columns["digest"])) for one in opened)
        if not missing:
            return 0, 0.0
        with opened[0].naming_damage():
            pixels = next(iter(image_batches(opened[0], self.config.data.image, _TRIED)))
        return missing, missing / len(pixels) * _seconds(lambda: self.encode(pixels))

    def _features(self, pixels: tf.Tensor, training: bool) -> tf.Tensor:
        return tf.cast(run_images(self._encoder, pixels, training), tf.float32)

    def write(self, records: Records, splits: Sequence[Split]) -> OpensFeatures:
        """Computes the missing features of some splits; returns a function that opens a split."""
        records, size = records.without_features(), self.config.evaluation.batch_size
        opened = [records.split(split) for split in splits]
        store = self.store()
        missing = {one.split: store.missing(one.index.columns["digest"]) for one in opened}
        total = sum(map(len, missing.values()))
        _log_size(total, self._records, self.folder, self.shape)
        if not total:
            return self.open
        with self.writing() as writer, Progress("computing features", total, "images") as bar:
            for one in opened:
                images = missing[one.split]
                batches = image_batches(one, self.config.data.image, size, images)
                with one.naming_damage():
                    for numbers, pixels in zip(chunks(images, size), batches, strict=True):
                        keys = one.index.columns["digest"][numbers]
                        writer.add(keys, self.encode(pixels).numpy())
                        bar.update(len(numbers))
        return self.open

    def open(self, index: SplitIndex) -> Features | None:
        """Opens the features of the images of a split; None if some are missing."""
        store = self.store()
        rows = store.rows(index.columns["digest"])
        return None if (rows < 0).any() else Features(store, rows)


class CaptionEncoder(_FrozenEncoder):
    """The encoder of a text tower, and its features on disk.

    What depends on the captions of training, such as a bag of words, is cheap and not stored.

    Args:
        tower: The text tower.
        records: The folder of the records.
        config: The config of the run.
        tokenizer: Makes word ids of the captions.

    Attributes:
        folder: The folder of the features; encoders with other weights have another.
        encode: The encoder as a graph, from word ids to float32 features and their mask.
    """

    _side, _key, _item = "text", "train.precompute_captions", "a caption"

    def __init__(
        self, tower: keras.Model, records: Path, config: Config, tokenizer: Tokenizer
    ) -> None:
        super().__init__(tower, records, config)
        self._tokenizer = tokenizer
        self._more = cheap_features_of(tower)
        # Of splits, which a training opens again for each validation.
        self._bags: dict[bytes, csr_matrix] = {}
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
                lambda some: encode(some, training), ids, tokenizer.pad
            ),
            reduce_retracing=True,
            autograph=False,
        )

    def check(self, records: Records) -> None:
        """Refuses an encoder with features that change while a model trains.

        Raises:
            EncoderError: If it is one.
        """
        ids = self._tokenizer(tf.constant(records.split("train").texts[:2]))
        self._check_constant(self.encode(ids)[0], self.encode(ids, training=True)[0])

    def expect(self, records: Records, splits: Sequence[Split]) -> tuple[int, float]:
        """Returns the number of captions with missing features, and the expected seconds."""
        texts = [text for split in splits for text in records.split(split).texts]
        missing = len(self.store().missing(text_keys(texts)))
        if not missing:
            return 0, 0.0
        some = texts[: 16 * _TRIED]
        if missing <= len(some):  # To compute them takes as long as a trial.
            return missing, 0.0
        ids = self._tokenizer(tf.constant(some))
        return missing, missing / len(some) * _seconds(lambda: self.encode(ids)[0])

    def write(self, records: Records, splits: Sequence[Split]) -> OpensFeatures:
        """Computes the missing features of some splits; returns a function that opens a split."""
        _LOGGER.info("caption features: %s", self.folder)
        texts = [text for split in splits for text in records.split(split).texts]
        keys = text_keys(texts)
        missing = self.store().missing(keys)
        if len(missing):
            self._write(keys[missing], [texts[number] for number in missing])
        return self.open

    def _write(self, keys: np.ndarray, texts: list[str]) -> None:
        size = self.config.evaluation.batch_size
        batches = caption_batches(texts, self._tokenizer, size)
        progress = Progress("computing caption features", len(texts), "captions")
        with self.writing() as writer, progress as bar:
            for some, ids in zip(chunks(keys, size), batches, strict=True):
                features, mask = self.encode(ids)
                writer.add(some, features.numpy(), mask.numpy())
                bar.update(len(some))

    def open(self, index: SplitIndex) -> Features | None:
        """Opens the features of the captions of a split; None if some are missing."""
        keys = text_keys(index.texts)
        store = self.store()
        rows = store.rows(keys)
        if (rows < 0).any():
            return None
        if self._more is None:
            return Features(store, rows)
        if (more := self._bags.get(keys.tobytes())) is None:
            size = self.config.evaluation.batch_size
            batches = caption_batches(index.texts, self._tokenizer, size)
            more = vstack([csr_matrix(self._more(ids).numpy()[:, 0]) for ids in batches], "csr")
            self._bags[keys.tobytes()] = more
        return Features(store, rows, more)


def _seconds(compute: Callable[[], tf.Tensor]) -> float:
    """Returns the duration of a computation, the second time."""
    compute().numpy()
    begin = time.perf_counter()
    compute().numpy()
    return time.perf_counter() - begin


def _with_mask(output: tf.Tensor | list[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    features, mask = output if isinstance(output, list) else (output, None)
    if mask is None:
        mask = tf.ones(tf.shape(features)[:2], tf.bool)
    return tf.cast(features, tf.float32), mask


def _log_size(missing: int, records: Path, folder: Path, shape: tuple[int, ...]) -> None:
    """Logs how much disk the features of the missing images take, before they are computed."""
    size = missing * math.prod(shape) * _BYTES
    if not missing:
        _LOGGER.info("features: %s", folder)
        return
    _LOGGER.info(
        "features: the image encoder reads each of %s photos once; %s on disk, in %s",
        f"{missing:,}",
        _readable(size),
        folder,
    )
    free = shutil.disk_usage(records).free
    if size > free:
        _LOGGER.warning("the disk has only %s left", _readable(free))


def _readable(count: int) -> str:
    return ByteSize(count).human_readable(decimal=True, separator=" ")
