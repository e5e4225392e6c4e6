"""The head of AsymVLM."""

from __future__ import annotations

import math
from typing import Any

import keras
from keras import ops

from data_pipelines.option_types import PositiveFloat, PositiveInt
from keras_xmr.config.contracts import HeadContract
from keras_xmr.heads.base import PooledHead, PoolingMaker
from keras_xmr.heads.generalized_gaussian import linear_layers
from keras_xmr.layers import ReZero, l2_normalize

# A concentration of e^12 is a point in any dimension that is in use.
_LARGEST = 12.0


class Spherical(PooledHead):
    """A fixed direction, and the concentration of a distribution on the sphere around it.

    AsymVLM (Ju et al. 2025): a caption is a distribution on the unit sphere, an image a point, as
    captions say less than images. A network of the direction makes its concentration kappa. The
    embedding has -log kappa as the `log_variance` of each number: where kappa is large, that is its
    variance along the sphere.

    The direction is that of the pooling, and no loss moves it: the uncertainty is of an existing
    embedding, and its retrieval results do not change. In the paper the network makes both, kappa
    as the norm of its output. For `train.start: cca`, with the loss `spherical_likelihood`.

    Args:
        dimension: D.
        pooling: Makes the pooling of the direction.
        hidden: Width of the hidden layers; 1024 in the released code.
        hidden_layers: Number of hidden layers; 3 in the released code.
        initial_concentration: Initial kappa of all items.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = HeadContract(kind="gaussian")

    def __init__(
        self,
        dimension: int,
        pooling: PoolingMaker,
        *,
        hidden: PositiveInt = 256,
        hidden_layers: PositiveInt = 3,
        initial_concentration: PositiveFloat = 16.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(dimension, pooling, **kwargs)
        self.hidden = hidden
        self.initial_concentration = initial_concentration
        self.network = linear_layers("network", *[hidden] * hidden_layers, 1)
        self.factor = ReZero(name="factor")

    @property
    def log_variance_layers(self) -> list[keras.layers.Layer]:
        return [self.network, self.factor]

    def call(self, features: Any, mask: Any = None) -> dict[str, Any]:
        mean = ops.stop_gradient(l2_normalize(self.pooled(features, mask)))
        concentration = self.factor(self.network(mean)) + math.log(self.initial_concentration)
        concentration = ops.clip(concentration, -_LARGEST, _LARGEST)
        return {"mean": mean, "log_variance": ops.broadcast_to(-concentration, ops.shape(mean))}
