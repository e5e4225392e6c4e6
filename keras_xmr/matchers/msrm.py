"""Matchers of MSRM, which use the Gaussian of the query alone.

The paper does not define the scores at test time; another choice is the cosine of the means.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import keras

from data_pipelines.option_types import PositiveFloat
from keras_xmr.config.contracts import MatcherContract, SearchContract
from keras_xmr.embeddings import distances
from keras_xmr.embeddings.kinds import Embedding
from keras_xmr.matchers.base import Matcher, Side


class Mahalanobis(Matcher):
    """Minus the squared Mahalanobis distance of the other's mean to the Gaussian of the query.

    Wang et al. 2023, Eq. 4.
    """

    CONTRACT = MatcherContract(accepts=("gaussian",), directed=True)
    SEARCH = SearchContract(augmentation="mahalanobis", exact=True)

    def call(self, image: Embedding, caption: Embedding, query: Side = "image") -> Any:
        return -_mahalanobis(image, caption, query)


class MahalanobisCosine(Matcher):
    """Logarithm of the product of both probabilities of MSRM, up to a constant of the query.

    -temperature * d^2 + cosine_scale * cos, with the squared Mahalanobis distance d^2 of
    `mahalanobis` and the cosine of the means (Wang et al. 2023, Eq. 5 and 11; in Eq. 11 the means
    replace the nodes of the hypergraph, which exists only in training).

    In a model trained by `mahalanobis_contrastive`, tau is learned by that loss, and lambda by
    `hypergraph_contrastive`: the scores then change in training.

    Args:
        temperature: tau of Eq. 5, where no loss learns it.
        cosine_scale: lambda of Eq. 11, where no loss learns it.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = MatcherContract(
        accepts=("gaussian",),
        directed=True,
        accepted_parameters=("temperature", "cosine_scale"),
    )
    SEARCH = SearchContract(augmentation="mahalanobis_cosine", exact=True)

    _shared: dict[str, Any]

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
        # Past Keras, which would save and restore these weights of losses a second time.
        object.__setattr__(self, "_shared", {})

    def share_parameters_with(self, losses: Iterable[Any]) -> None:
        for loss in losses:
            for name in loss.contract.shared_parameters:
                self._shared[name] = getattr(loss, name)

    def _scalars(self) -> dict[str, Any]:
        options = {"cosine_scale": self.cosine_scale, "temperature": self.temperature}
        return options | self._shared

    def call(self, image: Embedding, caption: Embedding, query: Side = "image") -> Any:
        scalars = self._scalars()
        cosine = scalars["cosine_scale"] * distances.cosine(image["mean"], caption["mean"])
        return cosine - scalars["temperature"] * _mahalanobis(image, caption, query)

    def search_constants(self) -> dict[str, float]:
        return {name: float(value) for name, value in self._scalars().items()}


def _mahalanobis(image: Embedding, caption: Embedding, query: Side) -> Any:
    """Squared distances (images, captions) with the variances of one side."""
    if query == "caption":
        return distances.mahalanobis_squared(image["mean"], caption)
    return keras.ops.transpose(distances.mahalanobis_squared(caption["mean"], image))
