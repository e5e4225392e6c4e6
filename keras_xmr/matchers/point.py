"""Matchers of points, and of sets of them: a point is a set of one."""

from __future__ import annotations

import math
from typing import Any, Unpack

from keras_xmr.embeddings import Gaussian, Point, PointSet, distances, points
from keras_xmr.layers import l2_normalize
from keras_xmr.layers.operations import ops
from keras_xmr.matchers.base import LogitMatcher, Matcher
from keras_xmr.parts.contracts import MatcherContract, SearchContract
from keras_xmr.parts.option_types import LayerOptions, PositiveFloat
from keras_xmr.parts.tensors import Tensor


class Cosine(Matcher):
    """Cosine of the angle between two embeddings; of Gaussians, between their means."""

    CONTRACT = MatcherContract(accepts=("point", "gaussian"))
    SEARCH = SearchContract(augmentation="mean_cosine", exact=True)

    def call(self, image: Point | Gaussian, caption: Point | Gaussian) -> Tensor:
        return distances.cosine(image["mean"], caption["mean"])


class CosineLogits(LogitMatcher):
    """Log-odds of a match, scale * cosine + shift, as SigLIP has them (Zhai et al. 2023, Alg. 1).

    Args:
        scale: Initial value of the learned scale (t of the paper).
        shift: Initial value of the learned shift (b).
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = MatcherContract(accepts=("point", "gaussian"))
    SEARCH = SearchContract(augmentation="mean_cosine", exact=True)

    def __init__(
        self, *, scale: float = 10.0, shift: float = -10.0, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(scale=scale, shift=shift, **kwargs)

    def call(self, image: Point | Gaussian, caption: Point | Gaussian) -> Tensor:
        return self.logits(-distances.cosine(image["mean"], caption["mean"]))


class MaxCosine(Matcher):
    """Largest cosine of one of the image's points and one of the caption's.

    Song and Soleymani 2019, Eq. 5.
    """

    CONTRACT = MatcherContract(accepts=(("set", "set"), ("set", "point"), ("point", "set")))
    SEARCH = SearchContract(augmentation="set_points", exact=True)

    def call(self, image: Point | PointSet, caption: Point | PointSet) -> Tensor:
        return ops.amax(distances.set_cosines(points(image), points(caption)), axis=(1, 3))


class MeanCosine(Matcher):
    """Mean of the cosines of all of the image's points with all of the caption's."""

    CONTRACT = MatcherContract(accepts=(("set", "set"), ("set", "point"), ("point", "set")))
    SEARCH = SearchContract(augmentation="set_means", exact=True)

    def call(self, image: Point | PointSet, caption: Point | PointSet) -> Tensor:
        # The mean of all inner products is the inner product of the means.
        centers = [ops.mean(l2_normalize(points(e)), axis=1) for e in (image, caption)]
        return ops.matmul(centers[0], ops.transpose(centers[1]))


class SmoothChamfer(Matcher):
    """Smooth-Chamfer similarity of two sets (Kim et al. 2023, Eq. 5).

    Every point of either set has a smooth maximum of its cosines with the other set, log sum
    exp(alpha c) / alpha; their mean over each set, and of both sets, is the score. Unlike with
    the one largest cosine, every point takes part in every score.

    Args:
        alpha: How near the smooth maximum is to the maximum.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = MatcherContract(accepts=(("set", "set"), ("set", "point"), ("point", "set")))
    SEARCH = SearchContract(augmentation="set_points")

    def __init__(self, *, alpha: PositiveFloat = 16.0, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.alpha = alpha

    def call(self, image: Point | PointSet, caption: Point | PointSet) -> Tensor:
        scaled = self.alpha * distances.set_cosines(points(image), points(caption))
        of_images = ops.mean(ops.logsumexp(scaled, axis=3), axis=1)
        of_captions = ops.mean(ops.logsumexp(scaled, axis=1), axis=2)
        return (of_images + of_captions) / (2.0 * self.alpha)

    def score_bound(self, similarity: Tensor, image: Any, caption: Any) -> Tensor:
        """Adds to the largest cosine the most that the smooth maxima can, log K / alpha each."""
        sizes = points(image).shape[1] * points(caption).shape[1]
        return similarity + math.log(sizes) / (2.0 * self.alpha)
