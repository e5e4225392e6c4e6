"""The loss of ProbVLM."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf
from keras import ops

from keras_xmr.config.contracts import LossContract
from keras_xmr.embeddings.kinds import Embedding, Tensor
from keras_xmr.losses.queries_base import Queries, QueriesLoss
from keras_xmr.utils.option_types import NonNegativeFloat

# Upper bound of the power of a residual in the released code.
_LARGEST = math.log(1e3)
_SMALLEST = 1e-8


class GeneralizedGaussianLikelihood(QueriesLoss):
    """Likelihood of embeddings under generalised Gaussians, in and across modalities.

    Upadhyay et al. 2023 (ProbVLM), section 3.2, intra-modal and cross-modal alignment. With r the
    distance of a number of z from its reconstruction, the negative logarithm of its density is, but
    for a constant, (r / alpha)^beta - log(beta / alpha) + log Gamma(1 / beta), of which the mean
    over the numbers counts. The intra-modal terms take z of the item itself, the cross-modal ones z
    of its matches, averaged over them.

    Weights are those of the released code, which adds the absolute residuals to each term. Its
    power of the residual is a product with beta; here it is the paper's.

    Args:
        absolute: Weight of the mean absolute residual.
        likelihood: Weight of the negative log-likelihood.
        cross: Weight of the cross-modal terms (lambda_cross).
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = LossContract(
        parts=("image", "caption", "cross"),
        keys=("reconstruction", "log_scale", "log_shape"),
        reads_scores=False,
    )

    def __init__(
        self,
        *,
        absolute: NonNegativeFloat = 1.0,
        likelihood: NonNegativeFloat = 0.05,
        cross: NonNegativeFloat = 1.0e-4,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.absolute = absolute
        self.likelihood = likelihood
        self.cross = cross

    def sum_over_queries(
        self, rows: Queries, columns: Queries, step: Tensor | None
    ) -> dict[str, Tensor]:
        sides = [side for side in (rows, columns) if set(self.CONTRACT.keys) <= side.queries.keys()]
        cross = sum((self._cross(side) for side in sides), ops.zeros(()))
        return {
            "image": self._intra(rows) if rows in sides else ops.zeros(()),
            "caption": self._intra(columns) if columns in sides else ops.zeros(()),
            "cross": self.cross * cross,
        }

    def _intra(self, items: Queries) -> Tensor:
        """The intra-modal term of the items that are the queries."""
        return items.share * ops.mean(self._alignment(items.queries, items.queries["mean"]))

    def _cross(self, queries: Queries) -> Tensor:
        """The cross-modal term of the queries and their matches."""
        rows, columns = ops.nonzero(queries.positives)
        items = {key: ops.take(queries.queries[key], rows, axis=0) for key in self.CONTRACT.keys}
        others = ops.take(queries.candidates["mean"], columns, axis=0)
        return ops.sum(ops.take(queries.weights(), rows, axis=0) * self._alignment(items, others))

    def _alignment(self, items: Embedding, targets: Tensor) -> Tensor:
        """Both terms of each item and its target: (N,)."""
        residuals = ops.abs(items["reconstruction"] - targets)
        likelihood = negative_log_likelihood(residuals, items["log_scale"], items["log_shape"])
        return ops.mean(self.absolute * residuals + self.likelihood * likelihood, axis=-1)


def negative_log_likelihood(residuals: Tensor, log_scale: Tensor, log_shape: Tensor) -> Tensor:
    """Negative log-likelihood under generalised Gaussians, but for log 2.

    Upadhyay et al. 2023, section 3.2.

    Args:
        residuals: Distances from the centre, float32 (N, D). Powers of theirs do
            not pass 1000.
        log_scale: Logarithms of alpha (N, D).
        log_shape: Logarithms of beta (N, D).
    """
    shape = ops.exp(log_shape)
    power = shape * (ops.log(ops.maximum(residuals, _SMALLEST)) - log_scale)
    normalizer = log_scale - log_shape + tf.math.lgamma(1.0 / shape)
    return ops.exp(ops.minimum(power, _LARGEST)) + normalizer
