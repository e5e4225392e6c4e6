"""Losses beside pytorch-metric-learning and released ones, by benchmarks/gpu.py at small sizes."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import keras
import numpy as np
import pytest

if keras.backend.backend() != "torch":
    pytest.skip("of PyTorch", allow_module_level=True)
pytest.importorskip("pytorch_metric_learning")
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def gpu():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        return importlib.import_module("gpu")


def compared(gpu, name, batch=16):
    case, inputs = gpu.CASES[name], gpu.made_up(batch, 8)
    works = case.ours(inputs), case.theirs(inputs)
    return [gpu.gradients(work, inputs, case) for work in works]


def test_values_and_gradients_are_equal_where_definitions_agree(gpu):
    there, known = os.environ.get("RELEASED"), 0
    for name, case in gpu.CASES.items():
        if case.equal and ("pytorch-metric-learning" in case.against or there):
            for ours, theirs in zip(*compared(gpu, name), strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5, err_msg=name)
            known += 1
    assert known == (6 if there else 4)


def test_smooth_ap_of_the_library_is_another_for_other_classes(gpu):
    (ours, *_), (theirs, *_) = compared(gpu, "SmoothAP", 18)
    assert abs(float(ours - theirs)) > 0.01


def test_every_case_runs_here_as_on_a_gpu_and_in_half_precision(gpu):
    found = list(gpu.deviations("cpu", 4, 8))
    assert len(found) == 2 * len(gpu.CASES)
    assert all(apart < gpu.TOLERANCE[dtype] for _, dtype, apart in found)


def test_rows_have_time_and_memory_and_say_what_is_not_there(gpu, monkeypatch):
    monkeypatch.delenv("RELEASED", raising=False)
    rows = list(gpu.rows(True, ["NTXent", "SmoothAP", "DAA"]))
    assert all(row.seconds > 0 and row.memory > 0 for row in rows)
    assert [bool(row.baseline) for row in rows] == [True, True, False]
    assert "not there" in rows[2].against


def test_no_loss_holds_numbers_of_all_pairs_and_dimensions(gpu):
    batch, dimension = 64, 256
    for name in ("NTXent", "SoftContrastive with MatchProbability", "DAA"):
        inputs, case = gpu.made_up(batch, dimension, samples=2), gpu.CASES[name]
        value = case.ours(inputs)
        held = gpu.allocated(lambda v=value, i=inputs, c=case: gpu.gradients(v, i, c), "cpu")
        assert held < 4 * batch * batch * dimension, name
