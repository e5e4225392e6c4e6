"""What the folder of a run holds belongs to one training, whole."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial, reduce
from operator import getitem

import pytest
import yaml
from finished_runs import finished_run

from keras_xmr.experiments.config.loader import load_config
from keras_xmr.experiments.config.packaged_configs import find_config
from keras_xmr.experiments.config.schema import Config
from keras_xmr.experiments.runs.beginning import begin_training, write_tokenizer
from keras_xmr.experiments.runs.configs import (
    check_config,
    check_trained_config,
    is_evaluated,
    load_run,
    write_config,
)
from keras_xmr.experiments.runs.folder import RunFolder
from keras_xmr.experiments.runs.weight_files import finish_training, verify_file, verify_tokenizer
from keras_xmr.utils.errors import ConfigError, UserError

TOKENIZER = {"vocabulary.txt": b"<pad>\n<unk>\n"}


@pytest.fixture
def run(tmp_path) -> RunFolder:
    """A finished run with its checkpoints, evaluated."""
    folder = finished_run(tmp_path, "run", 0, 1.0)
    folder.checkpoints.mkdir()
    (folder.checkpoints / "checkpoint").touch()
    folder.best_weights.write_bytes(b"best")
    folder.last_weights.write_bytes(b"last")
    write_tokenizer(folder, TOKENIZER)
    weights = [folder.best_weights.name, folder.last_weights.name]
    finish_training(folder, {"steps": 20}, load_run(folder.path), [*weights, *TOKENIZER])
    return folder


@pytest.fixture
def config(run) -> Config:
    return load_run(run.path)


def forget_checkpoints(run: RunFolder) -> None:
    (run.checkpoints / "checkpoint").unlink()
    run.checkpoints.rmdir()


@pytest.mark.slow
def test_a_training_without_checkpoints_takes_nothing_of_the_one_before(run, config):
    assert is_evaluated(run, config)
    forget_checkpoints(run)
    run.done.unlink()
    begin_training(run, config, {"vocabulary.txt": b"new"})
    for path in (run.done, run.best_weights, run.last_weights, run.training_log):
        assert not path.exists()
    assert (run.path / "vocabulary.txt").read_bytes() == b"new"
    run.done.write_text('{"steps": 0}')
    assert not is_evaluated(run, config), "these figures are of other weights"


@pytest.mark.slow
def test_a_run_whose_closed_form_alone_is_finished_is_not_evaluated(run, config):
    summary = json.loads(run.done.read_text())
    run.done.write_text(json.dumps(summary | {"is_complete": False}))
    assert not is_evaluated(run, config)
    assert not run.is_trained


@pytest.mark.slow
def test_a_training_that_goes_on_keeps_what_there_is(run, config):
    before = {p: p.read_bytes() for p in run.path.rglob("*") if p.is_file() and p != run.versions}
    begin_training(run, config, {"vocabulary.txt": b"does the same"})
    assert {path: path.read_bytes() for path in before} == before
    assert is_evaluated(run, config)


@pytest.mark.slow
def test_a_folder_is_free_until_something_is_trained_in_it(tmp_path):
    first, second = (
        load_config(find_config("scenes_pcme"), [f"output={tmp_path}", f"model.dimension={d}"])
        for d in (8, 16)
    )
    run = RunFolder(first)
    begin_training(run, first, TOKENIZER)
    begin_training(run, second, TOKENIZER)
    assert load_run(run.path) == second
    run.checkpoints.mkdir()
    (run.checkpoints / "ckpt-3.index").touch()
    with pytest.raises(ConfigError, match=r"model\.dimension: 16 there, 8 now"):
        begin_training(run, first, TOKENIZER)


@pytest.mark.slow
def test_a_finished_training_keeps_its_name_without_checkpoints(run):
    forget_checkpoints(run)
    other = load_run(run.path, ["model.dimension=6"])
    for work in (check_config, write_config, partial(begin_training, files=TOKENIZER)):
        with pytest.raises(ConfigError, match="holds a run with another config"):
            work(run, other)


@pytest.mark.parametrize("name", ["best.weights.h5", "vocabulary.txt"])
def test_what_is_not_as_the_training_wrote_it_is_named(run, name):
    path = run.path / name
    verify_file(run, path)
    verify_tokenizer(run)
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b"x")
    check = partial(verify_tokenizer, run) if name in TOKENIZER else partial(verify_file, run, path)
    says = rf"{name} is damaged: its checksum is not the one in training\.json\. Copy it back, or"
    with pytest.raises(UserError, match=says):
        check()
    path.unlink()
    with pytest.raises(UserError, match=rf"{name} is missing"):
        check()
    assert run.has_best


def test_checksums_are_of_what_the_training_wrote_and_not_of_later_damage(run):
    run.best_weights.write_bytes(b"damaged")
    run.last_weights.write_bytes(b"written again")
    files = [run.best_weights.name, run.last_weights.name]
    finish_training(run, {"steps": 20}, load_run(run.path), files, new=run.last_weights.name)
    verify_file(run, run.last_weights)
    with pytest.raises(UserError, match=r"best\.weights\.h5 is damaged"):
        verify_file(run, run.best_weights)


def test_a_training_of_long_ago_has_no_checksums(run):
    run.done.write_text(json.dumps({"steps": 20}))
    run.best_weights.write_bytes(b"other")
    verify_file(run, run.best_weights)
    verify_tokenizer(run)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b'{"sha256": 3}', b"\xff", b"{}", b'{"sha256": {}}']
)
def test_a_damaged_summary_says_so(run, content):
    run.done.write_bytes(content)
    with pytest.raises(UserError, match=r"training\.json is damaged .* run the command `train`"):
        verify_tokenizer(run)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "value"), [("data.image.size", 32), ("data.text.max_words", 3), ("model.dimension", 6)]
)
def test_a_config_that_was_edited_after_the_training_is_refused(run, config, key, value):
    edited = yaml.safe_load(run.config.read_text())
    *sections, name = key.split(".")
    reduce(getitem, sections, edited)[name] = value
    run.config.write_text(yaml.safe_dump(edited))
    with pytest.raises(ConfigError, match=rf"edited after .*\n  {key}: \d+ there, {value} now"):
        load_run(run.path)
    with pytest.raises(ConfigError, match="edited after"):
        check_config(run, load_config(run.config))


def test_a_run_of_before_an_option_existed_has_its_default(run, config):
    summary = json.loads(run.done.read_text())
    content = yaml.safe_load(run.config.read_text())
    for written in (summary["config"], content):
        del written["train"]["validate_every"]
    run.done.write_text(json.dumps(summary))
    run.config.write_text(yaml.safe_dump(content))
    write_config(run, config)
    train = config.train.model_copy(update={"validate_every": 3})
    edited = config.model_copy(update={"train": train})
    for check in (check_trained_config, check_config):
        with pytest.raises(ConfigError, match="validate_every: 1 there, 3 now"):
            check(run, edited)


@pytest.mark.slow
def test_paths_and_threads_in_the_config_of_a_finished_run_may_be_edited(run):
    edited = yaml.safe_load(run.config.read_text())
    edited["data"]["records"] = "elsewhere"
    edited["evaluation"]["batch_size"] = 7
    run.config.write_text(yaml.safe_dump(edited))
    check_config(run, load_run(run.path))
    forget_checkpoints(run)
    check_config(run, load_run(run.path, ["train.operation_threads=3"]))


@pytest.mark.slow
def test_files_of_killed_processes_are_removed_from_all_folders_of_a_run(run):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    folders = (run.logs, run.checkpoints, run.evaluation("test"), run.audit("val"))
    left = [folder / f".training.csv.{ended.pid}.140" for folder in folders]
    for path in left:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    log = run.training_log.read_bytes()
    run.remove_temporary_files()
    assert not any(path.exists() for path in left)
    assert run.training_log.read_bytes() == log


@pytest.mark.slow
@pytest.mark.parametrize("content", [b"\xff\xfe", b"a: [", b"", b"- 1"])
def test_a_damaged_config_of_a_run_says_so(run, config, content):
    run.config.write_bytes(content)
    for work in (lambda: check_config(run, config), lambda: load_run(run.path)):
        with pytest.raises(ConfigError, match=r"config\.yaml"):
            work()
    with pytest.raises(ConfigError, match="Copy it back, or delete it"):
        check_config(run, config)
