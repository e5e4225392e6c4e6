"""Recall within a batch, as a metric of Keras."""

from __future__ import annotations

from typing import Literal

import keras
from keras import ops

from keras_xmr.parts.tensors import Tensor
from keras_xmr.utils.errors import ArgumentError


@keras.saving.register_keras_serializable(package="keras_xmr")
class Recall(keras.metrics.Metric):
    """Recall at K among the items of a batch, for `Retriever.compile(metrics=...)`.

    The share of queries with a relevant item among the K best of the batch; ties count against the
    model. It grows as batches get smaller: a training can be watched by it, and figures to compare
    with others come from `keras_xmr.evaluate`, which ranks everything.

    Args:
        k: The number of first answers that count.
        direction: Which queries count; "both" takes the mean of both directions.
        name: The name in the log; `recall_10` for a k of 10, and after it the direction.
        **kwargs: Passed on to `keras.metrics.Metric`.

    Raises:
        ArgumentError: If k is below 1, or the direction is unknown.
    """

    def __init__(
        self,
        k: int = 1,
        direction: Literal["both", "image_to_text", "text_to_image"] = "both",
        name: str | None = None,
        **kwargs: object,
    ) -> None:
        if k < 1 or direction not in ("both", "image_to_text", "text_to_image"):
            raise ArgumentError(
                "Recall takes a k from 1 on, and a direction of both, image_to_text and "
                f"text_to_image, not k={k!r}, direction={direction!r}"
            )
        suffix = "" if direction == "both" else f"_{direction}"
        super().__init__(name=name or f"recall_{k}{suffix}", **kwargs)
        self.k = k
        self.direction = direction
        self.hits = [self._sum(f"found_{n}") for n in range(2)]
        self.queries = [self._sum(f"asked_{n}") for n in range(2)]

    def _sum(self, name: str) -> keras.Variable:
        return self.add_variable((), initializer="zeros", name=name)

    def update_state(
        self, positives: Tensor, scores: Tensor, text_to_image: Tensor | None = None
    ) -> None:
        """Counts the queries of a batch.

        Args:
            positives: The matching pairs, boolean (N, M).
            scores: Scores (N, M), larger is better.
            text_to_image: The scores (N, M) that rank images, if these differ.
        """
        columns = scores if text_to_image is None else text_to_image
        for direction, right, rows in (
            (0, positives, scores),
            (1, ops.transpose(positives), ops.transpose(columns)),
        ):
            answerable = ops.any(right, axis=1)
            best = ops.max(ops.where(right, rows, -float("inf")), axis=1, keepdims=True)
            before = ops.sum(ops.cast((rows >= best) & ~right, "float32"), axis=1)
            hits = ops.cast(answerable & (before < self.k), "float32")
            self.hits[direction].assign_add(ops.sum(hits))
            self.queries[direction].assign_add(ops.sum(ops.cast(answerable, "float32")))

    def result(self) -> Tensor:
        """Returns the share of queries with a relevant item among the first K."""
        i2t, t2i = (
            hits / ops.maximum(queries, 1.0)
            for hits, queries in zip(self.hits, self.queries, strict=True)
        )
        results = {"both": (i2t + t2i) / 2.0, "image_to_text": i2t, "text_to_image": t2i}
        return results[self.direction]

    def get_config(self) -> dict[str, object]:
        return super().get_config() | {"k": self.k, "direction": self.direction}
