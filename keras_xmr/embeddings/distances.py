"""Distances between all vectors, or all Gaussians, of two batches.

Every function takes N items on the left and M on the right and returns (N, M). Memory follows
the answer: sums over the dimension that separate become matrix products, the others are added
up in slices of the dimension. Gaussians are embeddings with `mean` and `log_variance`, float32
(N, D).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from keras_xmr.embeddings.kinds import Gaussian, Tensor, deviation
from keras_xmr.layers.backend import backend, subtract_product
from keras_xmr.layers.operations import ops
from keras_xmr.parts.tensors import add_up

_SLICE = 32


def squared_euclidean(left: Tensor, right: Tensor) -> Tensor:
    """Returns squared Euclidean distances of vectors (N, D) and (M, D), never below 0.

    Left and right vectors are first moved by the mean of the left ones, which leaves the distances
    as they are and keeps the digits that would cancel.
    """
    return _squares(left, right, 0.0)


def _squares(left: Tensor, right: Tensor, least: float) -> Tensor:
    """Returns squared distances plus the least value that they then have."""
    center = ops.stop_gradient(ops.mean(left, axis=0, keepdims=True))
    left, right = left - center, right - center
    columns = ops.sum(ops.square(right), axis=1)
    squares = ops.sum(ops.square(left), axis=1)[:, None] + (columns + least if least else columns)
    return ops.maximum(subtract_product(squares, left, ops.transpose(right), 2.0), least)


def euclidean(left: Tensor, right: Tensor) -> Tensor:
    """Measures Euclidean distances, 1e-6 under the root as in the code of Chun et al. 2021."""
    found = _in_one_step(left, right)
    return ops.sqrt(_squares(left, right, _LEAST)) if found is None else found


def euclidean_logits(left: Tensor, right: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Returns shift - scale * `euclidean`."""
    found = _in_one_step(left, right, scale, shift)
    return shift - scale * euclidean(left, right) if found is None else found


_LEAST = 1e-6
"""What is added under the root of Euclidean distances."""


def _in_one_step(left: Tensor, right: Tensor, *numbers: Tensor) -> Tensor | None:
    """Does what `torch_paths.distances` says, in one step of the gradient; None with JAX."""
    paths = _paths()
    return None if paths is None else paths.distances(left, right, _LEAST, *numbers)


def _paths() -> Any:
    """Returns the module of faster operations of a framework; None with JAX."""
    if backend() == "torch":
        from keras_xmr.layers import torch_paths

        return torch_paths
    if backend() == "tensorflow":
        from keras_xmr.layers import tensorflow_paths

        return tensorflow_paths
    return None


def cosine(left: Tensor, right: Tensor) -> Tensor:
    """Returns cosines of the angles between vectors (N, D) and (M, D).

    Products are divided by lengths, not the vectors, which are mostly more numbers; TensorFlow and
    PyTorch divide vectors, in one step of the gradient. Lengths below 1e-12 count as 1e-12.
    """
    paths = _paths()
    found = None if paths is None else paths.cosines(left, right)
    if found is not None:
        return found
    products = ops.matmul(left, ops.transpose(right))
    return (products * _inverse_lengths(left)) * ops.transpose(_inverse_lengths(right))


def _inverse_lengths(vectors: Tensor) -> Tensor:
    """Returns one over the Euclidean length of each vector (N, 1)."""
    if backend() == "torch":
        lengths = ops.maximum(ops.norm(vectors, axis=-1, keepdims=True), 1e-12)
        return lengths / (lengths * lengths)  # NaN, and not 0, where a length is infinite.
    squares = ops.maximum(ops.sum(ops.square(vectors), axis=-1, keepdims=True), 1e-24)
    # NaN, and not 0, where the squares overflow. JAX divides by the square of 1e-24 in the gradient
    # of this factor, which is 0.
    return ops.rsqrt(squares) * ops.stop_gradient(squares / squares)


