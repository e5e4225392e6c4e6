"""From local features (B, L, F) to one global vector (B, D). One file a pooling."""

from keras_xmr.pooling.adapter import Adapter
from keras_xmr.pooling.attention import Attention
from keras_xmr.pooling.base import Pooling
from keras_xmr.pooling.bigru import BiGRU
from keras_xmr.pooling.gpo import GPO
from keras_xmr.pooling.gru import GRU
from keras_xmr.pooling.mean import Mean
from keras_xmr.pooling.projection import Projection
from keras_xmr.pooling.rectified_mean import RectifiedMean
from keras_xmr.pooling.vsrn import VSRN

__all__ = [
    "GPO",
    "GRU",
    "VSRN",
    "Adapter",
    "Attention",
    "BiGRU",
    "Mean",
    "Pooling",
    "Projection",
    "RectifiedMean",
]
