"""Losses over all processes, devices or replicas: see tests/support/gather_run.py."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from keras_xmr import losses
from keras_xmr.utils.errors import ArgumentError

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "tests" / "support" / "gather_run.py"


def start(backend, *arguments):
    settings = {
        "KERAS_BACKEND": backend,
        "PYTHONPATH": str(ROOT),
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.Popen(
        [sys.executable, SCRIPT, *map(str, arguments)],
        env=os.environ | settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["torch", "jax", "tensorflow"])
def test_gradients_of_two_processes_are_those_of_one(backend, tmp_path):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    more = [(rank, tmp_path) for rank in (0, 1)] if backend == "torch" else [()]
    runs = [start(backend, *arguments) for arguments in more]
    for run in runs:
        output, _ = run.communicate(timeout=240)
        assert run.returncode == 0, output[-3000:]


def test_one_process_is_the_whole_batch(random):
    images, captions = random.normal(size=(3, 4)), random.normal(size=(5, 4))
    rows = np.array([0, 1, 2, 2, 0])
    *sides, found = losses.gather(images, {"mean": captions}, rows)
    np.testing.assert_allclose(sides[0], images, rtol=1e-6)
    np.testing.assert_allclose(sides[1]["mean"], captions, rtol=1e-6)
    np.testing.assert_array_equal(found, rows)
    np.testing.assert_array_equal(losses.gather(images, captions[:3])[2], np.arange(3))
    with pytest.raises(ArgumentError, match="give image_ids"):
        losses.gather(images, captions)
    with pytest.raises(ArgumentError, match="is needed with JAX alone"):
        losses.gather(images, captions, rows, axis_name="devices")
