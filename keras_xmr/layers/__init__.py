"""Layers that several heads, encoders and poolings are made of."""

from keras_xmr.layers.batch_normalization import batch_normalization
from keras_xmr.layers.graph_reasoning import GraphReasoning
from keras_xmr.layers.l2_normalize import L2Normalize
from keras_xmr.layers.local_attention import LocalAttention
from keras_xmr.layers.preprocessing import Preprocessing

__all__ = [
    "GraphReasoning",
    "L2Normalize",
    "LocalAttention",
    "Preprocessing",
    "batch_normalization",
]
