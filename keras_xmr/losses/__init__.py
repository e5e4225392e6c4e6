"""Losses over the scores, the embeddings and the relations of one global batch. One file each."""

from keras_xmr.losses.base import Loss, Relations
from keras_xmr.losses.kl_divergence import KLDivergence
from keras_xmr.losses.soft_contrastive import SoftContrastive
from keras_xmr.losses.uniformity import Uniformity

__all__ = ["KLDivergence", "Loss", "Relations", "SoftContrastive", "Uniformity"]
