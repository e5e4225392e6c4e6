"""The features of frozen encoders that a finished run reads, in place of images and words."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import keras

from data_pipelines.records import Records
from data_pipelines.sources import Split
from data_pipelines.text import Tokenizer
from keras_xmr.experiments.config.schema import Config
from keras_xmr.experiments.runs.frozen_encoders import CaptionEncoder, ImageEncoder
from keras_xmr.utils.sides import Side


class Towers(Protocol):
    """An object with two trained towers, such as `Retriever`; they may be loaded on access."""

    @property
    def image_tower(self) -> keras.Model:
        """The image tower."""

    @property
    def text_tower(self) -> keras.Model:
        """The text tower."""


def with_features(
    records: Records,
    towers: Towers,
    tokenizer: Tokenizer,
    config: Config,
    splits: Sequence[Split] = (),
) -> Records:
    """Adds to the records the features of the frozen encoders of a trained model.

    The training read the same features, where every phase froze the encoder. Images and words
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
    images = captions = None
    if stores_image_features(config):
        images = ImageEncoder(towers.image_tower, records.folder, config).write(records, wanted)
    if config.train.precompute_captions and _is_frozen(config, "text"):
        encoder = CaptionEncoder(towers.text_tower, records.folder, config, tokenizer)
        captions = encoder.write(records, wanted)
    return replace(records, image_features=images, caption_features=captions)


def stores_image_features(config: Config) -> bool:
    """Returns whether the features of images of a run are stored."""
    return config.train.precompute_features and _is_frozen(config, "image")


def _is_frozen(config: Config, side: Side) -> bool:
    return all(phase.freezes_encoder(side) for phase in config.train.phases)
