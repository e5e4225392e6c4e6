"""Features of a frozen image encoder, computed once."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from data_pipelines.batches import image_batches
from data_pipelines.features import missing_images, open_features, write_features
from data_pipelines.records import Records
from data_pipelines.shards import FEATURES
from data_pipelines.sources import SPLITS, Split
from keras_xmr.config.schema import Config
from keras_xmr.encoders import EncoderError
from keras_xmr.model.retriever import Retriever
from keras_xmr.model.towers import features_of

_LOGGER = logging.getLogger(__name__)
_KEY = "train.precompute_features"
_BYTES = 2


def splits_of_run(config: Config, records: Records) -> list[Split]:
    """The splits whose features a run needs: those of training, and those of its evaluation."""
    needed = {*SPLITS[:2], *config.evaluation.splits}
    return [split for split in SPLITS if split in needed and split in records.splits]


def frozen_features(model: Retriever, records: Records, config: Config) -> Records:
    """Records of the local features of images, which a run reads in place of the images.

    They stand in `<records>/features/<digest>/`, where the digest is that of everything they
    depend on, so that other runs with the same encoder find them. What is missing of them is
    computed; a run that was stopped while it did goes on where it was.

    Args:
        model: The model, its image encoder frozen, with the weights that it will keep.
        records: Records of images.
        config: The config of the run.

    Returns:
        Records that hold regions (L, F), of all splits that the run needs.

    Raises:
        EncoderError: If features are not the same at every step.
        RecordsError: If a record is damaged, or the disk is full.
    """
    encoder = ImageEncoder(model.image_tower, records, config)
    splits = splits_of_run(config, records)
    if missing_images(records, splits, encoder.folder):
        # Features that are there were written by an encoder that had passed.
        encoder.check()
    return encoder.write(splits)


class ImageEncoder:
    """The encoder of an image tower, and the features of it that are kept beside the records.

    Args:
        tower: The image tower.
        records: Records of images.
        config: The config of the run.

    Attributes:
        folder: The folder of the features; encoders with other weights have another.

    Raises:
        EncoderError: If its features cannot be kept.
    """

    def __init__(self, tower: keras.Model, records: Records, config: Config) -> None:
        self._encoder = features_of(tower)
        if len(self._encoder.outputs) > 1:
            raise EncoderError("model.image.encoder: its features have a mask, and cannot be kept")
        self._records = records
        self._config = config
        self.folder = records.folder / FEATURES / _digest(self._encoder, records, config)
        self._encode = tf.function(
            lambda pixels, training=False: tf.cast(
                self._encoder(pixels, training=training), tf.float32
            ),
            reduce_retracing=True,
            autograph=False,
        )

    def check(self) -> None:
        """Refuses an encoder whose features change while a model trains; see `check_constant`."""
        split = self._records.split("train")
        with split.naming_damage():
            pixels = next(iter(image_batches(split, self._config.data.image, 2)))
        encode = partial(self._encode, pixels)
        name = self._config.model.image.encoder.name
        check_constant(_KEY, "image.encoder", name, self._encoder, encode)

    def open(self) -> Records | None:
        """The features that are there, of whichever splits; None if there are none."""
        return open_features(self.folder)

    def write(self, splits: Sequence[Split]) -> Records:
        """The features of some splits. What is missing of them is computed."""
        shape = tuple(self._encoder.output.shape[1:])
        _say_size(self._records, splits, self.folder, shape)
        return write_features(
            self._records,
            splits,
            self.folder,
            lambda pixels: self._encode(pixels).numpy(),
            shape,
            self._config.data.image,
            self._config.evaluation.batch_size,
        )


def check_constant(
    key: str, part: str, name: str, encoder: keras.Model, encode: Callable[..., Any]
) -> None:
    """Refuses an encoder whose features are not those of the evaluation while a model trains.

    Args:
        key: The key of the config that asks for features.
        part: What should be frozen, such as `image.encoder`.
        name: What encodes.
        encoder: The encoder.
        encode: Gives the features of a few items; with `training=True`, as while a model trains.

    Raises:
        EncoderError: If it is one.
    """
    if encoder.trainable_weights:
        raise EncoderError(
            f"{key}: freezing {part} does not freeze {encoder.trainable_weights[0].path} "
            f"of {name!r}, so its features change; leave it out"
        )
    plain, trained = encode().numpy(), encode(training=True).numpy()
    if not np.allclose(plain, trained, rtol=1e-3, atol=1e-3 * np.abs(plain).max()):
        raise EncoderError(
            f"{key}: {name!r} has layers that are random in training even if they are frozen, "
            "such as dropout, so its features are never twice the same; leave it out, or choose "
            "another encoder"
        )


def _digest(encoder: keras.Model, records: Records, config: Config) -> str:
    """A digest of everything that features depend on."""
    image, splits = config.data.image, records.manifest["splits"]
    shards = [shard["sha256"] for split in splits.values() for shard in split["shards"]]
    depends = {
        "encoder": config.model.image.encoder.model_dump(mode="json"),
        "precision": config.train.precision,
        "shards": shards,
        **image.seen,
    }
    return digest_of(depends, encoder)


def digest_of(depends: Mapping[str, Any], encoder: keras.Model) -> str:
    """A digest of what features depend on besides the weights of their encoder, and of those."""
    digest = hashlib.sha256(json.dumps(depends, sort_keys=True).encode())
    for weight in encoder.weights:
        digest.update(repr(tuple(weight.shape)).encode())
        digest.update(weight.numpy().tobytes())
    return digest.hexdigest()[:16]


def _say_size(
    records: Records, splits: Sequence[Split], folder: Path, shape: tuple[int, ...]
) -> None:
    """Says how much disk the features take, before they are computed."""
    missing = missing_images(records, splits, folder)
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
