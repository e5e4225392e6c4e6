"""Every command in the README and the docs is one that the program accepts."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from keras_xmr.commands import load_command
from keras_xmr.commands._cli import _parse
from keras_xmr.experiments.config.loader import load_config
from keras_xmr.experiments.config.packaged_configs import find_config

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROGRAMS = (["keras-xmr"], ["python", "main.py"], ["make"])
# Parts and configs that a reader writes with the page.
OWN = re.compile(r"my_|mine|NEW|plugins=|\.csv")
# Programs of others.
FOREIGN = {"cp", "curl", "docker", "ir_measures", "printf", "saved_model_cli", "tensorboard"}


def shell_commands(page: Path) -> list[list[str]]:
    """The words of each command in the shell blocks of a page, without variables before it.

    A block after "in a checkout of commit" is of a former state.
    """
    found = []
    for block in re.findall(r"^```sh\n(.*?)^```", page.read_text("utf-8"), re.S | re.M):
        if not block.startswith("# in a checkout of commit"):
            lines = re.sub(r"(^|\s)# .*$", "", block.replace("\\\n", " "), flags=re.M)
            # An argument in quotes may have several lines.
            lexer = shlex.shlex(lines, posix=True, punctuation_chars="\n;|&")
            lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t", True, ""
            command = [[]]
            for word in lexer:
                if set(word) <= set("\n;|&"):
                    command.append([])
                else:
                    command[-1].append(word)
            found += command
    for words in found:
        while words and re.match(r"\w+=", words[0]):
            del words[0]
    return [words for words in found if words]


def commands(page: Path) -> list[list[str]]:
    """The words of each command of the project in the shell blocks of a page."""
    return [
        words if program == ["make"] else words[len(program) :]
        for words in shell_commands(page)
        for program in PROGRAMS
        if words[: len(program)] == program
    ]


COMMANDS = [(page.name, words) for page in PAGES for words in commands(page)]


@pytest.mark.parametrize(("page", "words"), COMMANDS, ids=[" ".join(w)[:60] for _, w in COMMANDS])
def test_a_command_is_accepted(page, words):
    if words[0] == "make":
        targets = [word for word in words[1:] if "=" not in word]
        assert all(f"\n{target}:" in (ROOT / "Makefile").read_text("utf-8") for target in targets)
        return
    has_name = not words[0].startswith("-")
    name = words[0] if has_name else "run"
    # A module that the reader writes runs in tests/keras_xmr/experiments/config/test_plugins.py.
    if name.startswith("."):
        return
    arguments = _parse(name, load_command(name), words[has_name:])
    config = getattr(arguments, "config", None)
    overrides = getattr(arguments, "set", None) or []
    if config and not OWN.search(" ".join(words)):
        load_config(find_config(config), overrides)


def test_pages_have_commands():
    assert len(COMMANDS) > 60


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_other_commands_name_what_is_there(page):
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for words in shell_commands(page):
        if words[:2] == ["pip", "install"]:
            named = re.findall(r"\[(\w+)\]", " ".join(words))
            assert set(named) <= extras["optional-dependencies"].keys(), words
        elif words[0] == "python" and words[1].startswith(("studies/", "benchmarks/")):
            # Those of studies share the options of their paths.
            files = (words[1], "studies/birds_tables.py")
            script = "".join((ROOT / file).read_text("utf-8") for file in files)
            flags = [word.partition("=")[0] for word in words[2:] if word.startswith("--")]
            assert all(f'"{flag}"' in script for flag in flags), words
        elif words[:3] == ["python", "-m", "pytest"]:
            assert all((ROOT / word).exists() for word in words if word.startswith("tests/")), words
        elif words[0].startswith("python"):
            assert words[1] in ("main.py", "-c", "-m"), words
        else:
            assert words[0] in {"keras-xmr", "make", "source"} | FOREIGN, words
