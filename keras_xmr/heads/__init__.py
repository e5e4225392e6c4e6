"""From local features to an embedding."""

from keras_xmr.heads.base import Head, HeadError
from keras_xmr.heads.gaussian import Gaussian
from keras_xmr.heads.held_out_rank import HeldOutRank
from keras_xmr.heads.local import AttentivePoint, DynamicSubEmbeddings, PIENet, SlotAttention
from keras_xmr.heads.point import Point, PointWithFeatures, Tokens
from keras_xmr.heads.rectangle import Rectangle
from keras_xmr.parts.contracts import HeadContract

__all__ = [
    "AttentivePoint",
    "DynamicSubEmbeddings",
    "Gaussian",
    "Head",
    "HeadContract",
    "HeadError",
    "HeldOutRank",
    "PIENet",
    "Point",
    "PointWithFeatures",
    "Rectangle",
    "SlotAttention",
    "Tokens",
]
