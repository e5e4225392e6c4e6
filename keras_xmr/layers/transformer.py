"""Transformers that normalise before each half of a block, and positions in sequences.

The towers of ProLIP are one layer each (Chun et al. 2025, section 3.1).
"""

from __future__ import annotations

import math
from typing import Any, Literal

import keras
from keras import ops

from keras_xmr.layers.part import RecordedLayer

Activation = Literal["gelu", "quick_gelu"]

# Of the pixels that CLIP was trained with, from 0 to 1.
_PIXEL_MEAN = (0.48145466, 0.4578275, 0.40821073)
_PIXEL_DEVIATION = (0.26862954, 0.26130258, 0.27577711)

_LOG_VARIANCE = -10.0
"""Initial log-variance."""


class TransformerBlock(RecordedLayer):
    """Self-attention, then a hidden layer, each with a residual connection.

    Both normalise their inputs by a LayerNorm, as the vision transformers of CLIP do. Every
    position attends to every other.

    Args:
        heads: Heads of the attention; they divide the width.
        hidden: Width of the hidden layer.
        activation: "gelu", exact, or "quick_gelu", x sigmoid(1.702 x).
        epsilon: Of the LayerNorms.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    def __init__(
        self,
        heads: int,
        hidden: int,
        *,
        activation: Activation = "gelu",
        epsilon: float = 1e-5,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.heads = heads
        self.hidden = hidden
        self.activation = activation
        self.attention_norm = self.new_norm("attention_norm", epsilon, self.dtype_policy)
        self.hidden_norm = self.new_norm("hidden_norm", epsilon, self.dtype_policy)
        self.hidden_linear = self.new_dense(hidden, "hidden_linear")

    def build(self, shape: tuple[Any, ...]) -> None:
        width = shape[-1]
        self.queries_keys_values = self.new_dense(3 * width, "queries_keys_values")
        self.attention_linear = self.new_dense(width, "attention_linear")
        self.output_linear = self.new_dense(width, "output_linear")

    def call(self, features: Any) -> Any:
        """Features (B, L, F) to features of the same shape."""
        features = features + self._attended(self.attention_norm(features))
        hidden = self.hidden_linear(self.hidden_norm(features))
        return features + self.output_linear(activate(hidden, self.activation))

    def _attended(self, features: Any) -> Any:
        length, width = ops.shape(features)[1], features.shape[-1]
        mixed = self.queries_keys_values(features)
        split = ops.reshape(mixed, (-1, length, 3, self.heads, width // self.heads))
        attended = ops.dot_product_attention(split[:, :, 0], split[:, :, 1], split[:, :, 2])
        return self.attention_linear(ops.reshape(attended, (-1, length, width)))


def activate(hidden: Any, activation: Activation) -> Any:
    """The activation of a hidden layer; see `TransformerBlock`."""
    if activation == "gelu":
        return ops.gelu(hidden, approximate=False)
    return hidden * ops.sigmoid(1.702 * hidden)


class ProlipTower(RecordedLayer):
    """Base class of both towers: a transformer with a [CLS] and an [UNC] token.

    The output (B, 2, D) is the unnormalised mean and the log-variance, in this order. A subclass
    makes the tokens and the positions in `build`.

    Args:
        width: F of its tokens.
        blocks: Transformer blocks.
        heads: Heads per block.
        hidden: Width of the hidden layer of a block.
        dimension: D of the joint space.
        activation: That of the hidden layers.
        epsilon: Of the LayerNorms.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    projection: keras.layers.Dense

    def __init__(
        self,
        width: int,
        blocks: int,
        heads: int,
        hidden: int,
        dimension: int,
        *,
        activation: Activation = "gelu",
        epsilon: float = 1e-5,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.width = width
        self.dimension = dimension
        self.epsilon = epsilon
        self.blocks = [
            TransformerBlock(
                heads,
                hidden,
                activation=activation,
                epsilon=epsilon,
                dtype=self.dtype_policy,
                name=f"block_{number}",
            )
            for number in range(blocks)
        ]
        self.final_norm = self.new_norm("final_norm", epsilon, self.dtype_policy)
        constant = keras.initializers.Constant(_LOG_VARIANCE)
        self.log_variance = self.linear("log_variance", bias_initializer=constant)

    def linear(self, name: str, **options: Any) -> keras.layers.Dense:
        """A linear layer into the joint space."""
        normal = keras.initializers.RandomNormal(stddev=self.width**-0.5)
        return self.new_dense(self.dimension, name, kernel_initializer=normal, **options)

    def vectors(self, name: str, deviation: float, *shape: int) -> Any:
        """Learned vectors (..., F)."""
        return self.add_weight(
            name=name,
            shape=(*shape, self.width),
            initializer=keras.initializers.RandomNormal(stddev=deviation),
        )

    def token(self, vector: Any, features: Any) -> Any:
        """A learned vector as a token (B, 1, F) of every item."""
        vector = ops.cast(vector, features.dtype)
        return ops.broadcast_to(vector, (ops.shape(features)[0], 1, self.width))

    def transformed(self, tokens: Any) -> Any:
        """Tokens (B, L, F) after all blocks."""
        for block in self.blocks:
            tokens = block(tokens)
        return tokens


class ProlipImageTower(ProlipTower):
    """The image tower of ProLIP: pixels from 0 to 255 (B, H, W, 3) to (B, 2, D).

    The tokens are [CLS], [UNC], and the patches row by row. As in the released code, the last
    LayerNorm sees all tokens, and the [CLS] token a second time.

    Args:
        patch: Height and width of a patch, in pixels.
        **kwargs: Those of `ProlipTower`.
    """

    def __init__(self, *, patch: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.patch = patch
        self.patches = keras.layers.Conv2D(
            self.width,
            patch,
            strides=patch,
            use_bias=False,
            dtype=self.dtype_policy,
            name="patches",
        )
        self.first_norm = self.new_norm("first_norm", self.epsilon, self.dtype_policy)
        self.projection = self.linear("projection", use_bias=False)

    def build(self, shape: tuple[Any, ...]) -> None:
        length = (shape[1] // self.patch) * (shape[2] // self.patch) + 2
        deviation = self.width**-0.5
        self.class_token = self.vectors("class_token", deviation)
        self.uncertainty_token = self.vectors("uncertainty_token", deviation)
        self.positions = self.vectors("positions", deviation, length)

    def call(self, pixels: Any) -> Any:
        patches = self.patches(_normalized(pixels))
        patches = ops.reshape(patches, (-1, self.positions.shape[0] - 2, self.width))
        first = [self.token(v, patches) for v in (self.class_token, self.uncertainty_token)]
        tokens = ops.concatenate([*first, patches], axis=1)
        tokens = self.first_norm(tokens + ops.cast(self.positions, tokens.dtype))
        tokens = self.final_norm(self.transformed(tokens))
        mean = self.projection(self.final_norm(tokens[:, 0]))
        return ops.stack([mean, self.log_variance(tokens[:, 1])], axis=1)


class ProlipTextTower(ProlipTower):
    """The text tower of ProLIP: ids int32 (B, L), with -1 behind a caption, to (B, 2, D).

    It always reads `length` tokens, and fills up with the last one of a caption. [UNC] and
    [CLS] come behind them. As in the released code, the log-variance is made of the projected
    [CLS] token, so that D is also the width F; [UNC] is only attended to.

    Args:
        vocabulary: Number of ids.
        length: Number of tokens that are read of a caption.
        **kwargs: Those of `ProlipTower`.
    """

    def __init__(self, *, vocabulary: int, length: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.vocabulary = vocabulary
        self.length = length
        self.embedding = keras.layers.Embedding(
            vocabulary,
            self.width,
            embeddings_initializer=keras.initializers.RandomNormal(stddev=0.02),
            dtype=self.dtype_policy,
            name="embedding",
        )
        self.projection = self.linear("projection")

    def build(self, shape: tuple[Any, ...]) -> None:
        self.class_token = self.vectors("class_token", 0.01)
        self.uncertainty_token = self.vectors("uncertainty_token", 0.01)
        self.positions = self.vectors("positions", 0.01, self.length + 2)

    def call(self, ids: Any) -> Any:
        words = self.embedding(filled(ids, self.length))
        last = [self.token(v, words) for v in (self.uncertainty_token, self.class_token)]
        tokens = ops.concatenate([words, *last], axis=1)
        tokens = self.transformed(tokens + ops.cast(self.positions, tokens.dtype))
        mean = self.projection(self.final_norm(tokens[:, -1]))
        return ops.stack([mean, self.log_variance(mean)], axis=1)


def _normalized(pixels: Any) -> Any:
    shares = ops.cast(pixels, "float32") / 255.0
    mean, deviation = (ops.convert_to_tensor(v) for v in (_PIXEL_MEAN, _PIXEL_DEVIATION))
    return (shares - mean) / deviation


def last_positions(mask: Any) -> Any:
    """The last valid position of each item, int32 (B, 1), by a mask (B, L); 0 without any."""
    return ops.maximum(ops.sum(ops.cast(mask, "int32"), axis=1) - 1, 0)[:, None]


def filled(ids: Any, length: int | None = None, pad: int | None = None) -> Any:
    """Ids (B, L), with -1 behind each caption, filled up with its last one.

    Args:
        ids: The ids.
        length: Number of ids of the output, (B, length); None for L.
        pad: The id that takes the place of the last one; None for none.
    """
    known = ids >= 0
    end = ops.maximum(ops.take_along_axis(ids, last_positions(known), axis=1), 0)
    end = end if pad is None else ops.full_like(end, pad)
    ids = ops.where(known, ids, end)
    if length is None:
        return ids
    return ops.concatenate([ids, ops.tile(end, (1, length))], axis=1)[:, :length]


def sine_positions(mask: Any, width: int) -> Any:
    """Sines (even numbers) and cosines (odd ones) of positions, float32 (B, L, width).

    Vaswani et al. 2017, section 3.5, with positions scaled so that the last valid one is at
    2 pi, as the released code of Kim et al. 2023 has them. Padding changes nothing.

    Args:
        mask: Valid positions, boolean (B, L).
        width: Numbers per position.
    """
    places = ops.cumsum(ops.cast(mask, "float32"), axis=1)
    angles = 2.0 * math.pi * places / ops.maximum(places[:, -1:], 1.0)
    numbers = ops.arange(width)
    rates = 10000.0 ** (ops.cast(2 * (numbers // 2), "float32") / width)
    angles = angles[..., None] / rates
    return ops.where(numbers % 2 == 0, ops.sin(angles), ops.cos(angles))
