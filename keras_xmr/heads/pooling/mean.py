"""Averages over the positions: plain, with a residual layer, or with learned weights."""

from __future__ import annotations

from typing import Unpack

import keras
import numpy as np

from keras_xmr.heads.pooling.base import Pooling
from keras_xmr.layers import LocalAttention, l2_normalize
from keras_xmr.parts.contracts import PoolingContract
from keras_xmr.parts.option_types import LayerOptions, PositiveInt
from keras_xmr.parts.tensors import Shape, Tensor


class Mean(Pooling):
    """Average over the positions, then a linear layer: the h_V of Chun et al. 2021, section 3.1.1.

    Args:
        dimension: D.
        projection: Whether there is the linear layer. Without it features must be D wide: the
            embedding of a pretrained tower is unchanged.
        normalize: Whether the average is divided by its norm before the linear layer, as in the
            released code of VSE++ (Faghri et al. 2018).
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = PoolingContract(when=(({"projection": False}, {"keeps_width": True}),))

    def __init__(
        self,
        dimension: int,
        *,
        projection: bool = True,
        normalize: bool = False,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(dimension, **kwargs)
        self.projection = projection
        self.normalize = normalize
        if projection:
            self.linear = self.new_dense(dimension, "linear")

    def build(self, features_shape: Shape) -> None:
        if not self.projection:
            self.check_width(features_shape, "mean without projection", "set projection: true")

    def call(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        mean = masked_mean(features, mask)
        if self.normalize:
            mean = keras.ops.cast(l2_normalize(keras.ops.cast(mean, "float32")), mean.dtype)
        return self.linear(mean) if self.projection else mean


def masked_mean(features: Tensor, mask: Tensor | None = None) -> Tensor:
    """Averages the features (B, L, F) that the mask (B, L) keeps, or all of them: (B, F).

    Where it keeps none, the average is 0.
    """
    if mask is None:
        return keras.ops.mean(features, axis=1)
    weights = keras.ops.cast(mask, features.dtype)[..., None]
    count = keras.ops.maximum(keras.ops.sum(weights, axis=1), 1)
    return keras.ops.sum(features * weights, axis=1) / count


def random_view(
    features: Tensor, mask: Tensor | None, views: int, seed: keras.random.SeedGenerator
) -> Tensor:
    """Draws one of the views that the positions of each item hold: its mask (B, L).

    Args:
        features: Local features (B, L, F), one view after the other.
        mask: The mask (B, L), or None.
        views: Number of views.
        seed: Draws the views.
    """
    batch, positions = keras.ops.shape(features)[0], features.shape[1]
    drawn = keras.random.randint((batch, 1), 0, views, seed=seed)
    chosen = np.arange(positions) * views // positions == drawn
    return chosen if mask is None else keras.ops.logical_and(mask, chosen)


class RectifiedMean(Pooling):
    """Average over the positions of ReLU(linear(position) on the unit sphere).

    The released code of Li et al. 2022 pools the tokens of BERT so, but averages over padding too;
    here padding does not count.
    """

    def __init__(self, dimension: int, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(dimension, **kwargs)
        self.linear = self.new_dense(dimension, "linear")

    def call(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        projected = l2_normalize(keras.ops.cast(self.linear(features), "float32"))
        mean = masked_mean(keras.ops.relu(projected), mask)
        return keras.ops.cast(mean, self.compute_dtype)


class Adapter(Pooling):
    """Average over the positions plus up(gelu(down(average))), where `up` begins at 0.

    As CLIP-Adapter (Gao et al. 2024), but with GELU, and with a weight of 1 for both parts.
    A model with it is validated before its first step, too: where training makes it no better, its
    best weights are the pretrained tower as it is.

    Args:
        dimension: D, which is the width of the features.
        width: Width of the hidden layer.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = PoolingContract(keeps_width=True)

    def __init__(
        self, dimension: int, *, width: PositiveInt = 64, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(dimension, **kwargs)
        self.width = width
        self.down = self.new_dense(width, "down", activation="gelu")
        self.up = self.new_dense(dimension, "up", kernel_initializer="zeros")

    def build(self, features_shape: Shape) -> None:
        self.check_width(features_shape, "adapter", f"set model.dimension: {features_shape[-1]}")

    def call(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        mean = masked_mean(features, mask)
        return mean + self.up(self.down(mean))


class Attention(Pooling):
    """Mean over the positions with learned weights, then a linear layer.

    Args:
        dimension: D.
        hidden: Width of the attention's hidden layer; null takes half the width of the features.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = PoolingContract(attends=True)

    def __init__(
        self, dimension: int, *, hidden: PositiveInt | None = None, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(dimension, **kwargs)
        self.hidden = hidden
        self.attention = LocalAttention(hidden, dtype=self.dtype_policy, name="attention")
        self.linear = self.new_dense(dimension, "linear")

    def call(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        pooled, _ = self.attention(features, mask=mask)
        return self.linear(pooled[:, 0])

    def attention_weights(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.attention(features, mask=mask)[1]