def set_cosines(left: Tensor, right: Tensor) -> Tensor:
    """Returns cosines of all vectors of sets (N, K, D) and (M, K', D): (N, K, M, K')."""
    n, k, dimension = _shape(left)
    m, j, _ = _shape(right)
    cosines = cosine(ops.reshape(left, (-1, dimension)), ops.reshape(right, (-1, dimension)))
    return ops.reshape(cosines, (n, k, m, j))


def root(squares: Tensor, smallest: float = 0.0) -> Tensor:
    """Takes roots: 0, without a gradient, for squares up to `smallest`, and NaN where they are."""
    # In graphs TensorFlow would replace "not (a <= b)" by "a > b", which hides NaN.
    least = squares <= smallest
    return ops.where(least, 0.0, ops.sqrt(ops.where(least, 1.0, squares)))


def sampled_euclidean(left: Tensor, right: Tensor) -> Tensor:
    """Returns Euclidean distances of all samples (N, J, D) and (M, J', D): (J, N, J', M)."""
    n, j, dimension = _shape(left)
    m, k, _ = _shape(right)
    left, right = (
        ops.reshape(ops.transpose(samples, (1, 0, 2)), (-1, dimension)) for samples in (left, right)
    )
    return ops.reshape(euclidean(left, right), (j, n, k, m))


def over_samples(reduce: Callable[..., Tensor], values: Tensor) -> Tensor:
    """Returns a sum, mean, maximum or minimum over the pairs of samples of (J, N, J', M): (N, M).

    Over one axis after the other, in long slices, which is faster on a CPU than over both at
    once, at any positions.
    """
    return reduce(reduce(values, axis=0), axis=1)


def wasserstein_squared(left: Gaussian, right: Gaussian) -> Tensor:
    """Returns the squared 2-Wasserstein distance: |mu1 - mu2|^2 + |sigma1 - sigma2|^2."""
    spread = squared_euclidean(deviation(left), deviation(right))
    return squared_euclidean(left["mean"], right["mean"]) + spread


def closed_form_sampled(left: Gaussian, right: Gaussian) -> Tensor:
    """Returns the expected squared distance of samples: |mu1 - mu2|^2 + sum(var1 + var2).

    The closed-form sampled distance (CSD) of Chun 2024, Eq. 1.
    """
    trace_1 = ops.sum(ops.exp(left["log_variance"]), axis=1)[:, None]
    trace_2 = ops.sum(ops.exp(right["log_variance"]), axis=1)[None, :]
    return squared_euclidean(left["mean"], right["mean"]) + trace_1 + trace_2


def mahalanobis_squared(means: Tensor, gaussians: Gaussian) -> Tensor:
    """Measures means (N, D) from Gaussians (M, D), squared, with the variances of these."""
    center = ops.stop_gradient(ops.mean(gaussians["mean"], axis=0, keepdims=True))
    mean_1, mean_2 = means - center, gaussians["mean"] - center
    precision = ops.exp(-gaussians["log_variance"])
    product = ops.matmul(
        ops.concatenate([mean_1 * mean_1, -2.0 * mean_1], axis=1),
        ops.transpose(ops.concatenate([precision, mean_2 * precision], axis=1)),
    )
    # TensorFlow would compute a product, a sum and `relu` in one step, where NaN becomes 0.
    return ops.maximum(product + ops.sum(mean_2 * mean_2 * precision, axis=1)[None, :], 0.0)


def kl_divergence(left: Gaussian, right: Gaussian) -> Tensor:
    """Returns KL(1 || 2), from the left Gaussian to the right one."""
    dimension = left["mean"].shape[-1]
    log_1, log_2 = left["log_variance"], right["log_variance"]
    ratio = ops.matmul(ops.exp(log_1), ops.transpose(ops.exp(-log_2)))
    log_ratio = ops.sum(log_2, axis=1)[None, :] - ops.sum(log_1, axis=1)[:, None]
    distance = mahalanobis_squared(left["mean"], right)
    return 0.5 * (distance + ratio + log_ratio - dimension)


def symmetric_kl(left: Gaussian, right: Gaussian) -> Tensor:
    """Returns (KL(1 || 2) + KL(2 || 1)) / 2."""
    return 0.5 * (kl_divergence(left, right) + ops.transpose(kl_divergence(right, left)))


