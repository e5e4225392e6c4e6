"""Global and local attention, and reasoning over graphs of regions or of alignments."""

from __future__ import annotations

from typing import Any, Unpack

import keras

from keras_xmr.layers.backend import as_generator, split_seed
from keras_xmr.layers.normalization import (
    ReZero,
    batch_normalization,
    batch_normalize,
    l2_normalize,
    linear,
)
from keras_xmr.layers.operations import ops
from keras_xmr.parts.option_types import LayerOptions
from keras_xmr.parts.part import RecordedLayer
from keras_xmr.parts.tensors import Seed, Shape, Tensor


class GlobalAttention(RecordedLayer):
    """A mean of tokens, weighted by how they agree with their plain mean, on the unit sphere.

    The weights are softmax(w (tanh(W1 token) * tanh(W2 mean))), from Diao et al. 2021, section
    3.2. For images the released code batch-normalises both before tanh: W1 token with separate
    statistics for each position in the list of regions. Where the number of regions varies, a
    position means nothing, and all share their statistics.

    Args:
        dropout: Part of the numbers after tanh that are dropped in training.
        batch_norm: Whether there is batch normalisation.
        **kwargs: Passed on to `keras.layers.Layer`.

    Raises:
        ValueError: If, with batch normalisation, the number of tokens differs from a fixed one in
            the first call.

    Inputs are tokens (B, L, D), their mask float (B, L), whether this is a training, and its seed:
    an int, two numbers, a `keras.random.SeedGenerator`, or with PyTorch None. The output is (B, D).
    Tokens are of the global batch, which every replica has, so dropout must not draw from a state
    of the replica.
    """

    def __init__(
        self, dropout: float = 0.0, batch_norm: bool = False, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.dropout = dropout
        self.batch_norm = batch_norm
        self.common = self.new_dense(1, "common")
        if batch_norm:
            self.mean_norm = self._norm("mean_norm")

    def _norm(self, name: str, **options: Any) -> keras.layers.BatchNormalization:
        return batch_normalization(
            name=name, synchronized=False, dtype=self.dtype_policy, **options
        )

    def build(self, tokens_shape: Shape) -> None:
        batch, self.length, width = tokens_shape
        self.local = self.new_dense(width, "local")
        self.mean = self.new_dense(width, "mean")
        self.local.build(tokens_shape)
        self.mean.build((batch, width))
        self.common.build(tokens_shape)
        if self.batch_norm:
            varies = self.length is None
            options: dict[str, Any] = {"masked": True} if varies else {"axis": 1}
            self.local_norm = self._norm("local_norm", **options)
            self.local_norm.build((*tokens_shape, 1) if varies else tokens_shape)
            self.mean_norm.build((batch, width))

    def call(
        self, tokens: Tensor, mask: Tensor, seed: Seed = None, training: bool = False
    ) -> Tensor:
        mask = ops.cast(mask, tokens.dtype)
        count = ops.maximum(ops.sum(mask, axis=1, keepdims=True), 1.0)
        local = linear(self.local, tokens)
        mean = linear(self.mean, ops.sum(tokens * mask[..., None], axis=1) / count)
        if self.batch_norm:
            local = self._normalize(local, mask, training)
            mean = batch_normalize(self.mean_norm, mean, None, training)
        local, mean = ops.tanh(local), ops.tanh(mean)
        if training and self.dropout:
            seeds = split_seed(seed)
            local = keras.random.dropout(local, self.dropout, seed=as_generator(seeds[0]))
            mean = keras.random.dropout(mean, self.dropout, seed=as_generator(seeds[1]))
        logits = linear(self.common, local * mean[:, None, :])[..., 0]
        weights = ops.softmax(ops.where(mask > 0, logits, -1e9), axis=-1)
        return l2_normalize(ops.sum(weights[..., None] * tokens, axis=1))

    def _normalize(self, local: Tensor, mask: Tensor, training: bool) -> Tensor:
        if self.length is None:
            return batch_normalize(self.local_norm, local[..., None], mask, training)[..., 0]
        length = local.shape[1]
        if length != self.length:
            raise ValueError(
                f"{self.name}: its batch normalisation has statistics for each of {self.length} "
                f"regions, but images have {length or 'any number of'} regions; all images need "
                "the same number"
            )
        # Keras squeezes the statistics of one region away where it has a mask; one always counts.
        return batch_normalize(self.local_norm, local, mask if length > 1 else None, training)


class LocalAttention(RecordedLayer):
    """K weighted means of local features, softmax(w2 tanh(w1 x)) over the positions.

    The attention of the local branch of Song and Soleymani 2019, and of Chun et al. 2021, Fig. 3.
    Masked positions have a weight of exactly 0, so that the mean of none is 0.

    Args:
        hidden: Width of the hidden layer; None takes half of the width of the features.
        heads: K.
        **kwargs: Passed on to `keras.layers.Layer`.

    Inputs are features (B, L, F) and a boolean mask (B, L) or None. Outputs are the means
    (B, K, F) and the weights (B, K, L).
    """

    def __init__(
        self, hidden: int | None = None, heads: int = 1, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.hidden = hidden
        self.heads = heads

    def build(self, features_shape: Shape) -> None:
        width = features_shape[-1]
        hidden = self.hidden or max(width // 2, 1)
        self.w1 = self.add_weight((width, hidden), "glorot_uniform", name="w1")
        self.w2 = self.add_weight((hidden, self.heads), "glorot_uniform", name="w2")

    def call(self, features: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        # The gradient of a batched product would hold one of `w1` for each item of the batch.
        hidden = keras.ops.tanh(keras.ops.tensordot(features, self.w1, axes=1))
        logits = keras.ops.tensordot(hidden, self.w2, axes=1)
        logits = keras.ops.transpose(keras.ops.cast(logits, "float32"), (0, 2, 1))
        there = None if mask is None else keras.ops.cast(mask, "bool")[:, None, :]
        if there is not None:
            logits = keras.ops.where(there, logits, -1e9)
        # The softmax of Keras warns of a single position, which precomputed features may have.
        weights = keras.ops.exp(keras.ops.log_softmax(logits, axis=-1))
        if there is not None:
            weights = keras.ops.where(there, weights, 0.0)
        return keras.ops.cast(weights, features.dtype) @ features, weights


class LocalResidual(RecordedLayer):
    """K vectors LayerNorm(global + s(linear(local attention))) on the unit sphere.

    The embedding of Song and Soleymani 2019, Eq. 2 and 3, where s is a sigmoid.

    Args:
        dimension: D.
        heads: K.
        activation: The name of s in `keras.activations`.
        dropout: Part of the residuals that is dropped in training.
        rezero: Whether the residuals have a factor that begins at 0, in place of the LayerNorm,
            so that all K vectors begin as the global one.
        **kwargs: Passed on to `keras.layers.Layer`.

    Inputs are features (B, L, F), a global vector (B, D), a boolean mask (B, L) or None, and
    factors (B, K, 1) of the residuals in the vectors, or None for 1. Outputs are the vectors and
    the residuals s(...), without those factors, float32 (B, K, D).
    """

    def __init__(
        self,
        dimension: int,
        heads: int = 1,
        activation: str = "sigmoid",
        dropout: float = 0.0,
        rezero: bool = False,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.dimension = dimension
        self.heads = heads
        self.activation = activation
        self.rezero = rezero
        self.attention = LocalAttention(heads=heads, dtype=self.dtype_policy, name="attention")
        self.linear = self.new_dense(dimension, "linear", activation=activation)
        self.dropout = keras.layers.Dropout(dropout, dtype="float32", name="dropout")
        if rezero:
            self.factor = ReZero(name="factor")
        else:
            self.norm = self.new_norm("norm")

    def call(
        self,
        features: Tensor,
        pooled: Tensor,
        mask: Tensor | None = None,
        factors: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        local, _ = self.attention(features, mask=mask)
        residuals = self.dropout(keras.ops.cast(self.linear(local), "float32"))
        branch = residuals
        if factors is not None:
            branch = residuals * keras.ops.cast(factors, "float32")
        vectors = keras.ops.cast(pooled, "float32")[:, None, :]
        if self.rezero:
            return l2_normalize(vectors + self.factor(branch)), residuals
        return l2_normalize(self.norm(vectors + branch)), residuals


class GraphReasoning(RecordedLayer):
    """A graph convolution over all pairs of regions, with a residual (Li et al. 2019, Eq. 2, 3).

    out = BatchNorm(W (R g(v))) + v, where R = theta(v) phi(v)^T / N for N regions. Scale and
    shift of the normalisation start at 0, so that the block starts as the identity.

    Inputs are features (B, N, F) and a boolean mask (B, N) or None; outputs are features of that
    shape. Masked regions do not affect the others.
    """

    def __init__(self, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.norm = batch_normalization(
            masked=True, gamma_initializer="zeros", dtype=self.dtype_policy, name="norm"
        )

    def build(self, features_shape: Shape) -> None:
        width = features_shape[-1]
        self.theta, self.phi = self.new_dense(width, "theta"), self.new_dense(width, "phi")
        self.g, self.w = self.new_dense(width, "g"), self.new_dense(width, "w")

    def call(
        self, features: Tensor, mask: Tensor | None = None, training: bool | None = None
    ) -> Tensor:
        affinity = ops.matmul(self.theta(features), ops.transpose(self.phi(features), (0, 2, 1)))
        count = ops.cast(ops.shape(features)[1], affinity.dtype)
        if mask is not None:
            mask = ops.cast(mask, "bool")
            affinity = ops.where(mask[:, None, :], affinity, 0.0)
            count = ops.sum(ops.cast(mask, affinity.dtype), axis=1)[:, None, None]
            count = ops.maximum(count, 1.0)
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

    def __init__(self, residual: bool = False, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.residual = residual

    def build(self, nodes_shape: Shape, incidence_shape: Shape | None = None) -> None:
        width = nodes_shape[-1]
        self.theta = self.add_weight((width, width), "glorot_uniform", name="theta")

    def call(self, nodes: Tensor, incidence: Tensor) -> Tensor:
        degrees = ops.sum(incidence, axis=1, keepdims=True)
        inverse_root = 1.0 / ops.sqrt(ops.maximum(degrees, 1e-12))
        sizes = ops.maximum(ops.sum(incidence, axis=0), 1e-12)[:, None]
        edges = ops.matmul(ops.transpose(incidence), inverse_root * nodes) / sizes
        nodes_again = inverse_root * ops.matmul(incidence, edges)
        convolved = ops.matmul(nodes_again, ops.cast(self.theta, nodes.dtype))
        return nodes + ops.tanh(convolved) if self.residual else ops.sigmoid(convolved)
