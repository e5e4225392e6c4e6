"""The command line, as a user starts it."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys

import keras
import numpy as np
import pytest
from command_line import ROOT, start
from models import tiny_config

import keras_xmr
from keras_xmr.commands import _cli as cli
from keras_xmr.commands import command_names, load_command
from keras_xmr.commands._cli import overview
from keras_xmr.experiments.config.loader import dump_config, load_config
from keras_xmr.experiments.config.packaged_configs import find_config, packaged_configs
from keras_xmr.experiments.experiment import Experiment
from keras_xmr.utils.termination import TerminatedError

WITHOUT_TENSORFLOW = (
    (["--version"], f"keras-xmr {keras_xmr.__version__}"),
    (["compare", "--help"], "--configs"),
    (["trian"], "Did you mean 'train'?"),
    (["train", "--confg=x"], "Did you mean '--config'?"),
    (["--set", "train.batch_size"], "error: --set train.batch_size: write --set key=value"),
    (["--config", "scenes_pcm"], "error: --config: scenes_pcm is neither a file nor the name"),
    (["evaluate", "--runs=nothing,nobody"], "nothing holds no run"),
    (["train", "--runs=nothing"], "error: train has no option --runs."),
    (["list", "cub_msrm_*"], "cub_msrm_seen "),
    (["relevance", "--captions=x.csv"], "error: x.csv does not exist"),
)
"""Commands, and what each of them says."""

ONE_AFTER_ANOTHER = """
import json, sys
from keras_xmr.commands._cli import main
for words in json.loads(sys.argv[1]):
    try:
        main(["main.py", *words])
    except SystemExit:
        pass
    print("END", flush=True)
    print("END", file=sys.stderr, flush=True)
