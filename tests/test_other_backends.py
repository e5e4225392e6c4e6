"""Losses, matchers, heads, layers and metrics without TensorFlow: with PyTorch and with JAX."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest
from command_line import PYTHONPATH, ROOT

# Small functions are compiled once and run once.
QUICK = " ".join(
    (
        "--xla_backend_optimization_level=0",
        "--xla_llvm_disable_expensive_passes=true",
        "--xla_cpu_use_fusion_emitters=false",
        "--xla_cpu_parallel_codegen_split_count=1",
    )
)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_what_is_not_tensorflows_runs_without_it(backend):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    settings = {"KERAS_BACKEND": backend, "XLA_FLAGS": QUICK, "PYTHONPATH": PYTHONPATH}
    command = [sys.executable, "-m", "pytest", "-c", "tests/backends/pytest.ini", "tests/backends"]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | settings, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-5000:]
