"""Heads that attend to local features: by a branch added to a pooled vector, or by slots."""

from __future__ import annotations

from typing import Any, Literal, Unpack

import keras
from keras import ops

from keras_xmr.embeddings import kinds
from keras_xmr.heads.base import PooledHead, PoolingMaker
from keras_xmr.heads.pooling.mean import masked_mean
from keras_xmr.layers import LocalResidual, ReZero, l2_normalize, sine_positions
from keras_xmr.parts.contracts import HeadContract
from keras_xmr.parts.option_types import BelowOne, LayerOptions, PositiveInt
from keras_xmr.parts.tensors import Shape, Tensor


class _LocalHead(PooledHead):
    """A head that combines a pooled vector with K-headed local attention: a set of K embeddings.

    A subclass makes the layer `residual` by `local_residual`.
    """

    CONTRACT = HeadContract(attends=True, when=(({"rezero": False}, {"begins_as_pooling": False}),))

    residual: LocalResidual

    def local_residual(self, heads: int = 1, **options: Any) -> LocalResidual:
        """Makes the layer of the local attention."""
        policy = self.dtype_policy
        return LocalResidual(self.dimension, heads, dtype=policy, name="residual", **options)

    def call(self, features: Tensor, mask: Tensor | None = None) -> kinds.Embedding:
        return self.set_of(features, mask)

    def set_of(self, features: Tensor, mask: Tensor | None) -> kinds.PointSet:
        """Returns the set of vectors of each item, and their residuals."""
        pooled = self.pooling(features, mask=mask)
        points, residuals = self.residual(features, pooled, mask=mask)
        return {"points": points, "residuals": residuals}

    def attention_maps(self, features: Tensor, mask: Tensor | None = None) -> dict[str, Tensor]:
        _, weights = self.residual.attention(features, mask=mask)
        return super().attention_maps(features, mask) | {"embedding": weights}