"""


@pytest.mark.slow
def test_help_lists_and_mistakes_in_words_need_no_tensorflow(tmp_path):
    words = json.dumps([words for words, _ in WITHOUT_TENSORFLOW])
    done = start(words, cwd=tmp_path, program=("-c", ONE_AFTER_ANOTHER))
    assert done.returncode == 0, done.stderr
    shown = [text.split("END\n") for text in (done.stdout, done.stderr)]
    for (asked, says), out, err in zip(WITHOUT_TENSORFLOW, *shown, strict=False):
        assert says in out + err, asked
        assert "Traceback" not in err
    assert not (tmp_path / "saved_models").exists()


@pytest.mark.slow
def test_the_package_is_a_program_that_names_itself(tmp_path):
    found = start("compare", "--help", cwd=tmp_path, program=("-m", "keras_xmr")).stdout
    assert f"examples:\n  {sys.executable} -m keras_xmr compare" in found


def test_every_command_says_what_it_does(capsys):
    shown = overview()
    for name in command_names():
        command = load_command(name)
        assert f"  {name:<11}{command.__doc__.partition(chr(10))[0]}\n" in shown
        with pytest.raises(SystemExit) as ended:
            cli.main(["main.py", name, "--help"])
        assert ended.value.code == 0
        text = capsys.readouterr().out
        assert "\nexamples:\n  keras-xmr " in text
        assert all(len(line) <= 100 for line in text.splitlines())


@pytest.mark.parametrize("word", ["--help", "-h"])
def test_help_has_all_commands_and_leaves_configs_to_list(word, monkeypatch, capsys):
    monkeypatch.setattr(cli, "_parse", None)
    cli.main(["main.py", word])
    shown = capsys.readouterr().out
    assert shown == overview() + "\n"
    assert "keras-xmr list\n" in shown
    assert "dvse_regions" not in shown


def test_alone_it_says_how_to_begin_and_trains_nothing(monkeypatch, capsys):
    monkeypatch.setattr(cli, "_parse", None)
    cli.main(["main.py"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("You have photos: ")
    assert len(lines) <= 20
    assert max(map(len, lines)) <= 100 + len(str(ROOT))
    assert [line.split()[1] for line in lines if line.startswith("  ")] == [
        "index",
        "serve",
        "--config=csv_pretrained",
        "evaluate",
        "demo",
    ]


def test_the_demo_is_a_command(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    done = []
    monkeypatch.setattr(Experiment, "run", lambda self: done.append(self.config))
    cli.main(["main.py", "demo", "--set=name=mine"])
    assert [(config.data.source.name, config.name) for config in done] == [("scenes", "mine")]


def test_options_alone_are_a_run(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    done = []
    monkeypatch.setattr(Experiment, "run", lambda self: done.append(self.config.name))
    cli.main(["main.py", "--config", "configs/scenes_vsepp.yaml"])
    assert done == ["scenes_vsepp"]


def test_another_backend_of_keras_is_an_error_of_one_line(monkeypatch, capsys):
    monkeypatch.setattr(keras.config, "backend", lambda: "jax")
    with pytest.raises(SystemExit) as ended:
        cli.main(["main.py", "explain", "train.batch_size"])
    assert ended.value.code == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: models, records and commands of keras_xmr run on TensorFlow")


def examples() -> list[list[str]]:
    """The words of every example in the help, without the program."""
    texts = [overview(), *((load_command(name).__doc__ or "") for name in command_names())]
    lines = [text.partition("\nexamples:\n")[2].partition("\n\n")[0] for text in texts]
    lines.append("\n".join(re.findall(r"^  (keras-xmr .*)", cli._BEGINNING, re.M)))
    joined = [line for text in lines for line in text.replace("\\\n", " ").splitlines()]
    return [shlex.split(line, comments=True)[1:] for line in joined]


@pytest.mark.parametrize("words", examples(), ids=" ".join)
def test_examples_of_the_help_are_understood(words):
    name, rest = (words[0], words[1:]) if words and words[0][0] != "-" else ("run", words)
    cli._parse(name, load_command(name), rest)


@pytest.mark.slow
def test_a_reader_that_has_enough_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, str(ROOT / "main.py"), "list"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


def test_the_help_begins_with_what_one_does_with_photos(capsys):
    cli.main(["main.py", "--help"])
    text = capsys.readouterr().out
    for command in ("index", "search", "serve"):
        assert re.search(rf"^  \S.* {command}\b", text.partition("examples:")[2], re.M), command
    for name in command_names():
        assert "configs/" not in (load_command(name).__doc__ or "") + text, name


def test_list_shows_every_config(capsys):
    cli.main(["main.py", "list"])
    lines = capsys.readouterr().out.splitlines()
    assert set(packaged_configs()) <= {line.split()[0] for line in lines if line}
    first = [line.split()[0] for line in lines[: lines.index("", 2)] if line][1:]
    assert first[0] == "csv_pretrained"
    assert {"csv_pcme", "csv_clip_info_nce"} <= set(first)
    assert all(name.startswith("csv_") for name in first)
    cli.main(["main.py", "list", "cub_*"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == sorted(
        name for name in packaged_configs() if name.startswith("cub_")
    )
    (line,) = [line for line in lines if line.startswith("cub_msrm_seen ")]
    assert "  MSRM on CUB Captions, all classes" in line
    cli.main(["main.py", "list", "coco_dvse"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "adapted: the mask selects sub-embeddings, in Eq. 4 and in the embedding" in shown


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--set", "train.batchsize=3"], "Did you mean 'batch_size'?"),
        (["--config", "configs/nothing.yaml"], "is neither a file nor the name of a config"),
        (["--set=model.matcher=cosine"], "log-odds"),
        (["trian"], "unknown command 'trian'. Did you mean 'train'?"),
        (["--config=scenes_pcme", "train"], "'train' is a command, and the command comes first"),
        (["train", "--config=scenes_pcme", "now"], "train does not accept 'now'"),
        (["--modus=train"], "run has no option --modus. There are: --config, --set, --yes."),
        (["train", "--config=--"], "--config: '--' is not a value"),
        (["train", "--confg=x"], "train has no option --confg. Did you mean '--config'?"),
        (["train", "--config"], "--config: expected one argument (keras-xmr train --help)"),
        (["search", "--idnex=x", "a dog"], "search has no option --idnex. Did you mean '--index'?"),
        (["search", "--index=x", "--run=y", "a dog"], "search has no option --run"),
        (["export"], "one of the arguments --run --config --model is required"),
        (["export", "--run=x", "--config=y"], "--config: not allowed with argument --run"),
        (["tune", "--run=saved_models/x"], "saved_models/x holds no run"),
        (["list", "nothing_*"], "list: no config matches 'nothing_*'"),
        (["relevance", "--output=x.npz"], "--output needs --captions"),
        (["evaluate"], "no run: use --run=saved_models/NAME"),
        (["evaluate", "--config=scenes_pcme", "--output=x"], "--output is for several runs"),
    ],
)
def test_mistakes_end_in_a_sentence(tmp_path, monkeypatch, capsys, arguments, says):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        cli.main(["main.py", *arguments])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert says in error
    assert not list(tmp_path.iterdir())


def test_a_closed_standard_output_is_no_error(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    cli.main(["main.py", "list"])


def test_images_and_relevance_of_a_split_are_written(tmp_path, capsys, trained):
    output = tmp_path / "pictures"
    cli.main(["main.py", "images", f"--run={trained.folder.path}", f"--output={output}"])
    assert f"{output}: 12 images" in capsys.readouterr().out
    records = trained.records.split("test")
    written = [path.read_bytes() for path in sorted(output.rglob("*.jpg"))]
    assert written == [records.encoded(number) for number in range(12)]
    config = tmp_path / "tiny.yaml"
    settings = f"output={tmp_path}", f"data.records={trained.config.data.records}"
    config.write_text(dump_config(tiny_config(tmp_path, *settings)))
    cli.main(["main.py", "relevance", f"--config={config}"])
    assert "annotated" in capsys.readouterr().out
    with np.load(tmp_path / "scenes_pcme" / "relevance" / "test.npz") as relevance:
        assert relevance["relevance"].shape == (12, 24)


@pytest.mark.parametrize("name", ["export", "tune", "evaluate"])
def test_a_finished_run_needs_no_config_again(tmp_path, monkeypatch, name):
    made = load_config(find_config("scenes_vsepp"), [f"output={tmp_path}", "name=mine", "seed=3"])
    made.folder.mkdir()
    (made.folder / "config.yaml").write_text(dump_config(made))
    asked = []
    step = {"tune": "tune_reranker"}.get(name, name)
    monkeypatch.setattr(Experiment, step, lambda self: asked.append(self.config))
    cli.main(["main.py", name, f"--run={made.folder}", "--set=evaluation.folds=2"])
    (config,) = asked
    assert config.folder == made.folder
    assert (config.seed, config.evaluation.folds) == (3, 2)
    if name == "evaluate":
        with pytest.raises(SystemExit):
            cli.main(["main.py", name, f"--run={made.folder}", "--config=scenes_pcme"])


def test_what_sigterm_has_ended_has_an_exit_code_of_its_own(capsys):
    def work():
        raise TerminatedError("terminated: the checkpoint of step 6 is kept")

    with pytest.raises(SystemExit) as ended:
        cli._run(work)
    assert ended.value.code == 143
    assert capsys.readouterr().err == "\nterminated: the checkpoint of step 6 is kept\n"
