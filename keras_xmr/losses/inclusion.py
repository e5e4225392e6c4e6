"""The loss of ProLIP that puts the Gaussian of an image within that of its caption."""

from __future__ import annotations

import math
from typing import Any, Literal

import keras
from keras import ops

from keras_xmr.config.option_types import PositiveFloat
from keras_xmr.embeddings.kinds import Embedding
from keras_xmr.losses.base import Relations
from keras_xmr.losses.queries_loss import Queries, QueriesLoss

Tensor = Any


@keras.saving.register_keras_serializable(package="keras_xmr")
class Inclusion(QueriesLoss):
    """Captions say less than images, so that their Gaussians are to include those of their images.

    How far p is included in q is H = log of the integral of p^2 q, less that of p q^2: above 0
    where p is the narrower one. The loss is -log sigmoid(scale * H), coordinate by coordinate, and
    the mean of that over each caption with its image, the first one if it matches several (Chun
    et al. 2025, inclusion loss).

    Args:
        scale: What H is multiplied by; 1000 in the released code, whose job gives the loss a weight
            of 1e-7 beside `probabilistic_matching`.
        reading: "exact" is H as above. "released" is that of the released code, which counts the
            logarithms of the variances before the integrals twice, and gives the distance of the
            means a factor of e^-10.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    PARTS = ("inclusion",)
    NEEDS = ("gaussian",)
    READS_SCORES = False
    ONE_IMAGE = True

    def __init__(
        self,
        *,
        scale: PositiveFloat = 1000.0,
        reading: Literal["exact", "released"] = "exact",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.scale = scale
        self.reading = reading

    def of_queries(self, rows: Queries, columns: Queries, step: Tensor) -> dict[str, Tensor]:
        del rows, step
        own = ops.argmax(ops.cast(columns.positives, "int32"), axis=1)
        image = {
            key: ops.take(columns.candidates[key], own, axis=0) for key in ("mean", "log_variance")
        }
        included = inclusion(image, columns.queries, self.reading)
        return {"inclusion": columns.share * ops.mean(ops.softplus(-self.scale * included))}

    def trivial_value(self, scores: Tensor, relations: Relations) -> Tensor:
        del scores, relations
        return ops.log(2.0)

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"scale": self.scale, "reading": self.reading}


def inclusion(inner: Embedding, outer: Embedding, reading: str = "exact") -> Tensor:
    """How far Gaussians are included in others, coordinate by coordinate: float32 (N, D).

    With variances v and w and means d apart, H = log(w / v) / 2 - log((v + 2w) / (w + 2v)) / 2
    + d^2 (1 / (w + 2v) - 1 / (v + 2w)).

    Args:
        inner: N Gaussian embeddings, which are above 0 where they are the narrower ones.
        outer: N others, one for each.
        reading: "exact" or "released", as `Inclusion` has it.
    """
    wider = outer["log_variance"] - inner["log_variance"]
    # Of both variances only their ratio and, for the distance, the inner one count.
    inner_sum = ops.log1p(2.0 * ops.exp(wider))
    outer_sum = wider + ops.log1p(2.0 * ops.exp(-wider))
    distance = ops.square(inner["mean"] - outer["mean"]) * ops.exp(-inner["log_variance"])
    nearness = distance * (ops.exp(-outer_sum) - ops.exp(-inner_sum))
    if reading == "released":
        return wider - 0.5 * (inner_sum - outer_sum) + math.exp(-10.0) * nearness
    return 0.5 * (wider - inner_sum + outer_sum) + nearness
