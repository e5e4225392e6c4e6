"""Losses over the scores, the embeddings and the relations of one global batch. One file each."""

from keras_xmr.losses.base import Loss, Relations
from keras_xmr.losses.daa import DAA
from keras_xmr.losses.kl_divergence import KLDivergence
from keras_xmr.losses.msrm import HypergraphContrastive, MahalanobisContrastive
from keras_xmr.losses.pcmepp import ProbabilisticMatching
from keras_xmr.losses.soft_contrastive import SoftContrastive
from keras_xmr.losses.uniformity import Uniformity

__all__ = [
    "DAA",
    "HypergraphContrastive",
    "KLDivergence",
    "Loss",
    "MahalanobisContrastive",
    "ProbabilisticMatching",
    "Relations",
    "SoftContrastive",
    "Uniformity",
]
