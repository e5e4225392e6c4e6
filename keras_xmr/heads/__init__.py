"""From local features to an embedding. One file per kind of embedding."""

from keras_xmr.heads.base import Head, HeadError
from keras_xmr.heads.gaussian import Gaussian
from keras_xmr.heads.generalized_gaussian import GeneralizedGaussian
from keras_xmr.heads.local import AttentivePoint, DynamicSubEmbeddings, PIENet
from keras_xmr.heads.point import Point, PointWithFeatures, Tokens
from keras_xmr.heads.posthoc import HeldOutRank, Laplace
from keras_xmr.heads.prolip import Prolip
from keras_xmr.heads.slot_attention import SlotAttention
from keras_xmr.heads.spherical import Spherical

__all__ = [
    "AttentivePoint",
    "DynamicSubEmbeddings",
    "Gaussian",
    "GeneralizedGaussian",
    "Head",
    "HeadError",
    "HeldOutRank",
    "Laplace",
    "PIENet",
    "Point",
    "PointWithFeatures",
    "Prolip",
    "SlotAttention",
    "Spherical",
    "Tokens",
]
