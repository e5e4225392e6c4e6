"""Matchers of regions and words (Diao et al. 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack, cast

from keras_xmr.embeddings.kinds import Embedding, Tokens, tensors
from keras_xmr.layers import GlobalAttention, l2_normalize
from keras_xmr.layers.backend import (
    assign_statistics,
    fresh_seed,
    read_variables,
    split_seed,
)
from keras_xmr.layers.operations import ops
from keras_xmr.matchers.alignment import attend, linear, score_in_tiles
from keras_xmr.matchers.base import Matcher
from keras_xmr.parts.contracts import MatcherContract, SearchContract
from keras_xmr.parts.keras_state import in_autocast, is_symbolic
from keras_xmr.parts.option_types import BelowOne, LayerOptions, PositiveFloat, PositiveInt
from keras_xmr.parts.tensors import Seed, Shapes, Tensor, add_up
from keras_xmr.utils.sides import Side

Weights = dict[str, list[Tensor]]

_MOMENTUM = 0.9
_EPSILON = 1e-5


class _Similarity(Matcher):
    """Base class of SAF and SGR: similarity vectors of each word and of the whole, for each pair.

    The vector of a word is W |v - t|^2 on the unit sphere, with t the word and v the mean of the
    regions that attend to it; the vector of the whole likewise, with the global vectors of both
    sides (Eq. 2 to 5). A subclass makes one vector of them in `reason`.

    All pairs of a batch go in tiles of a few captions, sorted by length and cut to the longest of
    the tile, so padding costs nothing. Memory holds one tile, N * captions * words * D
    numbers: in training too, where tiles are computed once more for their gradients.

    Args:
        similarity_dimension: S, width of the similarity vectors.
        smoothing: Factor of the attention logits of regions.
        dropout: Part of the numbers that are dropped in the attention for the global vectors.
        captions_at_once: Captions of a tile.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = MatcherContract(accepts=("tokens",), prepared=("global",))
    SEARCH = SearchContract(augmentation="token_means")
    STATISTICS = 0

    def __init__(
        self,
        *,
        similarity_dimension: PositiveInt = 256,
        smoothing: PositiveFloat = 9.0,
        dropout: BelowOne = 0.4,
        captions_at_once: PositiveInt = 4,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.similarity_dimension = similarity_dimension
        self.smoothing = smoothing
        self.dropout = dropout
        self.captions_at_once = captions_at_once
        self.add_layers()

    def add_layers(self) -> None:
        """Adds the layers that pairs are scored with."""
        self.image_attention = GlobalAttention(
            self.dropout, batch_norm=True, dtype=self.dtype_policy, name="image_attention"
        )
        self.caption_attention = GlobalAttention(
            self.dropout, dtype=self.dtype_policy, name="caption_attention"
        )
        self.local_similarity = self.new_dense(self.similarity_dimension, "local_similarity")
        self.global_similarity = self.new_dense(self.similarity_dimension, "global_similarity")
        self.evaluation = self.new_dense(1, "evaluation", self.similarity_dimension)

    def build(self, image_shape: Shapes, caption_shape: Shapes) -> None:
        image, caption = image_shape["tokens"], caption_shape["tokens"]
        for layer, shape in (
            (self.image_attention, image),
            (self.caption_attention, caption),
            (self.local_similarity, caption),
            (self.global_similarity, caption),
        ):
            if not layer.built:
                layer.build(tuple(shape))

    def prepare(
        self,
        embedding: Embedding,
        side: Side,
        seed: Seed = None,
        *,
        training: bool | None = None,
    ) -> Tokens:
        """Adds the global vectors (B, D), which pairs share; with dropout in training."""
        tokens = cast(Tokens, self.checked(embedding, side))
        training = self.in_training(training)
        if training and seed is None:
            seed = fresh_seed(tokens["tokens"])
        attention = self.image_attention if side == "image" else self.caption_attention
        if not attention.built:
            attention.build(tuple(tokens["tokens"].shape))
        # Keras would cast tokens of float64 to the type of the layer.
        apply = attention if is_symbolic(tokens) or in_autocast() else attention.call
        whole = apply(tokens["tokens"], tokens["mask"], seed=seed, training=training)
        return {**tokens, "global": whole}

    def pair_weights(self) -> Weights:
        """Returns the weights that pairs are scored with, as tensors."""
        layers = (self.local_similarity, self.global_similarity, self.evaluation)
        return {layer.name: read_variables(layer.kernel, layer.bias) for layer in layers}

    def reason(
        self, weights: Weights, nodes: Tensor, counts: Tensor, training: bool
    ) -> tuple[Tensor, list[Tensor]]:
        """Returns one vector of the similarity vectors of each pair.

        Args:
            weights: The weights of `pair_weights`.
            nodes: Similarity vectors (N, C, 1 + L, S), the whole first.
            counts: 1 for valid vectors, 0 in the padding of its caption (C, 1 + L).
            training: Whether a model is trained.

        Returns:
            Vectors (N, C, S), and in training `STATISTICS` statistics of each caption (C,).
        """
        raise NotImplementedError

    def store(self, statistics: list[Tensor]) -> None:
        """Stores the statistics (M,) of the captions of a training step."""

    def score(
        self, weights: Weights, local: Tensor, whole: Tensor, mask: Tensor, training: bool
    ) -> list[Tensor]:
        """Scores pairs by how their words, and their global vectors, differ.

        Args:
            weights: The weights of `pair_weights`.
            local: Squared differences of words and the regions they attend to (N, C, L, D).
            whole: Squared differences of the global vectors (N, C, D).
            mask: 1 for words, 0 for padding (C, L).
            training: Whether a model is trained.

        Returns:
            Scores (N, C), and in training `STATISTICS` statistics of each caption (C,).
        """
        whole = linear(whole, weights["global_similarity"])
        local = linear(local, weights["local_similarity"])
        nodes = l2_normalize(ops.concatenate([whole[:, :, None], local], axis=2))
        counts = ops.concatenate([ops.ones_like(mask[:, :1]), mask], axis=1)
        vectors, statistics = self.reason(weights, nodes, counts, training)
        return [ops.sigmoid(linear(vectors, weights["evaluation"])[..., 0]), *statistics]

    def call(self, image: Tokens, caption: Tokens, training: bool = False) -> Tensor:
        return _score_pairs({"global": self}, image, caption, training)


class SAF(_Similarity):
    """Similarity attention filtration: a mean of similarity vectors with learned weights.

    The weight of a vector is sigmoid(BatchNorm(w s)), over the sum of all weights of the pair
    (Diao et al. 2021, Eq. 8 and 9). In training the statistics of that normalisation are of each
    caption alone, over its words and all images, as in the released code, so that scores do not
    depend on tiles there either.
    """

    CONTRACT = MatcherContract(tileable=False)
    STATISTICS = 2

    def add_layers(self) -> None:
        super().add_layers()
        self.gate = self.new_dense(1, "gate", self.similarity_dimension)
        self.gamma = self.add_scalar("gamma", 1.0)
        self.beta = self.add_scalar("beta", 0.0)
        # Every replica sees the global batch, so any of them has the statistics.
        kept = {"trainable": False, "aggregation": "only_first_replica"}
        self.moving_mean = self.add_scalar("moving_mean", 0.0, **kept)
        self.moving_variance = self.add_scalar("moving_variance", 1.0, **kept)

    def pair_weights(self) -> Weights:
        norm = [self.gamma, self.beta, self.moving_mean, self.moving_variance]
        return super().pair_weights() | {
            "gate": read_variables(self.gate.kernel, self.gate.bias),
            "norm": read_variables(*norm),
        }

    def reason(
        self, weights: Weights, nodes: Tensor, counts: Tensor, training: bool
    ) -> tuple[Tensor, list[Tensor]]:
        gate = linear(nodes, weights["gate"])[..., 0]
        gamma, beta, mean, variance = weights["norm"]
        statistics = []
        if training:
            total = ops.cast(ops.shape(nodes)[0], counts.dtype) * ops.sum(counts, axis=1)
            mean = ops.sum(gate * counts, axis=(0, 2)) / total
            deviation = (gate - mean[:, None]) * counts
            variance = ops.sum(ops.square(deviation), axis=(0, 2)) / total
            statistics = [mean, variance * total / ops.maximum(total - 1.0, 1.0)]
            mean, variance = mean[:, None], variance[:, None]
        gate = (gate - mean) * ops.rsqrt(variance + _EPSILON) * gamma + beta
        gate = ops.sigmoid(gate) * counts
        gate = gate / (ops.sum(gate, axis=-1, keepdims=True) + 1e-8)
        return l2_normalize(ops.sum(gate[..., None] * nodes, axis=2)), statistics

    def store(self, statistics: list[Tensor]) -> None:
        """Moves the statistics as if the captions had come one after another."""
        captions = ops.shape(statistics[0])[0]  # A number in JAX, which counts up to no tensor.
        count = ops.cast(captions, "float32")
        weights = ops.power(_MOMENTUM, count - 1.0 - ops.cast(ops.arange(captions), "float32"))
        kept = (self.moving_mean, self.moving_variance)
        for moving, values in zip(kept, statistics, strict=True):
            values = ops.cast(ops.stop_gradient(values), moving.dtype)
            moved = (1.0 - _MOMENTUM) * ops.sum(weights * values)
            assign_statistics(moving, ops.power(_MOMENTUM, count) * moving + moved)


class SGR(_Similarity):
    """Similarity graph reasoning: similarity vectors of a pair exchange information.

    In each step, every vector becomes ReLU(W (softmax(Wq s (Wk s)^T) s)); the vector of the whole
    is read out at the end (Diao et al. 2021, Eq. 6 and 7).

    Args:
        steps: Steps of reasoning.
        similarity_dimension: S, width of the similarity vectors.
        smoothing: Factor of the attention logits of regions.
        dropout: Part of the numbers that are dropped in the attention for the global vectors.
        captions_at_once: Captions of a tile.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    def __init__(
        self,
        *,
        steps: PositiveInt = 3,
        similarity_dimension: PositiveInt = 256,
        smoothing: PositiveFloat = 9.0,
        dropout: BelowOne = 0.4,
        captions_at_once: PositiveInt = 4,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(
            similarity_dimension=similarity_dimension,
            smoothing=smoothing,
            dropout=dropout,
            captions_at_once=captions_at_once,
            **kwargs,
        )
        self.steps = steps
        self.step_layers = [
            self.new_dense(similarity_dimension, f"{name}_{step}", similarity_dimension)
            for step in range(steps)
            for name in ("query", "key", "graph")
        ]
        for layer in self.step_layers[1::3]:  # Softmax cancels what the bias of a key adds.
            layer.bias.trainable = False

    def pair_weights(self) -> Weights:
        return super().pair_weights() | {
            layer.name: read_variables(layer.kernel, layer.bias) for layer in self.step_layers
        }

    def reason(
        self, weights: Weights, nodes: Tensor, counts: Tensor, training: bool
    ) -> tuple[Tensor, list[Tensor]]:
        for step in range(self.steps):
            # Nothing but the first node is read after the last step.
            query_nodes = nodes if step < self.steps - 1 else nodes[:, :, :1]
            # (s Wq + bq) (s Wk + bk)^T, up to terms that softmax cancels: half of the work.
            (query, bias), (key, _) = weights[f"query_{step}"], weights[f"key_{step}"]
            key = ops.transpose(key)
            both = [ops.matmul(query, key), ops.matmul(bias[None], key)[0]]
            query_nodes = linear(query_nodes, both)
            edges = ops.matmul(query_nodes, ops.transpose(nodes, (0, 1, 3, 2)))
            edges = ops.where(counts[:, None, :] > 0, edges, -1e9)
            nodes = ops.matmul(ops.softmax(edges, axis=-1), nodes)
            nodes = ops.relu(linear(nodes, weights[f"graph_{step}"]))
        return nodes[:, :, 0], []


class SGRAF(Matcher):
    """The mean of the scores of SAF and SGR, on the same tokens.

    Diao et al. 2021 train two models, one with each, and average the scores of both. Here one
    model has both matchers and is trained by the loss of their mean: it costs one training and
    one set of towers, unlike in the paper; for its results use `evaluate --runs=` with a run of
    each.

    Args:
        steps: Steps of reasoning of SGR.
        similarity_dimension: S, width of the similarity vectors.
        smoothing: Factor of the attention logits of regions.
        dropout: Part of the numbers that are dropped in the attention for the global vectors.
        captions_at_once: Captions of a tile.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = MatcherContract(
        accepts=("tokens",), tileable=False, prepared=("saf_global", "sgr_global")
    )
    SEARCH = SearchContract(augmentation="token_means")

    def __init__(
        self,
        *,
        steps: PositiveInt = 3,
        similarity_dimension: PositiveInt = 256,
        smoothing: PositiveFloat = 9.0,
        dropout: BelowOne = 0.4,
        captions_at_once: PositiveInt = 4,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        options: dict[str, Any] = {
            "similarity_dimension": similarity_dimension,
            "smoothing": smoothing,
            "dropout": dropout,
            "captions_at_once": captions_at_once,
        }
        self.steps = steps
        self.saf = SAF(**options, name="saf")
        self.sgr = SGR(steps=steps, **options, name="sgr")

    def build(self, image_shape: Shapes, caption_shape: Shapes) -> None:
        for part in (self.saf, self.sgr):
            if not part.built:
                part.build(image_shape, caption_shape)

    def prepare(
        self,
        embedding: Embedding,
        side: Side,
        seed: Seed = None,
        *,
        training: bool | None = None,
    ) -> Tokens:
        """Adds the global vectors (B, D) of both; with dropout in training."""
        training = self.in_training(training)
        tokens = cast(Tokens, self.checked(embedding, side))
        saf, sgr = (
            part.prepare(tokens, side, seed, training=training)["global"]
            for part, seed in zip((self.saf, self.sgr), split_seed(seed), strict=True)
        )
        return {**tokens, "saf_global": saf, "sgr_global": sgr}

    def call(self, image: Tokens, caption: Tokens, training: bool = False) -> Tensor:
        both = {"saf_global": self.saf, "sgr_global": self.sgr}
        return _score_pairs(both, image, caption, training)


def _score_pairs(
    matchers: Mapping[str, _Similarity], image: Tokens, caption: Tokens, training: bool
) -> Tensor:
    """Returns the mean scores of some matchers, in tiles.

    Args:
        matchers: The matchers, by the key of their global vectors. All attend alike, which is done
            once. Only the first has statistics, which it keeps in training.
        image: Tokens of the images, with these vectors.
        caption: Tokens of the captions, with these vectors.
        training: Whether a model is trained.
    """
    first = next(iter(matchers.values()))

    def score(weights: dict[str, Weights], image: Tokens, caption: Tokens) -> list[Tensor]:
        local, mask = _differences(image, caption, first.smoothing), caption["mask"]
        scored = []
        for key, matcher in matchers.items():
            whole = ops.square(tensors(image)[key][:, None] - tensors(caption)[key])
            scored.append(matcher.score(weights[key], local, whole, mask, training))
        return [add_up(scores for scores, *_ in scored) / len(scored), *scored[0][1:]]

    weights = {key: matcher.pair_weights() for key, matcher in matchers.items()}
    count = first.STATISTICS if training else 0
    scores, *statistics = score_in_tiles(
        score, weights, image, caption, first.captions_at_once, training, count
    )
    if statistics:
        first.store(statistics)
    return scores


def _differences(image: Tokens, caption: Tokens, smoothing: float) -> Tensor:
    """Returns squared differences of words and the regions that they attend to (N, C, L, D)."""
    words, mask = caption["tokens"], caption["mask"]
    attended = attend(image["tokens"], image["mask"], words, mask, smoothing)
    return ops.square(attended - words)
