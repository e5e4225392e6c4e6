"""The loss of DVSE that keeps sub-embeddings apart."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_xmr.config.contracts import LossContract
from keras_xmr.config.option_types import NonNegativeFloat, Reduction
from keras_xmr.losses.queries_base import ItemsLoss, Queries


@keras.saving.register_keras_serializable(package="keras_xmr")
class DynamicOrthogonality(ItemsLoss):
    """How far the sub-embeddings of an item are from orthogonal, beyond a margin.

    The sum of |<m v_i, m v_j>| over all ordered pairs of different sub-embeddings, less the
    margin, where m is the dynamic mask of the item (Wei et al., Eq. 4; L_ort of its Eq. 12). A
    side without sub-embeddings, or without the mask that is to be applied, adds nothing.

    What it does depends on the activation of the head. `csv_dvse_regions` with `dimension: 128` and
    `sigma: one` was trained for 8 epochs on 500 photos, whose features were reduced to 9 regions of
    128 numbers (one seed). Gradient norm before the training, with its weight, that of the other
    loss being 4; mean cosine, after it, of the sub-embeddings that the loss sees, and of those that
    are scored, which have the global vector in common; and validation RSUM:

    ==========  =========  ========  ====  ======  =====
    activation  normalize  gradient  seen  scored   RSUM
    ==========  =========  ========  ====  ======  =====
    sigmoid     true           0.27  0.69    0.90  134.8
    sigmoid     false          26.9  1.00    1.00  144.8
    tanh        true           2.28  0.28    0.79  112.4
    tanh        false          70.2  0.42    1.00  168.0
    ==========  =========  ========  ====  ======  =====

    Inner products make sub-embeddings short, not different, and leave one embedding an image.

    Args:
        beta: The margin, up to which correlation is free.
        masked: Whether the dynamic mask is applied; false is the L_ort of the ablation.
        normalize: Whether cosines of the masked sub-embeddings are taken; false takes their
            inner products as printed, which a sigmoid lifts far above any small margin.
        reduction: "mean" divides by the number of items, "sum" does not.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = LossContract(
        keys=("residuals",),
        when=(({"masked": True}, {"keys": ("residuals", "mask")}),),
    )

    def __init__(
        self,
        *,
        beta: NonNegativeFloat = 0.4,
        masked: bool = True,
        normalize: bool = True,
        reduction: Reduction = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.beta = beta
        self.masked = masked
        self.normalize = normalize
        self.reduction = reduction

    def of_items(self, items: Queries) -> Any:
        embedding = items.queries
        if "residuals" not in embedding or (self.masked and "mask" not in embedding):
            return ops.zeros(())
        vectors = embedding["residuals"]
        if self.masked:
            vectors = vectors * embedding["mask"][:, None, :]
        if self.normalize:
            vectors = ops.normalize(vectors, axis=-1, order=2, epsilon=1e-12)
        products = ops.abs(ops.matmul(vectors, ops.transpose(vectors, (0, 2, 1))))
        others = ops.sum(products * (1.0 - ops.eye(vectors.shape[1])), axis=(1, 2))
        hinges = ops.relu(others - self.beta)
        if self.reduction == "sum":
            return ops.sum(hinges)
        return items.share * ops.mean(hinges)
