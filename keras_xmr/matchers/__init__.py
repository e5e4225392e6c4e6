"""From two batches of embeddings to a score matrix. One file per family of matchers."""

from typing import TYPE_CHECKING, NoReturn

from keras_xmr.matchers.alignment import SCAN
from keras_xmr.matchers.base import LogitMatcher, Matcher
from keras_xmr.matchers.gaussian import (
    ELK,
    KL,
    AverageL2,
    Bhattacharyya,
    ClosedFormSampled,
    JensenShannon,
    Mahalanobis,
    MahalanobisCosine,
    MatchProbability,
    MeanOnly,
    ReverseKL,
    SymmetricKL,
    Wasserstein,
)
from keras_xmr.matchers.imram import IMRAM
from keras_xmr.matchers.negative_aware import NAAF
from keras_xmr.matchers.point import (
    Cosine,
    CosineLogits,
    MaxCosine,
    MeanCosine,
    SmoothChamfer,
)
from keras_xmr.matchers.rectangle import PointToRectangle
from keras_xmr.matchers.sgraf import SAF, SGR, SGRAF
from keras_xmr.parts.contracts import MatcherContract, SearchContract
from keras_xmr.utils.messages import no_attribute

__all__ = [
    "ELK",
    "IMRAM",
    "KL",
    "NAAF",
    "SAF",
    "SCAN",
    "SGR",
    "SGRAF",
    "AverageL2",
    "Bhattacharyya",
    "ClosedFormSampled",
    "Cosine",
    "CosineLogits",
    "JensenShannon",
    "LogitMatcher",
    "Mahalanobis",
    "MahalanobisCosine",
    "MatchProbability",
    "Matcher",
    "MatcherContract",
    "MaxCosine",
    "MeanCosine",
    "MeanOnly",
    "PointToRectangle",
    "ReverseKL",
    "SearchContract",
    "SmoothChamfer",
    "SymmetricKL",
    "Wasserstein",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> NoReturn:
        raise no_attribute(__name__, name, __all__)
