"""Matchers of Gaussian embeddings (Chun et al. 2021, section 3.2.3 and Table 1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Unpack

import keras

from keras_xmr.embeddings import Gaussian, distances
from keras_xmr.layers.operations import ops
from keras_xmr.matchers.base import LogitMatcher, Matcher, SampledMatcher
from keras_xmr.parts.contracts import MatcherContract, SearchContract
from keras_xmr.parts.option_types import LayerOptions, PositiveFloat, PositiveInt
from keras_xmr.parts.tensors import Tensor
from keras_xmr.utils.sides import Side

_FAR = 40.0


class MatchProbability(LogitMatcher, SampledMatcher):
    """Log-odds of the match probability, from J samples of the image and J of the caption.

    The probability is the mean of sigmoid(-scale * distance + shift) over all J * J pairs of
    samples (Chun et al. 2021, Eq. 2 and 3). Its log-odds rank alike, and stay exact where the
    probability itself would be rounded to 0 or 1. Distances are roots of squares plus 1e-6, as in
    the released code, so that samples that coincide have a gradient.

    Args:
        samples: J in training.
        test_samples: J in evaluation.
        scale: Initial value of the learned scale. The released code takes the sigmoid of twice the
            logit, so its 15 on COCO and 5 on CUB are 30 and 10 here.
        shift: Initial value of the learned shift; the same holds.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    SEARCH = SearchContract(augmentation="squared_samples")

    def __init__(
        self,
        *,
        samples: PositiveInt = 7,
        test_samples: PositiveInt = 7,
        scale: float = 30.0,
        shift: float = 30.0,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(
            samples=samples, test_samples=test_samples, scale=scale, shift=shift, **kwargs
        )

    def call(self, image: Gaussian, caption: Gaussian) -> Tensor:
        distance = distances.sampled_euclidean(image["samples"], caption["samples"])
        return _log_odds(self.logits(distance))


def _log_odds(logits: Tensor) -> Tensor:
    """Takes log sum(sigmoid(l)) - log sum(sigmoid(-l)) over samples: (J, N, J', M) to (N, M).

    Far out sigmoid(l) is exp(l), to the last digit. So where all logits of a pair are below -40, or
    all are above 40, they are moved there, the distance is kept apart, and no sum is rounded to 0.
    """
    highest, lowest = (distances.over_samples(reduce, logits) for reduce in (ops.amax, ops.amin))
    beyond = ops.stop_gradient(ops.relu(-_FAR - highest) - ops.relu(lowest - _FAR))
    logits = logits + beyond[:, None]
    match, no_match = (
        distances.over_samples(ops.sum, ops.sigmoid(side)) for side in (logits, -logits)
    )
    return ops.log(match / no_match) - beyond


class MeanOnly(LogitMatcher):
    """Log-odds of a match from the distance of the means alone: "mu only" of Chun et al. 2021.

    The distance is the root of the square plus 1e-6.
    """

    CONTRACT = MatcherContract(accepts=(("point", "point"), ("gaussian", "gaussian")))
    SEARCH = SearchContract(augmentation="mean_l2", exact=True)

    def call(self, image: Gaussian, caption: Gaussian) -> Tensor:
        numbers = self.scale_and_shift(image["mean"])
        return distances.euclidean_logits(image["mean"], caption["mean"], *numbers)


class ClosedFormSampled(LogitMatcher):
    """Log-odds of a match from the closed-form sampled distance of PCME++ (Chun 2024, Eq. 1).

    Args:
        scale: Initial value of the learned scale.
        shift: Initial value of the learned shift.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = MatcherContract(accepts=("gaussian",))
    SEARCH = SearchContract(augmentation="closed_form_sampled", exact=True)

    def __init__(
        self, *, scale: float = 5.0, shift: float = 5.0, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(scale=scale, shift=shift, **kwargs)

    def call(self, image: Gaussian, caption: Gaussian) -> Tensor:
        return self.logits(distances.closed_form_sampled(image, caption))


class AverageL2(SampledMatcher):
    """Minus the mean Euclidean distance of all pairs of samples."""

    SEARCH = SearchContract(augmentation="sample_means")

    def call(self, image: Gaussian, caption: Gaussian) -> Tensor:
        distance = distances.sampled_euclidean(image["samples"], caption["samples"])
        return -distances.over_samples(ops.mean, distance)

    def score_bound(self, similarity: Tensor, image: Any, caption: Any) -> Tensor:
        """Returns minus the distance of the means of samples, at most the mean of all pairs."""
        mean = ops.mean(caption["samples"], axis=1)
        return -ops.sqrt(ops.relu(ops.sum(mean * mean, axis=1) - 2.0 * similarity))


class JensenShannon(SampledMatcher):
    """log(log 2 - JS), which ranks as minus the Jensen-Shannon divergence and never saturates.

    By Monte-Carlo: between Gaussians it has no closed form. The "js" of Chun et al. 2021 is as in
    their released code, which is `SymmetricKL`.
    """

    SEARCH = SearchContract(augmentation="kl_both")

    def call(self, image: Gaussian, caption: Gaussian) -> Tensor:
        return distances.log_jensen_shannon_shortfall(image, caption)


class _ClosedForm(Matcher):
    """A matcher with a closed form in the means and the log-variances.

    A subclass has the `distance` (N, M) of images (left) and captions (right).
    """

    CONTRACT = MatcherContract(accepts=("gaussian",))

    distance: Callable[..., Tensor]

    def call(self, image: Gaussian, caption: Gaussian) -> Tensor:
        return -self.distance(image, caption)


class ELK(_ClosedForm):
    """Logarithm of the expected likelihood kernel."""

    SEARCH = SearchContract(augmentation="smoothed_mahalanobis")

    def distance(self, image: Gaussian, caption: Gaussian) -> Tensor:
        return -distances.log_expected_likelihood(image, caption)


class Wasserstein(_ClosedForm):
    """Minus the squared 2-Wasserstein distance."""

    SEARCH = SearchContract(augmentation="wasserstein", exact=True)
    distance = staticmethod(distances.wasserstein_squared)


class KL(_ClosedForm):
    """Minus the Kullback-Leibler divergence from the image to the caption."""

    SEARCH = SearchContract(augmentation="kl_to_query", exact=True)
    distance = staticmethod(distances.kl_divergence)


class ReverseKL(_ClosedForm):
    """Minus the Kullback-Leibler divergence from the caption to the image."""

    SEARCH = SearchContract(augmentation="kl_from_query", exact=True)

    def distance(self, image: Gaussian, caption: Gaussian) -> Tensor:
        return ops.transpose(distances.kl_divergence(caption, image))


class SymmetricKL(_ClosedForm):
    """Minus the mean of both Kullback-Leibler divergences.

    The score ranks as the "js" of the released code of Chun et al. 2021, an affine function of it.
    """

    SEARCH = SearchContract(augmentation="kl_both", exact=True)
    distance = staticmethod(distances.symmetric_kl)


class Bhattacharyya(_ClosedForm):
    """Minus the Bhattacharyya distance."""

    SEARCH = SearchContract(augmentation="smoothed_mahalanobis")
    distance = staticmethod(distances.bhattacharyya)


class Mahalanobis(Matcher):
    """Minus the squared Mahalanobis distance of the other's mean to the Gaussian of the query.

    Wang et al. 2023, Eq. 4. The paper does not define scores at test time; another choice is the
    cosine of the means.
    """

    CONTRACT = MatcherContract(accepts=("gaussian",), directed=True)
    SEARCH = SearchContract(augmentation="mahalanobis", exact=True)

    def call(self, image: Gaussian, caption: Gaussian, query: Side = "image") -> Tensor:
        return -_mahalanobis(image, caption, query)


class MahalanobisCosine(Matcher):
    """Logarithm of the product of both probabilities of MSRM, up to a constant of the query.

    -temperature * d^2 + cosine_scale * cos, with the squared Mahalanobis distance d^2 of
    `mahalanobis` and the cosine of the means (Wang et al. 2023, Eq. 5 and 11; in Eq. 11 the means
    replace the nodes of the hypergraph, which exists only in training).

    In a model trained by `mahalanobis_contrastive`, tau is learned by that loss, and lambda by
    `hypergraph_contrastive`: the scores then change in training.

    Args:
        temperature: tau of Eq. 5, where no loss learns it.
        cosine_scale: lambda of Eq. 11, where no loss learns it.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = MatcherContract(
        accepts=("gaussian",),
        directed=True,
        accepted_parameters=("temperature", "cosine_scale"),
    )
    SEARCH = SearchContract(augmentation="mahalanobis_cosine", exact=True)

    _shared: dict[str, Any]

    def __init__(
        self,
        *,
        temperature: PositiveFloat = 10.0,
        cosine_scale: PositiveFloat = 5.0,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.temperature = temperature
        self.cosine_scale = cosine_scale
        # Past Keras, which would save and restore these weights of losses a second time.
        object.__setattr__(self, "_shared", {})

    def share_parameters_with(self, losses: Iterable[Any]) -> None:
        for loss in losses:
            for name in loss.contract.shared_parameters:
                self._shared[name] = getattr(loss, name)

    def variables_of_call(self) -> list[Any]:
        return [*super().variables_of_call(), *self._shared.values()]

    def _scalars(self) -> dict[str, Any]:
        options = {"cosine_scale": self.cosine_scale, "temperature": self.temperature}
        return options | self._shared

    def call(self, image: Gaussian, caption: Gaussian, query: Side = "image") -> Tensor:
        scalars = self._scalars()
        cosine = scalars["cosine_scale"] * distances.cosine(image["mean"], caption["mean"])
        return cosine - scalars["temperature"] * _mahalanobis(image, caption, query)

    def search_constants(self) -> dict[str, float]:
        return {name: float(value) for name, value in self._scalars().items()}


def _mahalanobis(image: Gaussian, caption: Gaussian, query: Side) -> Tensor:
    """Returns squared distances (images, captions) with the variances of one side."""
    if query == "text":
        return distances.mahalanobis_squared(image["mean"], caption)
    return keras.ops.transpose(distances.mahalanobis_squared(caption["mean"], image))
