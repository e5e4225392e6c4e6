"""Distributions with JAX, which a process of its own needs."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

CODE = """
import numpy as np
from keras_xmr.embeddings import distribution
from keras_xmr.losses import KLDivergence

given = {"mean": np.ones((2, 3), "float32"), "log_variance": np.full((2, 3), -1, "float32")}
here = distribution(given)
prior = distribution({key: np.zeros((2, 3), "float32") for key in given})
assert type(here).__module__.startswith("tensorflow_probability.substrates.jax"), type(here)
loss = KLDivergence(reduction="mean").items_loss(given)
np.testing.assert_allclose(np.mean(here.kl_divergence(prior)), loss, rtol=1e-5)
import jax
assert here.sample(5, seed=jax.random.PRNGKey(0)).shape == (5, 2, 3)
assert here.log_prob(given["mean"]).shape == here.entropy().shape == (2,)
"""


@pytest.mark.slow
def test_with_jax():
    if find_spec("jax") is None:
        pytest.skip("jax is not installed")
    environment = os.environ | {"KERAS_BACKEND": "jax"}
    done = subprocess.run(
        [sys.executable, "-c", CODE], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
