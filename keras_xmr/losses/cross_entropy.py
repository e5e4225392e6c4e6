"""Cross entropies of a positive against other candidates."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Literal

import tensorflow as tf
from keras import ops

from keras_xmr.config.contracts import LossContract
from keras_xmr.embeddings import Embedding, Tensor, distances, log_sigma
from keras_xmr.layers import Temperature
from keras_xmr.losses.queries_base import LOWEST, DirectionsLoss, Queries
from keras_xmr.utils.option_types import PositiveFloat


class _CrossEntropy(DirectionsLoss):
    """A cross entropy over scores divided by a temperature, mean of both directions.

    In each direction it is the mean over the queries and their positives.
    """

    def __init__(self, temperature: float, learnable: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.temperature = temperature
        self.learnable = learnable
        self.divide = Temperature(temperature, learnable, name="temperature")

    @abstractmethod
    def entropy(self, logits: Any, positives: Any) -> Any:
        """The cross entropy of each candidate (column) of each query (row), if it is a positive."""

    def one_way(self, queries: Queries, direction: str, step: Any) -> Any:
        positives = queries.positives
        entropy = self.entropy(self.divide(queries.scores), positives)
        return 0.5 * ops.sum(queries.weights()[:, None] * ops.where(positives, entropy, 0.0))


class NTXent(_CrossEntropy):
    """Cross entropy of a positive against the negatives, mean of both directions.

    The normalised, temperature-scaled cross entropy of Chen et al. 2020, across modalities: the
    InfoNCE loss of Radford et al. 2021. A query with several positives has one cross entropy for
    each, against that positive and all negatives, and their mean counts: relevant items do not
    compete with one another.

    Args:
        temperature: The scores are divided by it.
        learnable: Whether the temperature is learned, beginning at `temperature`. It does not
            fall below 0.01.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    def __init__(
        self, *, temperature: PositiveFloat = 0.07, learnable: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(temperature, learnable, **kwargs)

    def entropy(self, logits: Any, positives: Any) -> Any:
        negatives = ops.where(positives, LOWEST, logits)
        highest = ops.stop_gradient(ops.max(negatives, axis=1, keepdims=True))
        sums = ops.sum(ops.exp(negatives - highest), axis=1, keepdims=True)
        # Large logits would lose the digits by which they differ in a sum with the logarithm.
        return ops.softplus(ops.log(sums) + (highest - logits))


class SupervisedContrastive(_CrossEntropy):
    """Cross entropy of each positive against all candidates, mean of both directions.

    Khosla et al. 2020, Eq. 2, across modalities: the anchors are the images and the captions in
    turn, and the candidates of an anchor all items of the other modality. Unlike in `nt_xent` the
    other positives of a query are in the denominator, which draws all of a class together; made
    for data with classes (`judgements: classes`).

    Args:
        temperature: The scores are divided by it.
        learnable: Whether the temperature is learned, beginning at `temperature`. It does not
            fall below 0.01.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    def __init__(
        self, *, temperature: PositiveFloat = 0.1, learnable: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(temperature, learnable, **kwargs)

    def entropy(self, logits: Any, positives: Any) -> Any:
        return -ops.log_softmax(logits, axis=1)


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

    def similarities(self, image: Embedding, caption: Embedding) -> Tensor:
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
