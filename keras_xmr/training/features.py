"""Features of a frozen image encoder, computed once."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from data_pipelines.batches import image_batches
from data_pipelines.features import missing_images, write_features
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


def frozen_features(model: Retriever, records: Records, config: Config) -> Records:
    """Records of the local features of images, in place of the images that a training reads.

    They stand in `<records>/features/<digest>/`, where the digest is that of everything they
    depend on, so that other runs with the same encoder find them. What is missing of them is
    computed; a run that was stopped while it did goes on where it was.

    Args:
        model: The model, its image encoder frozen, with the weights that it will keep.
        records: Records of images.
        config: The config of the run.

    Returns:
        Records that hold regions (L, F), of the splits that a training reads.

    Raises:
        EncoderError: If features are not the same at every step.
        RecordsError: If a record is damaged, or the disk is full.
    """
    encoder = features_of(model.image_tower)
    if len(encoder.outputs) > 1:
        raise EncoderError("model.image.encoder: its features have a mask, and cannot be kept")
    splits: list[Split] = [split for split in SPLITS[:2] if split in records.splits]
    encode = tf.function(
        lambda pixels, training=False: tf.cast(encoder(pixels, training=training), tf.float32),
        reduce_retracing=True,
        autograph=False,
    )
    folder = records.folder / FEATURES / _digest(encoder, records, splits, config)
    if missing_images(records, splits, folder):
        # Features that are there were written by an encoder that had passed.
        split = records.split("train")
        with split.naming_damage():
            pixels = next(iter(image_batches(split, config.data.image, 2)))
        name = config.model.image.encoder.name
        check_constant(_KEY, "image.encoder", name, encoder, partial(encode, pixels))
    shape = tuple(encoder.output.shape[1:])
    _say_size(records, splits, folder, shape)
    return write_features(
        records,
        splits,
        folder,
        lambda pixels: encode(pixels).numpy(),
        shape,
        config.data.image,
        config.evaluation.batch_size,
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


def _digest(encoder: keras.Model, records: Records, splits: list[Split], config: Config) -> str:
    """A digest of everything that features depend on."""
    image = config.data.image
    shards = [shard["sha256"] for s in splits for shard in records.manifest["splits"][s]["shards"]]
    depends = {
        "encoder": config.model.image.encoder.model_dump(mode="json"),
        "precision": config.train.precision,
        "size": image.size,
        "resize": image.resize,
        "splits": splits,
        "shards": shards,
    }
    return digest_of(depends, encoder)


def digest_of(depends: Mapping[str, Any], encoder: keras.Model) -> str:
    """A digest of what features depend on besides the weights of their encoder, and of those."""
    digest = hashlib.sha256(json.dumps(depends, sort_keys=True).encode())
    for weight in encoder.weights:
        digest.update(repr(tuple(weight.shape)).encode())
        digest.update(weight.numpy().tobytes())
    return digest.hexdigest()[:16]


def _say_size(records: Records, splits: list[Split], folder: Path, shape: tuple[int, ...]) -> None:
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
