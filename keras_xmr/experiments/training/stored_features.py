"""Trains a model on features of its frozen encoders, which are computed once and stored."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from data_pipelines.records import Records
from data_pipelines.sources import SPLITS, Split
from data_pipelines.text import Tokenizer
from keras_xmr.experiments.config.schema import Config
from keras_xmr.experiments.runs.frozen_encoders import (
    CaptionEncoder,
    ImageEncoder,
    OpensFeatures,
)
from keras_xmr.experiments.training.closed_form_weight import weighted_poolings
from keras_xmr.experiments.training.expectation import Expected, expectation
from keras_xmr.model.retriever import Retriever
from keras_xmr.model.towers import tower_on_features

Encoders = Mapping[str, ImageEncoder | CaptionEncoder]
"""Encoders by the names of their features in `Records`."""


def take_towers(model: Retriever, config: Config, frozen: Collection[str]) -> None:
    """Lets a model be called on stored features, where the config wants it and encoders are frozen.

    Args:
        model: The model.
        config: The config of the run.
        frozen: The sides with a frozen encoder, "image" and "text".
    """
    options = config.train
    on_images = options.precompute_features and "image" in frozen
    on_captions = options.precompute_captions and "text" in frozen
    model.feature_tower = tower_on_features(model.image_tower) if on_images else None
    model.caption_feature_tower = tower_on_features(model.text_tower) if on_captions else None


def encoders_of_features(
    model: Retriever, records: Records, tokenizer: Tokenizer, config: Config
) -> Encoders:
    """Returns the encoders of the features that a model is called on; see `take_towers`."""
    encoders: dict[str, ImageEncoder | CaptionEncoder] = {}
    if model.feature_tower is not None:
        encoders["image_features"] = ImageEncoder(model.image_tower, records.folder, config)
    if model.caption_feature_tower is not None:
        encoders["caption_features"] = CaptionEncoder(
            model.text_tower, records.folder, config, tokenizer
        )
    return encoders


def with_training_features(records: Records, encoders: Encoders) -> Records:
    """Returns records with the features of these encoders; computes and stores missing ones."""
    opened = {name: features_for_training(encoder, records) for name, encoder in encoders.items()}
    images, captions = opened.get("image_features"), opened.get("caption_features")
    return replace(records, image_features=images, caption_features=captions)


def _splits_of_training(config: Config, records: Records) -> list[Split]:
    """Returns the splits of which a training and the evaluations after it read features."""
    needed = {*SPLITS[:2], *config.evaluation.splits}
    return [split for split in SPLITS if split in needed and split in records.splits]


def features_for_training(
    encoder: ImageEncoder | CaptionEncoder, records: Records
) -> OpensFeatures:
    """Computes the features that a training reads; an interrupted computation is resumed.

    Args:
        encoder: The encoder, frozen, with the weights that it will keep.
        records: The records.

    Returns:
        Opens the features of a split, as `encoder.write` returns it.

    Raises:
        EncoderError: If features are not the same at every step.
        RecordsError: If a record is damaged, or the disk is full.
    """
    splits = _splits_of_training(encoder.config, records)
    if not len(encoder.store()):
        # Existing features were written by an encoder that had passed.
        encoder.check(records)
    return encoder.write(records, splits)


def expected_duration(
    model: Retriever, encoders: Encoders, records: Records, config: Config, epochs: int
) -> str | None:
    """Says how long a training with a part in closed form takes; None for any other training.

    Args:
        model: The model.
        encoders: The encoders whose features it is called on.
        records: The records, without features.
        config: The config of the run.
        epochs: Maximum number of epochs.
    """
    poolings = weighted_poolings(model)
    if not poolings or not encoders:
        return None
    splits = _splits_of_training(config, records)
    expected = []
    for name, encoder in encoders.items():
        count, seconds = encoder.expect(records, splits)
        unit = "photos" if name == "image_features" else "captions"
        expected.append(Expected(f"{count:,} {unit}", seconds))
    captions = records.split("train").num_captions
    width = poolings[1].closed_form_kernel.shape[0]
    return expectation(expected, captions, width, epochs)