def log_expected_likelihood(left: Gaussian, right: Gaussian) -> Tensor:
    """Takes the log of the expected likelihood kernel, the integral of both densities' product.

    A similarity: larger is nearer.
    """

    constant = left["mean"].shape[-1] * (_LOG_TWO + _LOG_TWO_PI)
    return -0.5 * (_overlap(left, right, 0.5) + constant)


def bhattacharyya(left: Gaussian, right: Gaussian) -> Tensor:
    """Returns the Bhattacharyya distance."""
    own_1 = 0.25 * ops.sum(left["log_variance"], axis=1)[:, None]
    own_2 = 0.25 * ops.sum(right["log_variance"], axis=1)[None, :]
    return 0.5 * _overlap(left, right, 0.25) - own_1 - own_2


def _overlap(left: Gaussian, right: Gaussian, weight: float) -> Tensor:
    """Adds up over d weight (mu1 - mu2)^2 / v + log v, with v the mean of both variances.

    No product does this, so it is added up in slices of the dimension.
    """
    variance_1, variance_2 = (ops.exp(side["log_variance"]) for side in (left, right))
    sums = []
    for columns in _slices(left["mean"].shape[-1]):
        delta = left["mean"][:, None, columns] - right["mean"][None, :, columns]
        variance = 0.5 * (variance_1[:, None, columns] + variance_2[None, :, columns])
        values = weight * delta * delta / variance + ops.log(variance)
        sums.append(ops.sum(values, axis=-1))
    return add_up(sums)


def _slices(dimension: int) -> list[slice]:
    return [slice(start, start + _SLICE) for start in range(0, dimension, _SLICE)]


def log_jensen_shannon_shortfall(left: Gaussian, right: Gaussian) -> Tensor:
    """Takes log(log 2 - JS) of all pairs of Gaussians (N, M), JS by samples: larger is nearer.

    Between Gaussians that hardly overlap, JS itself is log 2 in every float; the logarithm of the
    gap to that bound still distinguishes them.

    Args:
        left: Gaussian embedding (N, D) with `samples` (N, J, D).
        right: Gaussian embedding (M, D) with `samples` (M, J', D).
    """
    there, back = _log_shortfall(left, right), _log_shortfall(right, left)
    return ops.logaddexp(there, ops.transpose(back)) - _LOG_TWO


def _log_shortfall(left: Gaussian, right: Gaussian) -> Tensor:
    """Takes log(log 2 - KL), of the KL of left Gaussians to their even mixtures with right ones.

    With r = log q(x) - log p(x), KL is the mean over samples x of p of log 2 - softplus(r).
    """
    samples = left["samples"]
    n, j, dimension = _shape(samples)
    flat = ops.reshape(samples, (-1, dimension))
    deviations = samples - left["mean"][:, None]
    deviations = ops.sum(deviations * deviations * ops.exp(-left["log_variance"])[:, None], axis=-1)
    log_left = -0.5 * (deviations + ops.sum(left["log_variance"], axis=1)[:, None])
    other = mahalanobis_squared(flat, right)
    log_right = -0.5 * (other + ops.sum(right["log_variance"], axis=1)[None, :])
    log_ratio = ops.reshape(log_right, (n, j, -1)) - log_left[..., None]
    return ops.logsumexp(_log_softplus(log_ratio), axis=1) - math.log(j)


def _log_softplus(values: Tensor) -> Tensor:
    """Takes log(log(1 + exp(x))): x to the last digit where softplus would be rounded to 0."""
    return ops.where(values < -_FAR, values, ops.log(ops.softplus(ops.maximum(values, -_FAR))))


_FAR = 20.0
_LOG_TWO = 0.6931471805599453
_LOG_TWO_PI = 1.8378770664093453


def _shape(samples: Tensor) -> tuple[Any, Any, Any]:
    """Returns the shape (N, J, D) of samples; J and D are known."""
    return ops.shape(samples)[0], samples.shape[1], samples.shape[2]
