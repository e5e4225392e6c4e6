"""Layers that several heads, encoders and poolings are made of."""

from keras_xmr.layers.hypergraph_convolution import HypergraphConvolution
from keras_xmr.layers.l2_normalize import L2Normalize
from keras_xmr.layers.local_attention import LocalAttention
from keras_xmr.layers.preprocessing import Preprocessing

__all__ = ["HypergraphConvolution", "L2Normalize", "LocalAttention", "Preprocessing"]
