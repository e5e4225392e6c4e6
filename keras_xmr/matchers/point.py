"""Matchers of point embeddings."""

from __future__ import annotations

from typing import Any

from keras_xmr.config.contracts import MatcherContract, SearchContract
from keras_xmr.embeddings import distances
from keras_xmr.embeddings.kinds import Embedding
from keras_xmr.matchers.base import LogitMatcher, Matcher


class Cosine(Matcher):
    """Cosine of the angle between two embeddings; of Gaussians, between their means."""

    CONTRACT = MatcherContract(accepts=("point", "gaussian"))
    SEARCH = SearchContract(augmentation="mean_cosine", exact=True)

    def call(self, image: Embedding, caption: Embedding) -> Any:
        return distances.cosine(image["mean"], caption["mean"])


class CosineLogits(LogitMatcher):
    """Log-odds of a match, scale * cosine + shift, as SigLIP has them (Zhai et al. 2023, Alg. 1).

    Args:
        scale: Initial value of the learned scale (t of the paper).
        shift: Initial value of the learned shift (b).
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = MatcherContract(accepts=("point", "gaussian"))
    SEARCH = SearchContract(augmentation="mean_cosine", exact=True)

    def __init__(self, *, scale: float = 10.0, shift: float = -10.0, **kwargs: Any) -> None:
        super().__init__(scale=scale, shift=shift, **kwargs)

    def call(self, image: Embedding, caption: Embedding) -> Any:
        return self.logits(-distances.cosine(image["mean"], caption["mean"]))


class OrderEmbedding(Matcher):
    """Minus the order violation of a caption and an image: -|max(0, caption - image)|_2.

    Vendrov et al. 2016, Eq. 2, as Faghri et al. 2018 use it: an image is an instance of its
    captions. Made for heads of points with `absolute: true`.
    """

    CONTRACT = MatcherContract(accepts=("point",))
    SEARCH = SearchContract(augmentation="order")

    def call(self, image: Embedding, caption: Embedding) -> Any:
        return -distances.order_violation(image["mean"], caption["mean"])
