"""DiVE and SAF on the things of a scene and the terms of a caption, made of parts of `keras_xmr`.

A layer of the things, a vector for each term, and the head, the matcher and the losses of
`configs/scenes_dive.yaml` and `configs/scenes_saf.yaml`, but for smaller dimensions. Local features
have no order.
"""

from __future__ import annotations

from collections.abc import Iterable

import keras
import numpy as np
import tensorflow as tf

from keras_xmr.embeddings.kinds import Embedding
from keras_xmr.heads import SlotAttention, Tokens
from keras_xmr.heads.pooling import Mean
from keras_xmr.losses import MMD, SetUniformity, Triplet
from keras_xmr.matchers import SAF, SmoothChamfer
from keras_xmr.model.objective import Objective


class Parts(keras.Model):
    """A method, which trains anew on each call of `fit_to`, so that its graph is made once.

    Args:
        method: "DiVE" or "SAF".
        shapes: Of things (4, F) and of words (WORDS,).
        dimension: D, also the width of features and of similarity vectors.
        steps: Steps of a training; DiVE takes the hardest negatives after a third of them.
        size: Items of a batch.
        rate: Rate of Adam at the first step, which falls as a cosine.
    """

    def __init__(
        self,
        method: str,
        shapes: tuple[tuple[int, ...], ...],
        dimension: int,
        steps: int,
        size: int,
        rate: float,
    ) -> None:
        super().__init__()
        self.options = (method, shapes, dimension, steps, size, rate)
        self.thing = keras.layers.Dense(dimension, "relu")
        self.term = keras.layers.Embedding(shapes[1][0] + 1, dimension)
        self.heads = [Tokens(dimension), Tokens(dimension)]
        self.matcher = SAF(similarity_dimension=dimension, captions_at_once=16)
        losses = [Triplet(mining="mean", reduction="mean")]
        if method == "DiVE":
            self.heads = [
                SlotAttention(dimension, lambda: Mean(dimension), head_dimension=dimension // 2)
                for _ in range(2)
            ]
            self.matcher = SmoothChamfer()
            losses = [Triplet(margin=0.025, reduction="mean", warmup_steps=steps // 3)]
            losses += [SetUniformity(), MMD()]
        self.objective = Objective(losses, [1.0, 0.01, 0.01][: len(losses)])
        self.optimizer_ = keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(rate, steps))
        things, words = (np.ones((1, *shape), np.float32) for shape in shapes)
        self.matcher(*self.embed(things, _terms(words)))
        self.optimizer_.build(self.trainable_weights)
        # Captions of a batch are padded to the longest, and its graph is that of all lengths.
        pairs = [(size, *shapes[0]), (size, None), (size, size), (2,)]
        dtypes = (tf.float32, tf.int64, tf.bool, tf.int64)
        signature = [tf.TensorSpec(*spec) for spec in zip(pairs, dtypes, strict=True)]
        self.step = tf.function(self._step, signature)

    def embed(self, things: tf.Tensor, terms: tf.Tensor, seed: tf.Tensor = None) -> list[Embedding]:
        """Embeddings of scenes and of captions, prepared for the matcher."""
        masks = tf.reduce_any(things != 0, axis=2), terms > 0
        parts = zip(("image", "caption"), self.heads, (things, terms), masks, strict=True)
        layers = {"image": self.thing, "caption": self.term}
        # Copies without the mask of Keras, of which its matchers would warn.
        return [
            self.matcher.prepare(
                {key: tf.identity(v) for key, v in head(layers[side](x), mask=mask).items()},
                side,
                seed,
            )
            for side, head, x, mask in parts
        ]

    def _step(
        self, things: tf.Tensor, terms: tf.Tensor, positives: tf.Tensor, seed: tf.Tensor
    ) -> None:
        with tf.GradientTape() as tape:
            image, caption = self.embed(things, terms, seed)
            scores = self.matcher(image, caption, training=True)
            relations = {"positives": positives}
            loss, _ = self.objective(scores, image, caption, relations, seed[1])
        weights = self.trainable_weights
        self.optimizer_.apply(tape.gradient(loss, weights), weights)

    def fit_to(self, seed: int, batches: Iterable[tuple[np.ndarray, ...]]) -> None:
        """Trains from initial weights.

        Args:
            seed: Of the weights and of dropout.
            batches: Things (B, 4, F), words (B, WORDS) and positives, bool (B, B).
        """
        keras.utils.set_random_seed(seed)
        self.set_weights(Parts(*self.options).get_weights())
        for variable in self.optimizer_.variables:
            variable.assign(tf.zeros_like(variable))
        for step, (things, words, positives) in enumerate(batches):
            self.step(things, _terms(words), positives, np.array([seed, step]))

    @tf.function
    def _scores(self, things: tf.Tensor, terms: tf.Tensor) -> tf.Tensor:
        return self.matcher(*self.embed(things, terms))

    def scores(self, things: np.ndarray, words: np.ndarray) -> np.ndarray:
        """Scores of scenes and captions (N, M)."""
        return self._scores(tf.constant(things), _terms(words)).numpy()


def _terms(words: np.ndarray) -> tf.Tensor:
    """The terms of captions, from 1, with 0 as padding: int (B, L)."""
    count = int(words.sum(axis=1).max())
    order = np.argsort(-words, axis=1, kind="stable")[:, :count]
    return tf.constant(np.where(np.take_along_axis(words, order, axis=1) > 0, order + 1, 0))
