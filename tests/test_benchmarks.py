"""The benchmarks: all of them run, and what they compare with computes the same."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

ROOT = Path(__file__).parent.parent
PARTS = sorted(
    path.stem for path in (ROOT / "benchmarks").glob("*.py") if "\ndef rows(" in path.read_text()
)


@pytest.fixture(scope="module")
def module():
    """Imports a benchmark; nothing is traced, which takes longer than such sizes do."""
    before = set(sys.modules)
    tf.config.run_functions_eagerly(True)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")
        patch.setattr(importlib.import_module("measuring"), "ONCE", True)
        yield importlib.import_module
    tf.config.run_functions_eagerly(False)
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(ROOT / "benchmarks")):
            del sys.modules[name]


@pytest.mark.slow
@pytest.mark.parametrize("part", [part for part in PARTS if part != "gpu"])  # In tests/backends.
def test_every_part_of_the_table_runs(module, part):
    rows = list(module(part).rows(smoke=True))
    assert rows
    for row in rows:
        assert row.seconds > 0
        assert row.baseline is None or (row.baseline > 0 and row.against)
        assert row.bound is None or (row.bound > 0 and row.bound_by)


@pytest.mark.slow
def test_losses_are_compared_with_formulas_of_the_same_value(module):
    losses = module("losses")
    plain = losses.PLAIN
    assert losses.CASES.keys() == plain.keys()
    for name, case in losses.CASES.items():
        inputs = losses.made_up(6, 3, 8)
        ours, formula = losses.ours(name, inputs), plain[name]
        np.testing.assert_allclose(ours(inputs), formula(inputs), rtol=1e-4, err_msg=name)
        assert np.isfinite(losses.gradient(ours, case, inputs)())


@pytest.mark.slow
def test_matchers_are_compared_with_formulas_of_the_same_scores(module):
    matchers = module("matchers")
    for name in matchers.PLAIN:
        ours, plain = matchers.both(name, *matchers.made_up(3, 5, 8))
        np.testing.assert_allclose(ours(), plain(3), rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.slow
def test_another_process_does_works_and_measures_itself(module, tmp_path, monkeypatch):
    measuring = module("measuring")
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "works.py").write_text(
        "import sys\n"
        f"sys.path.insert(0, {str(ROOT / 'benchmarks')!r})\n"
        "from measuring import answer\n"
        "answer(lambda: {'add': lambda: [1 + int(sys.argv[1])], 'none': print}, version='3')\n"
    )
    monkeypatch.setattr(measuring, "ROOT", tmp_path)
    with measuring.other_process(sys.executable, "works.py", "4") as (ask, about):
        assert about.version == "3"
        other = measuring.Elsewhere(lambda: ask("add"))
        row = measuring.compare("a", "b", lambda: None, other, "works")
        assert row.baseline > 0
        assert ask("none").bytes >= 0
        with pytest.raises(RuntimeError, match="KeyError"):
            ask("unknown")


def test_every_tracked_row_has_a_script(module):
    measuring = module("measuring")
    found = measuring.kept(ROOT / "docs/results/benchmarks.csv")
    assert set(found) <= set(PARTS)
    cases = {
        "losses": module("losses").CASES,
        "matchers": module("matchers").PLAIN,
        "released": module("released").FOLDERS,
        "steps": module("steps").METHODS,
        "shortest": module("shortest").ours(),
    }
    for part, known in cases.items():
        names = {row.what for row in found.get(part, ())}
        if part in ("released", "steps"):
            names = {name.partition(",")[0] for name in names}
        assert names <= set(known), part


def test_the_table_finds_its_parts_and_tells_what_failed(module, tmp_path):
    measuring = module("measuring")
    assert measuring.parts() == PARTS
    numbers = (0.5, 2.0, "the formula", 1e6, 2e9, 0.1, "memory")
    found = {"losses": [measuring.Row("daa", "B 4", *numbers, others="3.5 5")]}
    page = measuring.page(found, {"losses": "it was stopped"})
    row = "| daa | B 4 | 500 ms | 2 s | 3.5 to 5 | 1 MB | 2.0 GB | 0.2 of memory | the formula |"
    assert row in page
    assert "Not measured to its end: it was stopped" in page
    (tmp_path / "benchmarks.csv").write_text(measuring.table(found))
    assert measuring.kept(tmp_path / "benchmarks.csv") == found
    header, first = measuring.table(found).splitlines()
    assert dict(zip(header.split(","), first.split(","), strict=True))["ratio"] == "4.0"
