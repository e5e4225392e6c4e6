"""Reasoning on a graph of regions."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_xmr.layers.normalization import batch_normalization
from keras_xmr.layers.part import RecordedLayer


@keras.saving.register_keras_serializable(package="keras_xmr")
class GraphReasoning(keras.layers.Layer):
    """A graph convolution over all pairs of regions, with a residual (Li et al. 2019, Eq. 2, 3).

    out = BatchNorm(W (R g(v))) + v, where R = theta(v) phi(v)^T / N for N regions. Scale and
    shift of the normalisation start at 0, so that the block starts as the identity.

    Inputs are features (B, N, F) and a boolean mask (B, N) or None; outputs are features of that
    shape. Masked regions do not affect the others.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.norm = batch_normalization(
            masked=True, gamma_initializer="zeros", dtype=self.dtype_policy, name="norm"
        )

    def build(self, features_shape: tuple[Any, ...]) -> None:
        self.theta = self._linear("theta", features_shape)
        self.phi = self._linear("phi", features_shape)
        self.g = self._linear("g", features_shape)
        self.w = self._linear("w", features_shape)
        self.norm.build(features_shape)

    def _linear(self, name: str, features_shape: tuple[Any, ...]) -> keras.layers.Dense:
        layer = keras.layers.Dense(features_shape[-1], dtype=self.dtype_policy, name=name)
        layer.build(features_shape)
        return layer

    def call(self, features: Any, mask: Any = None, training: bool | None = None) -> Any:
        affinity = ops.matmul(self.theta(features), ops.transpose(self.phi(features), (0, 2, 1)))
        count = ops.cast(ops.shape(features)[1], affinity.dtype)
        if mask is not None:
            affinity = ops.where(mask[:, None, :], affinity, 0.0)
            count = ops.sum(ops.cast(mask, affinity.dtype), axis=1)[:, None, None]
        reasoned = self.w(ops.matmul(affinity / count, self.g(features)))
        return self.norm(reasoned, training=training, mask=mask) + features


class HypergraphConvolution(RecordedLayer):
    """sigmoid(Dv^-1/2 H De^-1 H^T Dv^-1/2 U Theta), without a bias.

    The convolution of HGNN (Feng et al. 2019, Eq. 11) with hyperedges of weight 1, as Wang et al.
    2023, Eq. 10 have it. The degrees are the sums of the rows (Dv) and of the columns (De) of the
    incidence matrix H, which can hold any nonnegative numbers.

    Args:
        residual: Whether the nodes are added to the output, with a tanh instead of the sigmoid.
            The sigmoid gives all nodes a large common part, so that they are hardly
            distinguishable after two layers.
        **kwargs: Passed on to `keras.layers.Layer`.

    Inputs are nodes (N, D) and their incidence (N, E) with the hyperedges. The output is nodes
    (N, D).
    """

    def __init__(self, residual: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.residual = residual

    def build(self, nodes_shape: Any, incidence_shape: Any = None) -> None:
        width = nodes_shape[-1]
        self.theta = self.add_weight(
            name="theta", shape=(width, width), initializer="glorot_uniform"
        )

    def call(self, nodes: Any, incidence: Any) -> Any:
        degrees = ops.sum(incidence, axis=1, keepdims=True)
        inverse_root = 1.0 / ops.sqrt(ops.maximum(degrees, 1e-12))
        sizes = ops.maximum(ops.sum(incidence, axis=0), 1e-12)[:, None]
        edges = ops.matmul(ops.transpose(incidence), inverse_root * nodes) / sizes
        nodes_again = inverse_root * ops.matmul(incidence, edges)
        convolved = ops.matmul(nodes_again, self.theta)
        return nodes + ops.tanh(convolved) if self.residual else ops.sigmoid(convolved)
