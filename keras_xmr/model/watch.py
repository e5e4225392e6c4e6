"""Finds the number of a training step to blame where some are not finite."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from keras_xmr.parts.tensors import Tensor


def bad_number(finite: Tensor, names: Sequence[str], losses: int) -> Tensor:
    """Returns the place of the number to name where some are not finite: int64.

    A term of a loss explains its loss, a loss the objective, and the objective all other numbers:
    the first of this order is named. Where no loss is finite, the embeddings are at fault and no
    single loss, so the objective is named.

    Args:
        finite: Whether each number is, bool (N,).
        names: Names of the numbers: objective, `loss` and `loss/term` of each loss, then others.
        losses: Number of the names of losses and their terms.
    """
    numbers = range(1, losses + 1)
    whole = [number for number in numbers if "/" not in names[number]]
    terms = [number for number in numbers if number not in whole]
    order = [*terms, *whole, 0, *range(losses + 1, len(names))]
    is_bad = tf.cast(~tf.gather(finite, order), tf.int32)
    first = tf.cast(tf.gather(order, tf.argmax(is_bad)), tf.int64)
    return tf.where(tf.reduce_any(tf.gather(finite, whole)), first, 0)
