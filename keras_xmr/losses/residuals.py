"""Regularizers of sets and their residuals, and the discrepancy of both modalities."""

from __future__ import annotations

from typing import Any, Unpack

from keras_xmr.embeddings.distances import root, squared_euclidean
from keras_xmr.embeddings.kinds import Point, PointSet, tensors, vectors
from keras_xmr.layers import l2_normalize
from keras_xmr.layers.operations import ops
from keras_xmr.losses.base import Loss, dtype_of
from keras_xmr.losses.direction_losses import ItemsLoss, reduce
from keras_xmr.losses.relations import Relations
from keras_xmr.parts.contracts import LossContract
from keras_xmr.parts.option_types import LayerOptions, NonNegativeFloat, PositiveFloat, Reduction
from keras_xmr.parts.tensors import Tensor


class _ResidualsLoss(ItemsLoss):
    """A loss over the set of residuals of each item; a side without them adds nothing."""

    CONTRACT = LossContract(keys=("residuals",))

    def items_loss(self, items: Point | PointSet) -> Tensor:
        if "residuals" in items:
            return self.sets_loss(items["residuals"])
        return ops.zeros((), dtype_of(next(iter(tensors(items).values()))) if items else "float32")

    def sets_loss(self, residuals: Tensor) -> Tensor:
        """Returns the loss of items with residuals (N, K, D), a scalar."""
        raise NotImplementedError


class Diversity(_ResidualsLoss):
    """Similarity of the K residuals of an item, summed over images and captions.

    The Frobenius norm of their cosines, without the diagonal, divided by K^2, and averaged over the
    items (Song and Soleymani 2019, Eq. 7). Local attention adds the residuals to the global
    vector; a side without them adds nothing.
    """

    def sets_loss(self, residuals: Tensor) -> Tensor:
        size = residuals.shape[1]
        others = _products(l2_normalize(residuals)) * (1.0 - ops.eye(size, dtype=residuals.dtype))
        alike = ops.mean(root(ops.sum(others * others, axis=(1, 2))))
        return alike / size**2


class SetUniformity(_ResidualsLoss):
    """Mean of exp(-t |x - y|^2) over the pairs of residuals of an item, both sides added.

    The diversity loss of Kim et al. 2023, section 3.4, on residuals of unit length: the local
    features' contribution to the global vector. A side without residuals, or with sets of one, adds
    nothing.

    Args:
        temperature: t.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    def __init__(self, *, temperature: PositiveFloat = 2.0, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.temperature = temperature

    def sets_loss(self, residuals: Tensor) -> Tensor:
        size = residuals.shape[1]
        if size == 1:
            return ops.sum(residuals[:, :0])  # 0, by which a value can be differentiated.
        # |x - y|^2 of unit vectors is 2 - 2 cos.
        distances = 2.0 * (1.0 - _products(l2_normalize(residuals)))
        kernel = ops.exp(-self.temperature * distances) * (
            1.0 - ops.eye(size, dtype=residuals.dtype)
        )
        mean = ops.mean(ops.sum(kernel, axis=(1, 2)))
        return mean / (size * (size - 1))


class DynamicOrthogonality(_ResidualsLoss):
    """Deviation of the sub-embeddings of an item from orthogonality, beyond a margin.

    The sum of |<v_i, v_j>| over all ordered pairs of different residuals, less the margin. The
    residuals of `DynamicSubEmbeddings` have its dynamic mask, which makes this the loss L_dc of Wei
    et al. 2023, Eq. 4; without that mask it is L_ort of its ablation. A masked sub-embedding is 0,
    and orthogonal to all. A side without residuals adds nothing.

    The effect of the loss depends on the activation and the normalisation of the head
    (docs/tables/options.csv).

    Inner products make sub-embeddings short, not different, and leave one embedding per image.

    Args:
        beta: The margin, up to which correlation is free.
        normalize: Whether cosines are taken; false takes inner products as printed, which a
            sigmoid lifts far above any small margin.
        reduction: "mean" divides by the number of items, "sum" does not.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    def __init__(
        self,
        *,
        beta: NonNegativeFloat = 0.4,
        normalize: bool = True,
        reduction: Reduction = "mean",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.beta = beta
        self.normalize = normalize
        self.reduction = reduction

    def sets_loss(self, residuals: Tensor) -> Tensor:
        products = ops.abs(_products(l2_normalize(residuals) if self.normalize else residuals))
        others = ops.sum(
            products * (1.0 - ops.eye(residuals.shape[1], dtype=residuals.dtype)), axis=(1, 2)
        )
        return reduce(ops.relu(others - self.beta), self.reduction)


def _products(vectors: Tensor) -> Tensor:
    """Returns inner products (N, K, K) of the vectors (N, K, D) of each set."""
    return ops.matmul(vectors, ops.transpose(vectors, (0, 2, 1)))


class MMD(Loss):
    """Squared maximum mean discrepancy between all image vectors and all caption vectors.

    mean k(x, x') - 2 mean k(x, y) + mean k(y, y') (Song and Soleymani 2019, Eq. 6). The kernel is
    as in the released code, exp(-gamma |x - y|), with the distance itself, not its square.

    Args:
        gamma: How fast the kernel falls with the distance.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = LossContract(
        terms=("mmd",),
        accepts=("set", "point"),
        reads_scores=False,
        reads_matches=False,
    )

    def __init__(self, *, gamma: PositiveFloat = 0.5, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.gamma = gamma

    def compute(
        self,
        scores: Tensor,
        image: Point | PointSet,
        caption: Point | PointSet,
        relations: Relations,
    ) -> dict[str, Any]:
        images, captions = vectors(image, "points"), vectors(caption, "points")
        across = ops.exp(-self.gamma * root(squared_euclidean(images, captions)))
        within = self._within(images) + self._within(captions)
        return {"mmd": within - 2.0 * ops.mean(across)}

    def _within(self, points: Tensor) -> Tensor:
        squares = squared_euclidean(points, points)
        # The distance of a vector to itself is 0, which rounding would not leave it.
        squares = ops.where(ops.eye(ops.shape(points)[0], dtype="bool"), 0.0, squares)
        return ops.mean(ops.exp(-self.gamma * root(squares)))
