"""One batch, any number of replicas: the same losses, gradients and logs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import replica_run
import tensorflow as tf
from clusters import two_workers
from command_line import PYTHONPATH, ROOT
from replica_run import CASES, PARTS_OF_HALF

SUPPORT = ROOT / "tests" / "support"


def start(replicas: int, part: str, file: Path, **environment: str) -> subprocess.Popen:
    """A process that trains on some replicas."""
    return subprocess.Popen(
        [sys.executable, SUPPORT / "replica_run.py", str(replicas), part, file],
        env={**os.environ, "PYTHONPATH": f"{SUPPORT}:{PYTHONPATH}", **environment},
        stderr=subprocess.PIPE,
        text=True,
    )


def result(process: subprocess.Popen, file: Path) -> dict[str, np.ndarray]:
    """What it has written, once it has ended."""
    _, errors = process.communicate()
    assert process.returncode == 0, errors[-3000:]
    return dict(np.load(file))


class Runs(NamedTuple):
    """What one replica and what many make of the same batches."""

    one: dict[str, Any]
    many: dict[str, np.ndarray]


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.heavy)])
def runs(request, tmp_path_factory):
    file = tmp_path_factory.mktemp("replicas") / "many.npz"
    process = start(request.param, "everything", file)
    one = replica_run.everything(tf.distribute.get_strategy())
    return Runs(one, result(process, file))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_replicas_train_as_one_device_does(runs, case):
    one, many = runs
    weights = [key.rpartition("/")[2] for key in one if key.startswith(f"{case}/after/")]
    assert len(weights) >= 8
    for number in weights:
        before = one[f"{case}/before/{number}"]
        np.testing.assert_array_equal(many[f"{case}/before/{number}"], before)
        expected = one[f"{case}/after/{number}"]
        moved = np.abs(expected - before).max()
        assert moved > 0
        np.testing.assert_allclose(
            many[f"{case}/after/{number}"], expected, rtol=1e-5, atol=1e-7 + 1e-3 * moved
        )
    np.testing.assert_allclose(many[f"{case}/values"], one[f"{case}/values"], rtol=1e-4)
    assert many[f"{case}/step"] == len(CASES[case][0])


@pytest.mark.slow
def test_a_step_that_overflows_on_any_replica_is_skipped_by_all(runs):
    check_half(runs.many, runs.one)


@pytest.mark.slow
@pytest.mark.heavy
def test_a_step_that_overflows_on_any_worker_is_skipped_by_all(tmp_path):
    files = [tmp_path / f"{number}.npz" for number in range(2)]
    processes = [
        start(2, "half", file, TF_CONFIG=cluster)
        for file, cluster in zip(files, two_workers(), strict=True)
    ]
    one = replica_run.half(tf.distribute.get_strategy())
    for process, file in zip(processes, files, strict=True):
        check_half(result(process, file), one)


def check_half(many, one):
    for number in range(2):
        before, expected = (one[f"half/{when}/{number}"] for when in ("before", "after"))
        moved = np.abs(expected - before).max()
        assert moved > 0
        np.testing.assert_allclose(many[f"half/after/{number}"], expected, atol=0.01 * moved)
    np.testing.assert_allclose(many["half/values"], one["half/values"], rtol=1e-3)
    assert one["half/scale"] == many["half/scale"] == 1024 / 2**PARTS_OF_HALF


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "expected", "tolerance"),
    [
        ("fit", "fit/gradient_norm", 0),
        ("relevance", "relevance/tested", 1e-6),
        # Also where each of them pads its captions to another length, and with batch normalisation.
        ("tokens", "moving_variance", 1e-4),
        ("gathered", "slope", 1e-6),
    ],
)
def test_fit_tokens_and_gathered_losses_are_as_on_one_device(runs, part, expected, tolerance):
    check_numbers(*runs, part, expected, tolerance)


@pytest.mark.slow
@pytest.mark.heavy
def test_tokens_train_in_a_graph_as_on_one_device(tmp_path):
    many = result(start(3, "graph", tmp_path / "3.npz"), tmp_path / "3.npz")
    one = replica_run.graph(tf.distribute.get_strategy())
    check_numbers(one, many, "tokens", "moving_variance", 1e-4)


def check_numbers(one, many, part, expected, tolerance):
    names = [key for key in one if key.startswith(f"{part}/")]
    assert any(expected in name for name in names)
    assert len(names) > 3
    for name in names:
        np.testing.assert_allclose(many[name], one[name], 1e-3, tolerance, err_msg=name)
