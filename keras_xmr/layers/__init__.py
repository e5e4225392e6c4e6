"""Layers of heads, encoders and poolings."""

from keras_xmr.layers.backbone import ImageBackbone, TextBackbone
from keras_xmr.layers.caption_decoder import CaptionDecoder
from keras_xmr.layers.gru import PackedGRU
from keras_xmr.layers.inputs import BagOfWords, Preprocessing, RegionMask, region_mask
from keras_xmr.layers.local_attention import (
    GlobalAttention,
    GraphReasoning,
    HypergraphConvolution,
    LocalAttention,
    LocalResidual,
)
from keras_xmr.layers.normalization import (
    L2Normalize,
    MaskedBatchNormalization,
    ReZero,
    Temperature,
    batch_normalization,
    l2_normalize,
)
from keras_xmr.layers.positions import sine_positions

__all__ = [
    "BagOfWords",
    "CaptionDecoder",
    "GlobalAttention",
    "GraphReasoning",
    "HypergraphConvolution",
    "ImageBackbone",
    "L2Normalize",
    "LocalAttention",
    "LocalResidual",
    "MaskedBatchNormalization",
    "PackedGRU",
    "Preprocessing",
    "ReZero",
    "RegionMask",
    "Temperature",
    "TextBackbone",
    "batch_normalization",
    "l2_normalize",
    "region_mask",
    "sine_positions",
]
