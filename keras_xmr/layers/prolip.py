"""The towers of ProLIP as one layer each (Chun et al. 2025, section 3.1)."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_xmr.layers.part import RecordedLayer
from keras_xmr.layers.transformer import Activation, TransformerBlock, filled

# Of the pixels that CLIP was trained with, from 0 to 1.
_PIXEL_MEAN = (0.48145466, 0.4578275, 0.40821073)
_PIXEL_DEVIATION = (0.26862954, 0.26130258, 0.27577711)

_LOG_VARIANCE = -10.0
"""Initial log-variance."""


class ProlipTower(RecordedLayer):
    """Base class of both towers: a transformer with a [CLS] and an [UNC] token.

    The output (B, 2, D) is the unnormalised mean and the log-variance, in this order. A subclass
    makes the tokens, the positions and the layers in `build`.

    Args:
        width: F of its tokens.
        blocks: Transformer blocks.
        heads: Heads of each.
        hidden: Width of the hidden layer of each.
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

    def build_parts(self, length: int) -> None:
        """Builds the layers that both towers have."""
        tokens = (None, length, self.width)
        for layer in (*self.blocks, self.final_norm, self.projection):
            layer.build(tokens)

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
        self.patches.build((None, *shape[1:3], 3))
        self.first_norm.build((None, length, self.width))
        self.log_variance.build((None, self.width))
        self.build_parts(length)

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
        self.embedding.build(shape)
        self.log_variance.build((None, self.dimension))
        self.build_parts(self.length + 2)

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
