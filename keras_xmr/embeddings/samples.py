"""Samples of Gaussian embeddings."""

from __future__ import annotations

import keras

from keras_xmr.embeddings.distributions import diagonal_normal
from keras_xmr.embeddings.kinds import Gaussian, deviation
from keras_xmr.layers.backend import as_generator, backend
from keras_xmr.parts.tensors import Seed, Tensor


def sample(embedding: Gaussian, samples: int, seed: Seed) -> Tensor:
    """Draws from a Gaussian embedding with the reparameterisation trick.

    Args:
        embedding: A Gaussian embedding.
        samples: Number of samples J per item.
        seed: Seed of the noise.

    Returns:
        Samples (B, J, D), independent of one another.
    """
    mean, sigma = embedding["mean"], deviation(embedding)
    drawn = mean + sigma * _standard_normal(mean, sigma, samples, seed)
    return keras.ops.transpose(drawn, (1, 0, 2))


def sample_with_common_noise(embedding: Gaussian, samples: int, seed: Seed) -> Tensor:
    """Draws from a Gaussian embedding with the same noise for every item.

    The samples of an item then do not depend on its batch, and two items are compared by common
    random numbers. For evaluation and export.

    Args:
        embedding: A Gaussian embedding.
        samples: Number of samples J per item.
        seed: Seed of the noise.

    Returns:
        Samples (B, J, D).
    """
    mean = embedding["mean"]
    dimension = mean.shape[-1]
    zeros, ones = keras.ops.zeros(dimension), keras.ops.ones(dimension)
    noise = _standard_normal(zeros, ones, samples, seed)
    if backend() == "tensorflow":
        noise = keras.ops.cast(noise, mean.dtype)  # The others do so themselves.
    return mean[:, None, :] + deviation(embedding)[:, None, :] * noise[None]


def _standard_normal(mean: Tensor, deviation: Tensor, samples: int, seed: Seed) -> Tensor:
    """Draws the noise of normal samples, before it is scaled and shifted: (J, ..., D).

    A distribution that scales and shifts it caches every result, and with it the graph of each
    traced function, for the life of the process.
    """
    if seed is None:
        from keras_xmr.layers.torch_paths import normal

        return normal(samples, mean)
    generator = as_generator(seed)
    if backend() == "tensorflow":
        numbers = keras.ops.cast(generator.next(), "int32")
        return diagonal_normal(mean, deviation).distribution.sample(samples, seed=numbers)
    shape = (samples, *keras.ops.shape(mean))
    if backend() == "torch" and isinstance(seed, tuple):
        from keras_xmr.layers.torch_paths import fixed_normal

        return fixed_normal(shape, seed)
    return keras.random.normal(shape, seed=generator)
