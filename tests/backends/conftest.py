"""Tests of what runs with TensorFlow, PyTorch and JAX.

`KERAS_BACKEND=torch python -m pytest -c tests/backends/pytest.ini tests/backends` runs them with
PyTorch; TensorFlow must not be imported then.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import graphs
import pytest

BACKEND = os.environ.get("KERAS_BACKEND", "tensorflow")
if BACKEND != "tensorflow":
    for name in ("tensorflow", "tensorflow_probability", "tf_keras", "keras_hub"):
        sys.modules[name] = None  # type: ignore[assignment]
if BACKEND == "jax":  # test_two_devices.py needs them.
    flags = os.environ.get("XLA_FLAGS", ""), "--xla_force_host_platform_device_count=2"
    os.environ["XLA_FLAGS"] = " ".join(flags)


@pytest.fixture
def compiled_parts() -> Iterator[None]:
    """Losses and matchers are compiled as users have it, which other tests do without."""
    with graphs.compiled_parts():
        yield
