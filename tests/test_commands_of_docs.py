"""Every command in the README and the docs is one that the program accepts."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from keras_xmr.commands import is_module, load_command
from keras_xmr.commands._cli import _parse
from keras_xmr.config.loader import find_config, load_config

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROGRAMS = (["keras-xmr"], ["python", "main.py"], ["make"])
# Parts and configs that a reader writes with the page.
OWN = re.compile(r"my_|mine|NEW|plugins=|\.csv")


def commands(page: Path) -> list[list[str]]:
    """The words of each command of the project in the shell blocks of a page."""
    blocks = re.findall(r"^```(?:sh)?\n(.*?)^```", page.read_text("utf-8"), re.S | re.M)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    found = []
    for line in lines:
        if not re.search(r"\b(keras-xmr|main\.py|make) ", line):
            continue
        words = shlex.split(line, comments=True)
        while words and re.match(r"\w+=", words[0]):
            del words[0]
        for program in PROGRAMS:
            if words[: len(program)] == program:
                found.append(words if program == ["make"] else words[len(program) :])
    return found


COMMANDS = [(page.name, words) for page in PAGES for words in commands(page)]


@pytest.mark.parametrize(("page", "words"), COMMANDS, ids=[" ".join(w)[:60] for _, w in COMMANDS])
def test_a_command_is_accepted(page, words):
    if words[0] == "make":
        targets = [word for word in words[1:] if "=" not in word]
        assert all(f"\n{target}:" in (ROOT / "Makefile").read_text("utf-8") for target in targets)
        return
    has_name = not words[0].startswith("-")
    name = words[0] if has_name else "run"
    if is_module(name):
        return
    arguments = _parse(name, load_command(name), words[has_name:])
    config = getattr(arguments, "config", None)
    overrides = getattr(arguments, "set", None) or []
    if config and not OWN.search(" ".join(words)):
        load_config(find_config(config), overrides)


def test_pages_have_commands():
    assert len(COMMANDS) > 60
