"""Gaussian embeddings as distributions of TensorFlow Probability or PyTorch."""

from __future__ import annotations

from typing import Any, cast

import keras

from keras_xmr.embeddings.kinds import Gaussian, Tensor, kind
from keras_xmr.layers.backend import backend
from keras_xmr.utils.errors import ArgumentError


def distribution(embedding: Gaussian) -> Any:
    """Returns a Gaussian embedding as a distribution over vectors (Chun et al. 2021, Eq. 4).

    The embedding is the output of a head, of a model, or of `TrainedModel.embed_texts`. Samples,
    log-probabilities, entropies and KL divergences are methods of the distribution; losses and
    matchers have closed forms of their own, which are faster (docs/tables/kept.csv).

    Args:
        embedding: "mean" and "log_variance" (B, D), tensors or arrays.

    Returns:
        Batch shape (B,), event shape (D,): `tfp.distributions.MultivariateNormalDiag`, with JAX
        the same of its JAX substrate, and with PyTorch `torch.distributions.Independent` normals.

    Raises:
        ArgumentError: If the embedding is not a Gaussian, or TensorFlow Probability is not
            installed.
    """
    if "log_variance" not in embedding:
        raise ArgumentError(
            f"a distribution is of a Gaussian embedding, with mean and log_variance, and this is a "
            f"{kind(embedding)}; heads of configs such as scenes_pcme make Gaussians"
        )
    tensors = {
        key: keras.ops.convert_to_tensor(embedding[key], "float32")
        for key in ("mean", "log_variance")
    }
    return diagonal_normal(tensors["mean"], keras.ops.exp(0.5 * tensors["log_variance"]))


def diagonal_normal(mean: Tensor, deviations: Tensor) -> Any:
    """Returns normals of independent coordinates, over vectors of the last axis."""
    if backend() == "torch":
        from torch.distributions import Independent, Normal

        return Independent(Normal(*(cast(Any, parameter) for parameter in (mean, deviations))), 1)
    # Code without samples, such as most searches, does not wait for this import.
    distributions = _jax_substrate() if backend() == "jax" else _tensorflow_probability()
    return distributions.MultivariateNormalDiag(mean, deviations)


def _tensorflow_probability() -> Any:
    from tensorflow_probability import distributions

    return distributions


def _jax_substrate() -> Any:
    from jax.interpreters import xla

    if not hasattr(xla, "pytype_aval_mappings"):
        # TensorFlow Probability 0.25 looks for it where JAX had it until 0.4.36.
        from jax._src import core

        vars(xla)["pytype_aval_mappings"] = core.pytype_aval_mappings
    try:
        from tensorflow_probability.substrates.jax import distributions
    except ImportError as error:
        raise ArgumentError(
            f"distributions with JAX need TensorFlow Probability, which cannot be imported "
            f"({error}): pip install tensorflow-probability"
        ) from None
    return distributions
