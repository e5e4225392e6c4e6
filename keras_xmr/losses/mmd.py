"""Maximum mean discrepancy of the two modalities."""

from __future__ import annotations

from typing import Any

from keras import ops

from keras_xmr.config.contracts import LossContract
from keras_xmr.config.option_types import PositiveFloat
from keras_xmr.embeddings.distances import root, squared_euclidean
from keras_xmr.embeddings.kinds import Embedding
from keras_xmr.losses.base import Loss, Relations


class MMD(Loss):
    """Squared maximum mean discrepancy between all image vectors and all caption vectors.

    mean k(x, x') - 2 mean k(x, y) + mean k(y, y') (Song and Soleymani 2019, Eq. 6). The kernel is
    that of the released code, exp(-gamma |x - y|), with the distance itself, not its square.

    Args:
        gamma: How fast the kernel falls with the distance.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = LossContract(
        parts=("mmd",),
        accepts=("set", "point"),
        reads_scores=False,
        reads_matches=False,
        supports_soft_targets=True,
    )

    def __init__(self, *, gamma: PositiveFloat = 0.5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.gamma = gamma

    def call(
        self, scores: Any, image: Embedding, caption: Embedding, relations: Relations
    ) -> dict[str, Any]:
        del scores, relations
        images, captions = _vectors(image), _vectors(caption)
        across = ops.exp(-self.gamma * root(squared_euclidean(images, captions)))
        within = self._within(images) + self._within(captions)
        return {"mmd": within - 2.0 * ops.mean(across)}

    def _within(self, vectors: Any) -> Any:
        squares = squared_euclidean(vectors, vectors)
        # The distance of a vector to itself is 0, which rounding would not leave it.
        squares = ops.where(ops.eye(ops.shape(vectors)[0], dtype="bool"), 0.0, squares)
        return ops.mean(ops.exp(-self.gamma * root(squares)))


def _vectors(embedding: Embedding) -> Any:
    """All vectors (N * K, D) of an embedding."""
    if "points" in embedding:
        return ops.reshape(embedding["points"], (-1, embedding["points"].shape[-1]))
    return embedding["mean"]
