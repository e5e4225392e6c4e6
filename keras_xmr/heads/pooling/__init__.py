"""From local features (B, L, F) to one global vector (B, D)."""

from keras_xmr.heads.pooling.base import Pooling
from keras_xmr.heads.pooling.mean import Adapter, Attention, Mean, RectifiedMean
from keras_xmr.heads.pooling.projection import Projection
from keras_xmr.heads.pooling.recurrent import GPO, GRU, BiGRU, VSRNPooling
from keras_xmr.parts.contracts import PoolingContract

__all__ = [
    "GPO",
    "GRU",
    "Adapter",
    "Attention",
    "BiGRU",
    "Mean",
    "Pooling",
    "PoolingContract",
    "Projection",
    "RectifiedMean",
    "VSRNPooling",
]
