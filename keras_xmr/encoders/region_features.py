"""Precomputed region features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import keras

from keras_xmr.encoders.base import Encoder, InputSpec
from keras_xmr.layers import GraphReasoning, L2Normalize, batch_normalization, region_mask
from keras_xmr.parts.contracts import EncoderContract
from keras_xmr.parts.option_types import BelowOne, PositiveInt
from keras_xmr.parts.tensors import Tensor


@dataclass(kw_only=True, eq=False)
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

    dimension: PositiveInt | None = None
    normalize: bool = False
    batch_norm: bool = False
    dropout: BelowOne = 0.0

    def features(self, inputs: Tensor, spec: InputSpec) -> tuple[Tensor, Tensor | None]:
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


@dataclass(kw_only=True, eq=False)
class VSRN(Encoder):
    """Graph reasoning over regions, the first half of VSRN (Li et al. 2019, section 3.2).

    A linear layer, blocks of graph reasoning, and a projection on the unit sphere. The second
    half, a GRU over the regions, is the pooling `gru`; the caption decoder that Li et al. train
    in addition is the loss `captioning`, which Bleeker and de Rijke 2022 do not use.

    Args:
        dimension: Width of the regions; in the paper the width of the joint space.
        blocks: Blocks of graph reasoning.
        normalize_first: Whether the outputs of the linear layer are divided by their norms before
            the graph: the released code does so on COCO, not on Flickr30K.
        normalize_over: The axis of the norms. "features" makes every region a unit vector.
            "regions" is the axis of the released code: each feature is divided by its norm over
            the regions of the image.
    """

    CONTRACT = EncoderContract(side="image", reads="regions", width="dimension", batch_norm=True)

    dimension: PositiveInt = 2048
    blocks: PositiveInt = 4
    normalize_first: bool = True
    normalize_over: Literal["features", "regions"] = "features"

    def features(self, inputs: Tensor, spec: InputSpec) -> tuple[Tensor, Tensor | None]:
        """Regions (B, R, F) to features (B, R, dimension), and a mask (B, R) if R varies."""
        return self._network(inputs.shape[1:])(inputs), region_mask(inputs)

    def _network(self, shape: tuple[int | None, ...]) -> keras.Model:
        axis = -1 if self.normalize_over == "features" else 1
        inputs = keras.Input(shape)
        mask = region_mask(inputs)
        x = keras.layers.Dense(self.dimension, name="linear")(inputs)
        if mask is not None:
            # The norms are over the regions, without the padding.
            x = x * keras.ops.cast(mask, x.dtype)[..., None]
        if self.normalize_first:
            x = L2Normalize(axis, dtype="float32", name="normalize_first")(x)
        for block in range(self.blocks):
            x = GraphReasoning(name=f"reasoning_{block}")(x, mask=mask)
        x = L2Normalize(axis, dtype="float32", name="normalize")(x)
        return keras.Model(inputs, x, name="encoder")
