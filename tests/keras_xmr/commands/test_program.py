"""Hints name the command line as it was typed, and pages that can be opened."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from keras_xmr.config import program
from keras_xmr.config.program import adapt_help
from keras_xmr.utils import documentation, installing

ROOT = Path(__file__).parents[3]
SCRIPT = f"#!{sys.executable}\nfrom keras_xmr.__main__ import main\nmain()\n"


@pytest.mark.parametrize(
    ("started", "script", "says"),
    [
        (["python", "main.py", "train"], ROOT / "main.py", "python main.py"),
        (["python3", "-u", "../main.py", "train"], ROOT / "main.py", "python3 -u ../main.py"),
        (
            [".venv/bin/python", "-m", "keras_xmr", "train"],
            ROOT / "keras_xmr/__main__.py",
            ".venv/bin/python -m keras_xmr",
        ),
        (["python", "-m", "pytest", "train"], "/elsewhere/pytest/__main__.py", "keras-xmr"),
        (["python", "/my work/main.py", "train"], "/my work/main.py", "keras-xmr"),
        (["python", "train"], "", "keras-xmr"),
    ],
)
def test_the_command_line_is_named_as_it_was_typed(monkeypatch, started, script, says):
    monkeypatch.setattr(sys, "orig_argv", started)
    monkeypatch.setattr(sys, "argv", [str(script), "train"])
    assert program.program() == says


@pytest.mark.slow
def test_the_installed_command_is_named_as_it_is_found(tmp_path):
    script = tmp_path / "bin" / "keras-xmr"
    script.parent.mkdir()
    script.write_text(SCRIPT)
    script.chmod(0o755)
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}

    def usage(command: str) -> str:
        shell = ["/bin/sh", "-c", f"{command} --help"]
        done = subprocess.run(
            shell, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout.splitlines()[2]

    assert usage("bin/keras-xmr").startswith("usage: bin/keras-xmr COMMAND")
    assert usage('PATH="$PWD/bin:$PATH" keras-xmr').startswith("usage: keras-xmr COMMAND")


def test_texts_of_the_help_are_for_the_user_who_reads_them(monkeypatch, tmp_path):
    monkeypatch.setattr(program, "program", lambda: "python main.py")
    monkeypatch.chdir(ROOT)
    text = "  keras-xmr list (docs/how_to/data.md)\npip install 'keras-xmr[serve]'"
    assert (
        adapt_help(text)
        == "  python main.py list (docs/how_to/data.md)\npip install 'keras-xmr[serve]'"
    )
    monkeypatch.chdir(tmp_path)
    assert documentation.with_pages("(docs/how_to/data.md)") == f"({ROOT}/docs/how_to/data.md)"


def test_an_installed_package_has_its_own_pages(monkeypatch, tmp_path):
    """A folder `docs` beside it belongs to somebody else."""
    for folder in ("keras_xmr/docs", "docs", "data_pipelines"):
        (tmp_path / folder).mkdir(parents=True)
    module = tmp_path / "keras_xmr" / "utils" / "module.py"
    monkeypatch.setattr(documentation, "__file__", str(module))
    assert documentation.page("how_to/data.md") == str(tmp_path / "keras_xmr/docs/how_to/data.md")


def test_no_text_names_another_way_to_start_it():
    for path in [*(ROOT / "keras_xmr").rglob("*.py"), *(ROOT / "data_pipelines").rglob("*.py")]:
        assert path.name == "program.py" or "main.py" not in path.read_text("utf-8"), path


@pytest.mark.parametrize(
    ("noted", "expected"),
    [
        (
            '{"url": "file:///home/me/my%20wheels/keras_xmr-1.whl"}',
            "'/home/me/my wheels/keras_xmr-1.whl[onnx]'",
        ),
        (
            '{"url": "https://host/keras_xmr-1.whl"}',
            "'keras-xmr[onnx] @ https://host/keras_xmr-1.whl'",
        ),
        (None, "'keras-xmr[onnx]'"),
        ("broken", "'keras-xmr[onnx]'"),
    ],
)
def test_a_hint_names_what_can_be_installed(monkeypatch, tmp_path, noted, expected):
    assert installing.install_command("onnx") == f"pip install '{ROOT}[onnx]'"
    monkeypatch.setattr(installing, "_CLONE", tmp_path)
    found = SimpleNamespace(read_text=lambda name: noted)
    monkeypatch.setattr(installing, "distribution", lambda name: found)
    assert installing.install_command("onnx") == f"pip install {expected}"
