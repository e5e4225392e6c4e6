"""Precomputed region features."""

from __future__ import annotations

from typing import Any

import keras

from keras_xmr.config.contracts import EncoderContract
from keras_xmr.config.option_types import BelowOne, PositiveInt
from keras_xmr.encoders.base import Encoder, InputSpec
from keras_xmr.layers import batch_normalization, region_mask


class Regions(Encoder):
    """Takes region features as they are, or through a linear layer.

    Args:
        dimension: Width of a linear layer that every region passes; null for none.
        normalize: Whether every region is divided by its norm first.
        batch_norm: Whether the numbers are then centred and scaled by the statistics of the
            training: features often share a large uninformative part.
        dropout: Part of the numbers that are dropped in training.
    """

    CONTRACT = EncoderContract(
        side="image",
        reads="regions",
        width="dimension",
        when=(({"batch_norm": True}, {"batch_norm": True}),),
    )

    def __init__(
        self,
        *,
        dimension: PositiveInt | None = None,
        normalize: bool = False,
        batch_norm: bool = False,
        dropout: BelowOne = 0.0,
    ) -> None:
        self.dimension = dimension
        self.normalize = normalize
        self.batch_norm = batch_norm
        self.dropout = dropout

    def features(self, inputs: Any, spec: InputSpec) -> tuple[Any, Any]:
        """Regions (B, R, F) to features (B, R, F) or (B, R, dimension).

        There is a mask (B, R) if R varies: regions of zeros are padding.
        """
        features, mask = inputs, region_mask(inputs)
        if self.normalize:
            features = keras.layers.UnitNormalization(name="normalize")(features)
        if self.batch_norm:
            layer = batch_normalization(masked=True, center=False, scale=False, name="batch_norm")
            features = layer(features, mask=mask)
        if self.dropout:
            features = keras.layers.Dropout(self.dropout, seed=spec.seed, name="dropout")(features)
        if self.dimension is not None:
            features = keras.layers.Dense(self.dimension, name="encoder")(features)
        return features, mask
