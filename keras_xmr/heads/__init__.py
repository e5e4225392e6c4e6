"""From local features to an embedding. One file a kind of embedding."""

from keras_xmr.heads.attentive_point import AttentivePoint
from keras_xmr.heads.base import Head, HeadError
from keras_xmr.heads.dynamic_sub_embeddings import DynamicSubEmbeddings
from keras_xmr.heads.gaussian import Gaussian
from keras_xmr.heads.generalized_gaussian import GeneralizedGaussian
from keras_xmr.heads.held_out_rank import HeldOutRank
from keras_xmr.heads.laplace import Laplace
from keras_xmr.heads.pie_net import PIENet
from keras_xmr.heads.point import Point
from keras_xmr.heads.point_with_features import PointWithFeatures
from keras_xmr.heads.prolip import Prolip
from keras_xmr.heads.slot_attention import SlotAttention
from keras_xmr.heads.spherical import Spherical
from keras_xmr.heads.tokens import Tokens

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
