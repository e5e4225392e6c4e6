"""From local features to an embedding."""

from keras_xmr.heads.base import Head, HeadError
from keras_xmr.heads.gaussian import Gaussian, Prolip
from keras_xmr.heads.local import AttentivePoint, DynamicSubEmbeddings, PIENet, SlotAttention
from keras_xmr.heads.point import Point, PointWithFeatures, Tokens
from keras_xmr.heads.posthoc import GeneralizedGaussian, HeldOutRank, Laplace, Spherical

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
