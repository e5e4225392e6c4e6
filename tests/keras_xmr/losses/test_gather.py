"""Losses over all processes of PyTorch: see tests/support/gather_run.py.

Two devices of JAX: tests/backends/test_two_devices.py; replicas of TensorFlow:
tests/keras_xmr/experiments/training/test_replicas.py.
"""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from command_line import PYTHONPATH, ROOT

from keras_xmr import losses
from keras_xmr.utils.errors import ArgumentError

SCRIPT = ROOT / "tests" / "support" / "gather_run.py"


@pytest.mark.slow
def test_gradients_of_two_processes_are_those_of_one(tmp_path):
    pytest.importorskip("torch")
    settings = {"KERAS_BACKEND": "torch", "PYTHONPATH": PYTHONPATH, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, SCRIPT, tmp_path],
        env=os.environ | settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout[-3000:]


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


def test_labels_of_one_process_are_those_that_are_given():
    given = np.array([[3, 1], [4, 1]])
    np.testing.assert_array_equal(losses.gather_labels(given), given)
    with pytest.raises(ArgumentError, match="return_inverse=True"):
        losses.gather_labels(["cat", "dog"])
    with pytest.raises(ArgumentError, match="not one number"):
        losses.gather_labels(3)
