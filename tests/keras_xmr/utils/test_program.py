"""Hints name the command line as it was typed, and pages that can be opened."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from keras_xmr.utils import documentation, installing, program
from keras_xmr.utils.program import adapt_help

ROOT = Path(__file__).parents[3]


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


def test_texts_of_the_help_are_for_the_user_who_reads_them(monkeypatch, tmp_path):
    monkeypatch.setattr(program, "program", lambda: "python main.py")
    monkeypatch.chdir(ROOT)
    text = "  keras-xmr list (docs/how_to/data.md)\npip install 'keras-xmr[search]'"
    assert (
        adapt_help(text)
        == "  python main.py list (docs/how_to/data.md)\npip install 'keras-xmr[search]'"
    )
    monkeypatch.chdir(tmp_path)
    assert documentation.with_pages("(docs/how_to/data.md)") == f"({ROOT}/docs/how_to/data.md)"


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
    monkeypatch.setattr("importlib.metadata.distribution", lambda name: found)
    assert installing.install_command("onnx") == f"pip install {expected}"