class AttentivePoint(_LocalHead):
    """A point from a pooled vector and a local attention branch: the captions of DVSE.

    LayerNorm(pooled + s(local)) on the unit sphere (Wei et al., section III-B).

    Args:
        dimension: D.
        pooling: Makes the pooling.
        activation: s.
        rezero: Whether the local branch has a factor that begins at 0, in place of the LayerNorm,
            so that the head begins as its pooling: for frozen towers with `train.start: cca`.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = HeadContract(kind="point")

    def __init__(
        self,
        dimension: int,
        pooling: PoolingMaker,
        *,
        activation: Literal["sigmoid", "tanh", "relu", "linear"] = "sigmoid",
        rezero: bool = False,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(dimension, pooling, **kwargs)
        self.activation = activation
        self.rezero = rezero
        self.residual = self.local_residual(activation=activation, rezero=rezero)

    def call(self, features: Tensor, mask: Tensor | None = None) -> kinds.Point:
        return {"mean": self.set_of(features, mask)["points"][:, 0]}


class PIENet(_LocalHead):
    """A set of K embeddings from a pooled vector and K-headed local attention.

    The polysemous instance embedding network of PVSE (Song and Soleymani 2019, section 3.2).

    Args:
        dimension: D.
        pooling: Makes the pooling.
        set_size: K.
        dropout: Part of the residuals that is dropped in training.
        rezero: Whether the local branch has a factor that begins at 0, in place of the LayerNorm,
            so that the head begins as its pooling: for frozen towers with `train.start: cca`.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = HeadContract(kind="set", keys=("residuals",))

    def __init__(
        self,
        dimension: int,
        pooling: PoolingMaker,
        *,
        set_size: PositiveInt = 4,
        dropout: BelowOne = 0.0,
        rezero: bool = False,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(dimension, pooling, **kwargs)
        self.set_size = set_size
        self.dropout = dropout
        self.rezero = rezero
        self.residual = self.local_residual(set_size, dropout=dropout, rezero=rezero)


class DynamicSubEmbeddings(_LocalHead):
    """K sub-embeddings from multi-head attention, with a dynamic mask: the images of DVSE.

    v_k = LayerNorm(pooled + m_k s(local_k)) on the unit sphere (Wei et al. 2023, section III-B).
    The mask m = round(sigmoid(w2 mean of the features)) has one entry per sub-embedding (Eq. 3): a
    masked sub-embedding is the pooled vector, so the number of different ones adapts to the item.
    The residuals, whose correlation `DynamicOrthogonality` limits, are masked, too (Eq. 4). w2 is
    drawn once and never trained, and rounding has no gradient, so the mask is a constant of the
    item, in training and at test time.

    The text can be read in other ways, which are options: the mask may be for Eq. 4 alone, since
    only that equation applies it, and may select coordinates, since Eq. 4 applies it to vectors.

    Args:
        dimension: D.
        pooling: Makes the pooling.
        set_size: K; 1 is the ablation without sub-embeddings.
        dynamic_mask: "sub_embeddings" masks sub-embeddings, "sub_embeddings_in_loss" does so in
            the residuals alone. "coordinates" masks D coordinates, the same ones in all K
            residuals, and no embedding. "none" is the ablation without the mask.
        activation: s. The paper says "an activation function"; `DynamicOrthogonality` has
            measurements. A sigmoid makes all sub-embeddings similar at the beginning, and leaves
            the loss hardly a gradient to separate them.
        rezero: Whether the local branch has a factor that begins at 0, in place of the LayerNorm,
            so that the head begins as its pooling: for frozen towers with `train.start: cca`.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = HeadContract(kind="set", keys=("residuals",))

    def __init__(
        self,
        dimension: int,
        pooling: PoolingMaker,
        *,
        set_size: PositiveInt = 6,
        dynamic_mask: Literal[
            "sub_embeddings", "sub_embeddings_in_loss", "coordinates", "none"
        ] = "sub_embeddings",
        activation: Literal["sigmoid", "tanh", "relu", "linear"] = "tanh",
        rezero: bool = False,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(dimension, pooling, **kwargs)
        self.set_size = set_size
        self.dynamic_mask = dynamic_mask
        self.activation = activation
        self.rezero = rezero
        self.residual = self.local_residual(set_size, activation=activation, rezero=rezero)

    def build(self, features_shape: Shape) -> None:
        super().build(features_shape)
        if self.dynamic_mask == "none":
            return
        entries = self.dimension if self.dynamic_mask == "coordinates" else self.set_size
        # A weight of the head itself: a frozen layer would be trained again in the next phase.
        shape = (features_shape[-1], entries)
        self.mask_projection = self.add_fixed("mask_projection", shape, "glorot_uniform")

    def call(self, features: Tensor, mask: Tensor | None = None) -> kinds.PointSet:
        pooled = self.pooling(features, mask=mask)
        if self.dynamic_mask == "none":
            points, residuals = self.residual(features, pooled, mask=mask)
            return {"points": points, "residuals": residuals}
        selected = self.selection(features, mask)
        in_points = selected if self.dynamic_mask == "sub_embeddings" else None
        points, residuals = self.residual(features, pooled, mask=mask, factors=in_points)
        return {"points": points, "residuals": residuals * selected}

    def selection(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        """Returns the dynamic mask, 0 or 1, float32 (B, K, 1); (B, 1, D) of coordinates."""
        mean = masked_mean(ops.cast(features, "float32"), mask)
        projected = ops.matmul(mean, ops.cast(self.mask_projection, "float32"))
        selected = ops.stop_gradient(ops.round(ops.sigmoid(projected)))
        return ops.expand_dims(selected, 1 if self.dynamic_mask == "coordinates" else 2)


class SlotAttention(PooledHead):
    """A set of K embeddings from slots that compete for the local features: DiVE.

    K learned slots query the features by attention that is normalised over the slots first and over
    the positions then, so that slots take different features (Locatello et al. 2020). The
    same block is applied several times; an embedding is LayerNorm(slot) + LayerNorm(pooled) on
    the unit sphere (Kim et al. 2023, section 3.3). The residuals are the slots. Iterations, heads
    and widths are as in the released code.

    Args:
        dimension: D.
        pooling: Makes the pooling.
        set_size: K.
        iterations: Number of applications of the block.
        heads: Heads of the attention.
        head_dimension: Width of a head.
        expansion: Width of the hidden layer after the attention, as a multiple of D.
        positions: Position encoding of the attention keys: none, or sines of the positions in a
            sequence, for words.
        rezero: Whether LayerNorm(slot) has a factor that begins at 0, and the pooled vector no
            LayerNorm: the head begins as its pooling. For frozen towers with `train.start: cca`.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = HeadContract(
        kind="set",
        keys=("residuals",),
        attends=True,
        when=(({"rezero": False}, {"begins_as_pooling": False}),),
    )

    def __init__(
        self,
        dimension: int,
        pooling: PoolingMaker,
        *,
        set_size: PositiveInt = 4,
        iterations: PositiveInt = 4,
        heads: PositiveInt = 4,
        head_dimension: PositiveInt = 512,
        expansion: PositiveInt = 4,
        positions: Literal["none", "sine"] = "none",
        rezero: bool = False,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(dimension, pooling, **kwargs)
        self.set_size = set_size
        self.iterations = iterations
        self.heads = heads
        self.head_dimension = head_dimension
        self.expansion = expansion
        self.positions = positions
        inner = heads * head_dimension
        self.rezero = rezero
        self.features_norm = self.new_norm("features_norm")
        self.keys = self.new_dense(inner, "keys", use_bias=False)
        self.values = self.new_dense(inner, "values", use_bias=False)
        self.slots_norm = self.new_norm("slots_norm")
        self.queries = self.new_dense(inner, "queries", use_bias=False)
        self.update = self.new_dense(dimension, "update")
        self.hidden_norm = self.new_norm("hidden_norm")
        self.hidden = self.new_dense(expansion * dimension, "hidden", activation="gelu")
        self.output_linear = self.new_dense(dimension, "output")
        self.residual_norm = self.new_norm("residual_norm")
        if rezero:
            self.factor = ReZero(name="factor")
        else:
            self.pooled_norm = self.new_norm("pooled_norm")

    def build(self, features_shape: Shape) -> None:
        super().build(features_shape)
        self.slots = self.add_weight(
            name="slots",
            shape=(self.set_size, self.dimension),
            initializer=keras.initializers.RandomNormal(stddev=1.0),
        )

    def call(self, features: Tensor, mask: Tensor | None = None) -> kinds.PointSet:
        pooled = self.pooled(features, mask)
        if not self.rezero:
            pooled = self.pooled_norm(pooled)
        slots, _ = self._filled(features, mask)
        residuals = self.residual_norm(slots)
        branch = self.factor(residuals) if self.rezero else residuals
        return {"points": l2_normalize(branch + pooled[:, None, :]), "residuals": residuals}

    def attention_maps(self, features: Tensor, mask: Tensor | None = None) -> dict[str, Tensor]:
        """Returns the weights of the last iteration, averaged over the heads; see `Head`."""
        _, weights = self._filled(features, mask)
        return super().attention_maps(features, mask) | {"embedding": ops.mean(weights, axis=1)}

    def _filled(self, features: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns the slots (B, K, D) after all iterations, and the weights of the last one."""
        context = self.features_norm(features)
        values = self.values(context)
        if self.positions == "sine":
            there = ops.ones(ops.shape(features)[:2], "bool") if mask is None else mask
            context = context + sine_positions(there, features.shape[-1])
        keys = self.keys(context)
        slots = ops.cast(self.slots, "float32")[None]
        slots = ops.repeat(slots, ops.shape(features)[0], axis=0)
        for _ in range(self.iterations):
            queries = self.queries(self.slots_norm(slots))
            taken, weights = self._attend(queries, keys, values, mask)
            slots = slots + ops.cast(self.update(taken), "float32")
            changed = self.output_linear(self.hidden(self.hidden_norm(slots)))
            slots = slots + ops.cast(changed, "float32")
        return slots, weights

    def _attend(
        self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Attends from slots to features.

        Returns:
            In each head, a weighted mean (B, K, W) of the values (B, L, W); and the weights
            (B, heads, K, L).
        """
        queries, keys, values = map(self._split_heads, (queries, keys, values))
        logits = ops.matmul(queries, ops.transpose(keys, (0, 1, 3, 2)))
        weights = ops.softmax(ops.cast(logits, "float32") / self.head_dimension**0.5, axis=2)
        if mask is not None:
            weights = ops.where(mask[:, None, None, :], weights, 0.0)
        weights = weights / (ops.sum(weights, axis=3, keepdims=True) + 1e-7)
        taken = ops.transpose(ops.matmul(ops.cast(weights, values.dtype), values), (0, 2, 1, 3))
        return ops.reshape(taken, (-1, self.set_size, self.heads * self.head_dimension)), weights

    def _split_heads(self, vectors: Tensor) -> Tensor:
        """Turns (B, N, heads * width) into (B, heads, N, width)."""
        shape = (-1, ops.shape(vectors)[1], self.heads, self.head_dimension)
        return ops.transpose(ops.reshape(vectors, shape), (0, 2, 1, 3))
