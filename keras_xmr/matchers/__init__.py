"""From two batches of embeddings to a score matrix. One file a family of matchers."""

from keras_xmr.matchers.base import LogitMatcher, Matcher
from keras_xmr.matchers.gaussian import (
    ELK,
    KL,
    AverageL2,
    Bhattacharyya,
    JensenShannon,
    MatchProbability,
    MeanOnly,
    ReverseKL,
    SymmetricKL,
    Wasserstein,
)
from keras_xmr.matchers.point import Cosine
from keras_xmr.matchers.regions import SAF, SGR, SGRAF

__all__ = [
    "ELK",
    "KL",
    "SAF",
    "SGR",
    "SGRAF",
    "AverageL2",
    "Bhattacharyya",
    "Cosine",
    "JensenShannon",
    "LogitMatcher",
    "MatchProbability",
    "Matcher",
    "MeanOnly",
    "ReverseKL",
    "SymmetricKL",
    "Wasserstein",
]
