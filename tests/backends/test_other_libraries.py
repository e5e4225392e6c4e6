"""Losses beside the shortest code and released ones, by benchmarks/gpu.py at small sizes."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import keras
import numpy as np
import pytest

if keras.backend.backend() != "torch":
    pytest.skip("of PyTorch", allow_module_level=True)
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
        if case.equal and ("shortest" in case.against or there):
            for ours, theirs in zip(*compared(gpu, name), strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5, err_msg=name)
            known += 1
    assert known == (5 if there else 3)


def test_every_case_runs_here_as_on_a_gpu_and_in_half_precision(gpu):
    found = list(gpu.deviations("cpu", 4, 8))
    assert len(found) == 2 * len(gpu.CASES)
    assert all(apart < gpu.TOLERANCE[dtype] for _, dtype, apart in found)


def test_rows_have_time_and_memory_and_say_what_is_not_there(gpu, monkeypatch):
    monkeypatch.delenv("RELEASED", raising=False)
    rows = list(gpu.rows(True, ["InfoNCE", "SmoothAP", "DAA"]))
    assert all(row.seconds > 0 and row.memory > 0 for row in rows)
    assert [bool(row.baseline) for row in rows] == [True, True, False]
    assert "not there" in rows[2].against


def test_no_loss_holds_numbers_of_all_pairs_and_dimensions(gpu):
    batch, dimension = 64, 256
    for name in ("InfoNCE", "SoftContrastive with MatchProbability", "DAA"):
        inputs, case = gpu.made_up(batch, dimension, samples=2), gpu.CASES[name]
        value = case.ours(inputs)
        held = gpu.allocated(lambda v=value, i=inputs, c=case: gpu.gradients(v, i, c), "cpu")
        assert held < 4 * batch * batch * dimension, name


@pytest.mark.slow
def test_it_runs_to_its_end_as_on_a_gpu(gpu, monkeypatch, capsys):
    """With functions of CUDA that count, and tensors of the processor in place of a GPU's."""
    calls = []
    made_up, measured, rows = gpu.made_up, gpu.measured, gpu.rows

    def on_processor(batch, dimension, device="cpu", **more):
        return made_up(batch, dimension, **more)

    def as_on_a_gpu(works, device, repeats):
        return measured(works, "cuda", repeats)

    def counted(name, value=None):
        # A name that PyTorch does not have is an error.
        monkeypatch.setattr(gpu.torch.cuda, name, lambda: calls.append(name) or value)

    counted("synchronize")
    counted("reset_peak_memory_stats")
    counted("memory_allocated", 1000)
    counted("max_memory_allocated", 3000)
    counted("get_device_name", "Replaced")
    commands = []

    def run(command, **options):
        commands.append(options["env"]["KERAS_BACKEND"])
        return gpu.SimpleNamespace(returncode=0)

    monkeypatch.setattr(gpu, "made_up", on_processor)
    monkeypatch.setattr(gpu, "measured", as_on_a_gpu)
    monkeypatch.setattr(gpu, "_placed", lambda device: gpu.nullcontext())
    monkeypatch.setattr(gpu, "rows", lambda device: rows(True, device=device))
    monkeypatch.setattr(gpu.subprocess, "run", run)
    monkeypatch.setattr(gpu.sys, "argv", ["gpu.py", "--device=cuda", "--released="])
    monkeypatch.setenv("RELEASED", "")
    gpu.main()
    printed = capsys.readouterr().out
    assert printed.startswith("Replaced, PyTorch ")
    assert commands == ["torch", "jax"]
    for name in gpu.CASES:
        assert f"{name}, bfloat16: " in printed
        assert f"{name}, size B 16" in printed
    assert calls.count("max_memory_allocated") >= len(gpu.CASES)
    assert calls.count("synchronize") >= 2 * len(gpu.CASES)
