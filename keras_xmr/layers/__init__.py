"""Layers of heads, encoders and poolings."""

from keras_xmr.layers.backbone import ImageBackbone, Preprocessing, TextBackbone
from keras_xmr.layers.bag_of_words import BagOfWords
from keras_xmr.layers.caption_decoder import CaptionDecoder
from keras_xmr.layers.gru import GRU
from keras_xmr.layers.local_attention import (
    GlobalAttention,
    GraphReasoning,
    HypergraphConvolution,
    LocalAttention,
    LocalResidual,
    ReZero,
)
from keras_xmr.layers.normalization import (
    GroupNormalization,
    L2Normalize,
    MaskedBatchNormalization,
    batch_normalization,
    l2_normalize,
)
from keras_xmr.layers.prolip import ProlipImageTower, ProlipTextTower
from keras_xmr.layers.region_mask import RegionMask, region_mask
from keras_xmr.layers.temperature import Temperature
from keras_xmr.layers.transformer import TransformerBlock, sine_positions

__all__ = [
    "GRU",
    "BagOfWords",
    "CaptionDecoder",
    "GlobalAttention",
    "GraphReasoning",
    "GroupNormalization",
    "HypergraphConvolution",
    "ImageBackbone",
    "L2Normalize",
    "LocalAttention",
    "LocalResidual",
    "MaskedBatchNormalization",
    "Preprocessing",
    "ProlipImageTower",
    "ProlipTextTower",
    "ReZero",
    "RegionMask",
    "Temperature",
    "TextBackbone",
    "TransformerBlock",
    "batch_normalization",
    "l2_normalize",
    "region_mask",
    "sine_positions",
]
