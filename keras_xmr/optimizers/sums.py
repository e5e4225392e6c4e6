"""Gradients that have been summed over the replicas before an optimizer gets them."""

from __future__ import annotations

from typing import Any

import keras


def take_sums(optimizer: keras.optimizers.Optimizer) -> None:
    """Has an optimizer take gradients as sums over all replicas, and not sum them again.

    Keras has no option for it. Its `LossScaleOptimizer` even relies on it: by the gradients of
    one replica it decides for all whether a step is skipped, and only then they are summed.

    Args:
        optimizer: Any of Keras, or one with a `LossScaleOptimizer` around it.
    """
    inner: Any = getattr(optimizer, "inner_optimizer", optimizer)
    inner._all_reduce_sum_gradients = list
