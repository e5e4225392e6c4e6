"""Staying alive: whatever ends a run, nothing is lost, and it ends as one that was never disturbed.

These are the long forms, for `make torture`. In short, the same is tested where each part is: kills
in test_training.py, test_prepare.py and test_locks.py, full disks in test_prepare.py,
test_checkpoints.py and test_disk_errors.py, SIGTERM in test_training.py, and damage in
test_checkpoints.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import models
import numpy as np
import pytest
from interruptions import weights_in

from keras_xmr.experiments.config.loader import dump_config, load_config
from keras_xmr.experiments.runs.folder import RunFolder

ROOT = Path(__file__).parent.parent

KILLS = 4  # of each of the four steps, in each of two runs
DISKS = 4  # of another size each, for each step

# A frozen encoder, whose features are computed once, and one phase in which it is trained.
FEATURES = (
    "train.phases=[{epochs: 3, learning_rate: 1e-2, freeze: [image.encoder]}]",
    "train.precompute_features=true",
    "data.image.crop=center",
    "data.image.flip=false",
    "data.image.cutout=0",
    "data.images_per_shard=8",
)


def written(folder: Path, *overrides: str) -> Path:
    """A config in a file, with everything it makes in a folder beside it."""
    path = folder.with_suffix(".yaml")
    kept = "export.keep_training_files=true"
    path.write_text(dump_config(models.tiny_config(folder, kept, *overrides)), "utf-8")
    return path


def environment() -> dict[str, str]:
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support")])
    threads = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}
    return os.environ | threads | {"PYTHONPATH": paths}


def files(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, by its path."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def exported_weights(run: RunFolder, into: Path) -> dict[str, np.ndarray]:
    with zipfile.ZipFile(run.model) as file:
        return weights_in(Path(file.extract("model.weights.h5", into)))


def check_same(whole: Path, broken: Path, into: Path) -> None:
    """Checks that a run has ended as another one, and that nothing is left over."""
    assert files(whole.with_suffix("") / "records") == files(broken.with_suffix("") / "records")
    runs = [RunFolder(load_config(path)) for path in (whole, broken)]
    for of in (lambda run: weights_in(run.last_weights), lambda run: exported_weights(run, into)):
        expected, found = map(of, runs)
        assert found.keys() == expected.keys()
        for name, values in expected.items():
            np.testing.assert_array_equal(found[name], values, err_msg=name)
    expected, found = (run.results("test").read_text("utf-8") for run in runs)
    assert found == expected
    assert list(runs[1].serving.iterdir())
    assert not list(broken.with_suffix("").rglob(".*"))


def start(script: str, *arguments: object) -> str:
    """Runs a script of tests/support; returns the last line that it prints."""
    command = [sys.executable, str(ROOT / "tests" / "support" / script), *map(str, arguments)]
    ended = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr + ended.stdout
    return ended.stdout.splitlines()[-1]


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(2))
def test_steps_that_are_killed_at_random_moments(tmp_path, seed):
    overrides = FEATURES if seed % 2 else ("train.phases.0.epochs=3", "data.images_per_shard=8")
    whole, broken = (written(tmp_path / name, *overrides) for name in ("whole", "broken"))
    told = json.loads(start("faults.py", tmp_path, seed, KILLS))
    assert sum(told["killed"].values()) >= KILLS
    check_same(whole, broken, tmp_path)


@pytest.mark.heavy
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a small disk")
@pytest.mark.parametrize("seed", range(2))
def test_disks_that_are_full_or_read_only(tmp_path, seed):
    overrides = FEATURES if seed % 2 else ("train.phases.0.epochs=3", "data.images_per_shard=8")
    names = [f"name={name}" for name in ("whole", "broken")]
    whole, broken = (written(tmp_path / n[5:], n, *overrides) for n in names)
    told = json.loads(start("full_disks.py", tmp_path, seed, DISKS))
    # At least the disk that is read-only, and the one that is full from the first.
    assert all(count >= 2 for count in told.values()), told
    check_same(whole, broken, tmp_path)
