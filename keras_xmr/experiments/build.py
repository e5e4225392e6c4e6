"""Builds the model of a config."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras

from data_pipelines.records import Records
from data_pipelines.text import (
    VOCABULARY,
    Tokenizer,
    WordTokenizer,
    make_vocabulary,
    read_vocabulary,
)
from keras_xmr.encoders import InputSpec
from keras_xmr.experiments.config.schema import Config
from keras_xmr.losses import Loss
from keras_xmr.matchers import LogitMatcher, Matcher
from keras_xmr.model.objective import Objective
from keras_xmr.model.retriever import Retriever
from keras_xmr.model.towers import image_tower, text_tower
from keras_xmr.parts.registry import Choice
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.waiting import waiting

PHOTOS: Any = SimpleNamespace(holds="images", region_shape=None)
"""Replaces the records of a model of photos, of which it needs these properties alone."""


def encoder_tokenizer(config: Config) -> Tokenizer | None:
    """Loads the tokenizer of the text encoder, if it has one.

    Raises:
        EncoderError: If it cannot be loaded.
    """
    return config.model.text.encoder.build().tokenizer(config.data.text.max_words)


def build_tokenizer(
    config: Config, records: Records, tokenizer: Tokenizer | None = None
) -> Tokenizer:
    """Returns the tokenizer of the text encoder, or one with the vocabulary of the training
    captions.

    A training that begins with the weights of a run keeps the tokenizer of that.

    Args:
        config: The config.
        records: The records.
        tokenizer: The tokenizer of the text encoder, if it has been loaded before.

    Raises:
        EncoderError: If the tokenizer of the text encoder cannot be loaded.
        UserError: If the run of `train.initial_weights` does not have one.
    """
    if config.train.initial_weights is not None:
        return restore_tokenizer(config, config.train.initial_weights)
    tokenizer = encoder_tokenizer(config) if tokenizer is None else tokenizer
    if tokenizer is not None:
        return tokenizer
    counts = Counter(dict(records.word_counts()))
    vocabulary = make_vocabulary(counts, config.data.text.min_count)
    return WordTokenizer(vocabulary, config.data.text.max_words)


def restore_tokenizer(config: Config, folder: Path) -> Tokenizer:
    """Returns the tokenizer of a run, from nothing but its folder.

    Raises:
        UserError: If the folder does not have it.
    """
    encoder = config.model.text.encoder.build()
    max_words = config.data.text.max_words
    if (tokenizer := encoder.restore_tokenizer(folder, max_words)) is not None:
        return tokenizer
    try:
        return WordTokenizer(read_vocabulary(folder / VOCABULARY), max_words)
    except (OSError, ValueError) as error:
        raise UserError(f"the vocabulary of the run cannot be read: {error}") from None


@waiting("building the model")
def build_model(
    config: Config, records: Records, tokenizer: Tokenizer, pretrained: bool
) -> Retriever:
    """Returns the model of a config, not yet compiled.

    Args:
        config: The config.
        records: The records, for the shape of region features; or `PHOTOS`.
        tokenizer: The tokenizer, whose vocabulary sizes the word embedding.
        pretrained: Whether weights and word vectors are loaded from where the config says; not
            needed if the weights of the whole model are loaded afterwards.

    Raises:
        EncoderError: If weights or word vectors cannot be loaded.
    """
    keras.config.set_dtype_policy(config.train.precision)
    inputs = InputSpec(
        image_size=config.data.image.size if records.holds == "images" else None,
        regions=records.region_shape,
        vocabulary=tokenizer.vocabulary,
        seed=config.seed,
        pretrained=pretrained,
    )
    options = config.model
    words = len(tokenizer), tokenizer.pad
    losses = [choice.build(**word_options(choice, *words)) for choice in config.objective]
    weights = [weight_of(choice) for choice in config.objective]
    return Retriever(
        image_tower(options.image, options.dimension, inputs),
        text_tower(options.text, options.dimension, inputs),
        options.matcher.build(name="matcher"),
        Objective(losses, weights),
        judgements=config.data.judgements,
        clip_norm=config.train.clip_norm,
        seed=config.seed,
        gradient_caching=config.train.gradient_caching,
        name="retriever",
    )


def weight_of(loss: Choice) -> float:
    """Returns the factor of a loss in the objective: 1 for one with an option of that name."""
    return 1.0 if "weight" in loss.options() else loss.weight  # type: ignore[attr-defined]


def word_options(choice: Choice, vocabulary: int, pad: int) -> dict[str, int]:
    """Arguments on the tokenizer for a loss that reads captions.

    Args:
        choice: The name and options of the loss.
        vocabulary: Number of words.
        pad: The id of the padding.
    """
    is_reader = choice.contract.reads_words
    return {"vocabulary": vocabulary, "pad": pad} if is_reader else {}


def further_matcher(choice: Choice, trained: Matcher, losses: Sequence[Loss]) -> Matcher:
    """Returns a matcher for evaluation only, with the trained scale and shift if it has them.

    Args:
        choice: The name and options of the matcher.
        trained: The matcher that the model was trained with.
        losses: The losses of the model.
    """
    matcher: Matcher = choice.build()
    matcher.share_parameters_with(losses)
    if isinstance(matcher, LogitMatcher) and isinstance(trained, LogitMatcher):
        matcher.scale.assign(trained.scale)
        matcher.shift.assign(trained.shift)
    return matcher
