"""Matchers of MSRM, which ask the Gaussian of the query alone.

The paper does not say what is scored at test time; beside these there is the cosine of the means.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import keras

from keras_xmr.config.contracts import MatcherContract, SearchContract
from keras_xmr.config.option_types import PositiveFloat
from keras_xmr.embeddings import distances
from keras_xmr.embeddings.kinds import Embedding
from keras_xmr.matchers.base import Matcher, Side


@keras.saving.register_keras_serializable(package="keras_xmr")
class Mahalanobis(Matcher):
    """Minus the squared Mahalanobis distance of the other's mean to the Gaussian of the query.

    Wang et al. 2023, Eq. 4.
    """

    CONTRACT = MatcherContract(accepts=("gaussian",), directed=True)
    SEARCH = SearchContract(augmentation="mahalanobis", exact=True)

    def call(self, image: Embedding, caption: Embedding, query: Side = "image") -> Any:
        return -_mahalanobis(image, caption, query)


@keras.saving.register_keras_serializable(package="keras_xmr")
class MahalanobisCosine(Matcher):
    """Logarithm of the product of both probabilities of MSRM, up to a constant of the query.

    -temperature * d^2 + cosine_scale * cos, with the squared Mahalanobis distance d^2 of
    `mahalanobis` and the cosine of the means (Wang et al. 2023, Eq. 5 and 11; in Eq. 11 the means
    stand for the nodes of the hypergraph, which there is only in training).

    In a model that `mahalanobis_contrastive` trains, tau is what that loss has learned, and so is
    lambda beside `hypergraph_contrastive`: the scores then move with the training.

    Args:
        temperature: tau of Eq. 5, where no loss learns it.
        cosine_scale: lambda of Eq. 11, where no loss learns it.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = MatcherContract(
        accepts=("gaussian",),
        directed=True,
        shared=("temperature", "cosine_scale"),
    )
    SEARCH = SearchContract(augmentation="mahalanobis_cosine", exact=True)

    def __init__(
        self,
        *,
        temperature: PositiveFloat = 10.0,
        cosine_scale: PositiveFloat = 5.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.temperature = temperature
        self.cosine_scale = cosine_scale
        self._followed = _Followed()

    def follow(self, losses: Iterable[Any]) -> None:
        for loss in losses:
            self._followed.scalars |= {name: getattr(loss, name) for name in loss.contract.shares}

    def _scalars(self) -> dict[str, Any]:
        own = {"cosine_scale": self.cosine_scale, "temperature": self.temperature}
        return own | self._followed.scalars

    def call(self, image: Embedding, caption: Embedding, query: Side = "image") -> Any:
        scalars = self._scalars()
        cosine = scalars["cosine_scale"] * distances.cosine(image["mean"], caption["mean"])
        return cosine - scalars["temperature"] * _mahalanobis(image, caption, query)

    def search_constants(self) -> dict[str, float]:
        return {name: float(value) for name, value in self._scalars().items()}


class _Followed:
    """Weights of losses, out of sight of Keras: the losses save and restore them."""

    def __init__(self) -> None:
        self.scalars: dict[str, Any] = {}


def _mahalanobis(image: Embedding, caption: Embedding, query: Side) -> Any:
    """Squared distances (images, captions) with the variances of one side."""
    if query == "caption":
        return distances.mahalanobis_squared(
            image["mean"], caption["mean"], caption["log_variance"]
        )
    found = distances.mahalanobis_squared(caption["mean"], image["mean"], image["log_variance"])
    return keras.ops.transpose(found)
