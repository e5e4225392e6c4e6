"""The features of frozen encoders that are kept beside the records, for all that reads them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, Protocol

from data_pipelines.records import Records
from data_pipelines.sources import Split
from data_pipelines.text import Tokenizer
from keras_xmr.config.schema import Config
from keras_xmr.training.caption_features import CaptionEncoder
from keras_xmr.training.features import ImageEncoder


class Towers(Protocol):
    """What has two trained towers, such as `Retriever`; they may be loaded when they are read."""

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
    """The records as a trained model embeds them: with the features of its frozen encoders.

    They are those that its training read, where every phase froze the encoder. Images and words
    are read where the training read them, and in splits without features.

    Args:
        records: The records.
        towers: What has the trained towers.
        tokenizer: Makes word ids of the captions.
        config: The config of the run.
        splits: Splits whose features are computed where they are missing, if the folder of the
            records can be written to.

    Raises:
        RecordsError: If a record is damaged, a feature is too large for half precision, or the
            disk is full.
        CaptionFeaturesError: Likewise of captions.
    """
    is_writable = os.access(records.folder, os.W_OK)
    wanted = [split for split in splits if is_writable and split in records.splits]
    features = kept_image_features(records, towers, config, wanted)
    folder = None
    if config.train.precompute_captions and _is_frozen(config, "text"):
        captions = CaptionEncoder(towers.text_tower, records, tokenizer, config)
        captions.write(wanted)
        folder = captions.folder
    return replace(records, image_features=features, caption_features=folder)


def kept_image_features(
    records: Records, towers: Towers, config: Config, splits: Sequence[Split] = ()
) -> Records | None:
    """The features of images alone, of `splits` and of others that are there; None without any."""
    if not (config.train.precompute_features and _is_frozen(config, "image")):
        return None
    encoder = ImageEncoder(towers.image_tower, records, config)
    return encoder.write(splits) if splits else encoder.open()


def _is_frozen(config: Config, side: Literal["image", "text"]) -> bool:
    return all(phase.freezes_encoder(side) for phase in config.train.phases)
