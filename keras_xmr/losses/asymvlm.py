"""The loss of AsymVLM."""

from __future__ import annotations

from typing import Any, Literal

import tensorflow as tf
from keras import ops

from data_pipelines.option_types import PositiveFloat
from keras_xmr.config.contracts import LossContract
from keras_xmr.embeddings import distances
from keras_xmr.embeddings.kinds import Embedding, Tensor, log_sigma
from keras_xmr.losses.cross_entropy import NTXent
from keras_xmr.losses.queries_base import Queries, with_scores


class SphericalLikelihood(NTXent):
    """Cross entropy of the likelihoods of images as points, under captions on the sphere.

    Ju et al. 2025 (AsymVLM): the log-likelihood of every image of a batch under the distribution of
    every caption takes the place of the cosines of `nt_xent`. Images are compared under one
    caption, and captions for one image, where normalizers matter. The concentration of a caption is
    one over the geometric mean of the variances of its embedding, which for the head `spherical` is
    kappa.

    Args:
        distribution: "von_mises_fisher", with the normalizer approximated as in the paper, or
            "power_spherical" (De Cao and Aziz 2020), with an exact normalizer.
        temperature: Log-likelihoods are divided by it; it begins at 1 in the released code.
        learnable: Whether it is learned. It does not fall below 0.01.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = LossContract(
        accepts=(("point", "gaussian"), ("gaussian", "gaussian")), reads_scores=False
    )

    def __init__(
        self,
        *,
        distribution: Literal["von_mises_fisher", "power_spherical"] = "power_spherical",
        temperature: PositiveFloat = 1.0,
        learnable: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(temperature=temperature, learnable=learnable, **kwargs)
        self.distribution = distribution

    def sum_over_queries(self, rows: Queries, columns: Queries, step: Tensor) -> dict[str, Tensor]:
        rows, columns = with_scores(rows, columns, self.log_likelihood)
        return super().sum_over_queries(rows, columns, step)

    def log_likelihood(self, image: Embedding, caption: Embedding) -> Tensor:
        """Log-likelihoods (N, M) of N images under M captions, but for a constant."""
        dimension = caption["mean"].shape[-1]
        cosine = distances.cosine(image["mean"], caption["mean"])
        kappa = ops.exp(-2.0 * log_sigma(caption))
        if self.distribution == "von_mises_fisher":
            return kappa * cosine + von_mises_fisher_normalizer(kappa, dimension)
        closeness = ops.log1p(ops.maximum(cosine, -1.0 + 1e-6))
        return kappa * closeness + power_spherical_normalizer(kappa, dimension)


def von_mises_fisher_normalizer(kappa: Tensor, dimension: int) -> Tensor:
    """Logarithm of the normalizer of von Mises-Fisher densities, but for a constant, (M,).

    Its slope is minus a ratio of Bessel functions, which lies between two bounds that have an
    integral in closed form (Amos 1974). This is the integral of their mean, by which Ju et al. 2025
    replace the normalizer.

    Args:
        kappa: Concentrations (M,).
        dimension: D of the space that the sphere lies in.
    """
    half = 0.5 * (dimension - 1)
    roots = (ops.sqrt(bound**2 + ops.square(kappa)) for bound in (half, half + 1.0))
    return 0.5 * sum(half * ops.log(half + root) - root for root in roots)


def power_spherical_normalizer(kappa: Tensor, dimension: int) -> Tensor:
    """Logarithm of the normalizer of power spherical densities, but for a constant, (M,).

    De Cao and Aziz 2020: the density is the normalizer times (1 + cosine)^kappa.

    Args:
        kappa: Concentrations (M,).
        dimension: D of the space that the sphere lies in.
    """
    half = 0.5 * (dimension - 1)
    lgamma = tf.math.lgamma
    return lgamma(kappa + 2.0 * half) - lgamma(kappa + half) - 0.6931471805599453 * kappa
