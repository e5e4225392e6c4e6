"""Base class of encoders."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import keras
import tensorflow as tf

from data_pipelines.text import Tokenizer
from keras_xmr.layers.keras_compat import all_layers
from keras_xmr.parts.contracts import Declared, EncoderContract
from keras_xmr.parts.tensors import Tensor
from keras_xmr.utils.errors import UserError


class EncoderError(UserError):
    """An encoder cannot be built, for instance because its weights are missing."""


@dataclass(frozen=True)
class InputSpec:
    """Properties of the inputs of the towers.

    Attributes:
        image_size: Height and width of the pixels, for pictures.
        regions: Number and width (R, F) of the region features, for regions; R may be None.
        vocabulary: Words by id, for captions.
        pretrained: Whether weights and word vectors are loaded as the config says; not needed if
            the weights of the whole model are loaded afterwards.
        seed: Seed of random numbers.
    """

    image_size: int | None = None
    regions: tuple[int | None, int] | None = None
    vocabulary: Sequence[str] = ()
    pretrained: bool = True
    seed: int = 0


class Encoder(Declared, abc.ABC):
    """Builds the first part of a functional tower.

    A subclass declares its side and other properties in `CONTRACT`; see
    `keras_xmr.parts.contracts.EncoderContract`. Its options are the keyword-only parameters of its
    constructor. All its weights belong to one layer of the name "encoder", so that they can be
    frozen together.
    """

    CONTRACT = EncoderContract()

    @abc.abstractmethod
    def features(self, inputs: Tensor, spec: InputSpec) -> tuple[Tensor, Tensor | None]:
        """Adds the encoder to a functional model.

        Args:
            inputs: The symbolic input: pixels uint8 (B, H, W, 3), regions float (B, R, F), or
                word ids int32 (B, L), padded as their tokenizer pads.
            spec: Properties of the inputs.

        Returns:
            Symbolic local features (B, L, F), and a boolean mask (B, L) or None.

        Raises:
            EncoderError: If weights or vectors cannot be loaded.
        """

    def error(self, option: str, text: str) -> EncoderError:
        """Returns an error about an option, which begins with its key in a config."""
        return EncoderError(f"model.{self.CONTRACT.side}.encoder.{option}: {text}")

    def tokenizer(self, max_words: int) -> Tokenizer | None:
        """Returns the tokenizer of an encoder for text.

        Args:
            max_words: Longer captions are cut.

        Returns:
            The tokenizer, or None: the words of the training captions are the vocabulary then.

        Raises:
            EncoderError: If it cannot be loaded.
        """
        return None

    def restore_tokenizer(self, run: Path, max_words: int) -> Tokenizer | None:
        """Loads that tokenizer from the folder of a run alone.

        Args:
            run: The folder of the run.
            max_words: Longer captions are cut.

        Raises:
            UserError: If the folder does not have it.
        """
        return None


def synchronize(network: keras.Model) -> None:
    """Normalises over the global batch, so that replicas train as one device would."""
    if tf.distribute.get_strategy().num_replicas_in_sync > 1:
        for layer in all_layers(network):
            if isinstance(layer, keras.layers.BatchNormalization):
                layer.synchronized = True
