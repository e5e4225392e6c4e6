"""Losses over the scores, the embeddings and the relations of a global batch."""

from typing import TYPE_CHECKING, NoReturn

from keras_xmr.losses.base import Loss
from keras_xmr.losses.captioning import Captioning
from keras_xmr.losses.cross_entropy import InfoNCE, SupervisedContrastive
from keras_xmr.losses.functional import Functional
from keras_xmr.losses.gather import gather, gather_labels
from keras_xmr.losses.msrm import HypergraphContrastive, MahalanobisContrastive
from keras_xmr.losses.pcme import KLDivergence, SoftContrastive, Uniformity
from keras_xmr.losses.pcmepp import ProbabilisticMatching
from keras_xmr.losses.quintuplet import AdaptiveOfflineQuintuplet
from keras_xmr.losses.relations import Relations
from keras_xmr.losses.residuals import MMD, Diversity, DynamicOrthogonality, SetUniformity
from keras_xmr.losses.smooth_ranks import DAA, SmoothAP
from keras_xmr.losses.triplet import Triplet, VarianceAwareWeighting
from keras_xmr.parts.contracts import LossContract
from keras_xmr.utils.messages import no_attribute

__all__ = [
    "DAA",
    "MMD",
    "AdaptiveOfflineQuintuplet",
    "Captioning",
    "Diversity",
    "DynamicOrthogonality",
    "Functional",
    "HypergraphContrastive",
    "InfoNCE",
    "KLDivergence",
    "Loss",
    "LossContract",
    "MahalanobisContrastive",
    "ProbabilisticMatching",
    "Relations",
    "SetUniformity",
    "SmoothAP",
    "SoftContrastive",
    "SupervisedContrastive",
    "Triplet",
    "Uniformity",
    "VarianceAwareWeighting",
    "gather",
    "gather_labels",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> NoReturn:
        raise no_attribute(__name__, name, __all__)
