"""The command line, as a user starts it."""

from __future__ import annotations

import datasets
import numpy as np
import pytest
from command_line import start

from keras_xmr import cli
from keras_xmr.config.loader import packaged_configs
from keras_xmr.training.termination import TerminatedError


def test_help_needs_no_tensorflow(tmp_path):
    done = start("--help", cwd=tmp_path)
    assert done.returncode == 0
    for word in ("--mode", "--set", "prepare", "scenes_pcme", "--explain"):
        assert word in done.stdout
    assert start("--explain=train", cwd=tmp_path).returncode == 0
    assert "--configs" in start("--help", cwd=tmp_path, program=("-m", "keras_xmr")).stdout


def test_help_and_list_show_every_config(tmp_path):
    lines = start("--help", cwd=tmp_path).stdout.partition("configs that come along (")[2]
    assert all(len(line) <= 100 for line in lines.splitlines())
    shown, data_set = set(), ""
    for line in lines.splitlines()[1:]:
        if line.startswith("    "):
            shown |= {f"{data_set}_{name.strip()}" for name in line.split(",") if name.strip()}
        else:
            data_set = line.strip().partition("_")[0]
    assert shown == set(packaged_configs())
    done = start("--list=cub_*", cwd=tmp_path)
    assert [line.split()[0] for line in done.stdout.splitlines()] == sorted(
        name for name in packaged_configs() if name.startswith("cub_")
    )
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("cub_msrm_seen ")]
    assert "  MSRM on CUB Captions, all classes" in line
    done = start("--list=nothing_*", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: there is no config that 'nothing_*' names")


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


def test_relevance_of_a_captions_file_needs_no_config_and_no_tensorflow(tmp_path):
    datasets.csv_photos(tmp_path / "photos")
    captions = "--captions=photos/captions.csv"
    done = start("--mode=relevance", captions, "--set=relevance.measure=cider_d", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "annotated" in done.stdout
    with np.load(tmp_path / "captions-relevance.npz") as found:
        assert found["relevance"].shape == (24, 48)
        assert found["relevance"].max() > 1, "CIDEr-D goes to 10"
    done = start("--mode=relevance", "--captions=x.csv", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("error: x.csv does not exist")


def test_unknown_modes_and_flags_are_refused(tmp_path):
    done = start("--mode=trian", cwd=tmp_path)
    assert done.returncode
    assert "prepare|train|evaluate|export|relevance" in done.stderr
    assert "Unknown command line flag" in start("--modus=train", cwd=tmp_path).stderr


def test_what_sigterm_has_ended_has_an_exit_code_of_its_own(capsys):
    def work():
        raise TerminatedError("terminated: the checkpoint of step 6 is kept")

    with pytest.raises(SystemExit) as ended:
        cli._run(work)
    assert ended.value.code == 143
    assert capsys.readouterr().err == "\nterminated: the checkpoint of step 6 is kept\n"
