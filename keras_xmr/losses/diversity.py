"""The regularizer that keeps the branches of a set apart."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_xmr.config.contracts import LossContract
from keras_xmr.embeddings.distances import root
from keras_xmr.losses.queries_base import ItemsLoss, Queries


@keras.saving.register_keras_serializable(package="keras_xmr")
class Diversity(ItemsLoss):
    """How alike the K residuals of an item are, images and captions added.

    The Frobenius norm of their cosines, the diagonal aside, divided by K^2, and averaged over the
    items (Song and Soleymani 2019, Eq. 7). The residuals are what local attention adds to the
    global vector; a side without them adds nothing.
    """

    CONTRACT = LossContract(keys=("residuals",))

    def of_items(self, items: Queries) -> Any:
        embedding = items.queries
        if "residuals" not in embedding:
            return ops.zeros(())
        residuals = ops.normalize(embedding["residuals"], axis=-1, order=2, epsilon=1e-12)
        size = residuals.shape[1]
        cosines = ops.matmul(residuals, ops.transpose(residuals, (0, 2, 1)))
        others = cosines * (1.0 - ops.eye(size))
        alike = ops.mean(root(ops.sum(others * others, axis=(1, 2))))
        return items.share * alike / size**2
