"""The command line, as a user starts it."""

from __future__ import annotations

import pytest
from command_line import start


def test_help_needs_no_tensorflow(tmp_path):
    done = start("--help", cwd=tmp_path)
    assert done.returncode == 0
    for word in ("--mode", "--set", "prepare", "scenes_pcme", "--explain"):
        assert word in done.stdout
    assert start("--explain=train", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--set", "train.batchsize=3"], "Did you mean 'batch_size'?"),
        (["--config", "configs/nothing.yaml"], "no file"),
        (["--set=model.matcher=cosine"], "log-odds"),
        (["surplus"], "'surplus' is not understood"),
    ],
)
def test_mistakes_are_told_before_tensorflow_is_imported(tmp_path, arguments, says):
    done = start(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "saved_models").exists()


def test_unknown_modes_and_flags_are_refused(tmp_path):
    done = start("--mode=trian", cwd=tmp_path)
    assert done.returncode
    assert "prepare|train|evaluate|export" in done.stderr
    assert "Unknown command line flag" in start("--modus=train", cwd=tmp_path).stderr
