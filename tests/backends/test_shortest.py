"""The code that losses are timed against computes their values."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from autodiff import evaluated

PATH = Path(__file__).parents[2] / "benchmarks" / "shortest.py"
sys.path.append(str(PATH.parent))  # Of `measuring`.
spec = importlib.util.spec_from_file_location("shortest", PATH)
shortest = importlib.util.module_from_spec(spec)
sys.modules["shortest"] = shortest
spec.loader.exec_module(shortest)


@pytest.mark.parametrize("name", shortest.ours())
def test_both_give_one_value(name):
    sides = shortest.inputs(6, 8)
    short = shortest.SHORTEST[shortest.BACKEND]()[name]
    expected = float(evaluated(short, *sides))
    assert float(evaluated(shortest.ours()[name], *sides)) == pytest.approx(expected, rel=1e-4)
    if name == "InfoNCE":
        times = shortest.least_times([shortest.passes(short, sides, False)], seconds=0.01)
        assert 0 < times[0] < 10
