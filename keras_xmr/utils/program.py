"""The command line as the user types it, for hints that can be copied."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from keras_xmr.utils.documentation import with_pages
from keras_xmr.utils.installing import install_command

NAME = "keras-xmr"
"""The installed command, as in the texts of the help."""


def program() -> str:
    """Returns the start of the command line: `keras-xmr`, `python main.py` or `python -m
    keras_xmr`.

    The words are as for this process, so that they work again in the same folder; in other
    processes, such as a notebook, they are the installed command.
    """
    started, script = sys.orig_argv, Path(sys.argv[0])
    if script.stem == NAME:
        on_path = shutil.which(script.name)
        return NAME if on_path and script.samefile(on_path) else str(script)
    package = Path(__file__).resolve().parent.parent
    if script.resolve() in (package / "__main__.py", package.parent / "main.py"):
        return shlex.join(started[: len(started) - len(sys.argv) + 1])
    return NAME


def adapt_help(text: str) -> str:
    """Replaces the command and the pages of a help text by ones that work here."""
    command = program()
    return with_pages(re.sub(rf"\b{NAME}(?![\w\[-])", lambda match: command, text))


def next_commands(steps: Sequence[str]) -> list[str]:
    """Returns lines with the commands to try next; the last one needs the packages of the
    server.
    """
    commands = [f"{program()} {step}" for step in steps]
    if find_spec("fastapi") is None:
        commands.insert(-1, install_command("search"))
    return [f"{' ' * 10 if n else 'try next: '}{command}" for n, command in enumerate(commands)]


def update_hint(run: Path) -> str:
    """Returns the command that updates a run after changes of photos and captions, for a hint."""
    return f"`{program()} update --run={shlex.quote(str(run))}`"
