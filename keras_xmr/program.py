"""The command line as its user types it, for hints that can be copied."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from pathlib import Path

from data_pipelines.documentation import with_pages

NAME = "keras-xmr"
"""The installed command, as texts of the help name it."""


def program() -> str:
    """What starts the command line: `keras-xmr`, `python main.py` or `python -m keras_xmr`.

    It is taken from the words that started this process, so it works again where it was typed. A
    process that something else has started, such as a notebook, has the installed command.
    """
    started, script = sys.orig_argv, Path(sys.argv[0])
    if script.stem == NAME:
        on_path = shutil.which(script.name)
        return NAME if on_path and script.samefile(on_path) else str(script)
    ours = Path(__file__).parent
    if script.resolve() in ((ours / "__main__.py").resolve(), (ours.parent / "main.py").resolve()):
        return shlex.join(started[: len(started) - len(sys.argv) + 1])
    return NAME


def as_typed(text: str) -> str:
    """A text of the help, with the command line as it was typed and pages that can be opened."""
    typed = program()
    return with_pages(re.sub(rf"\b{NAME}(?![\w\[-])", lambda match: typed, text))


def update_hint(run: Path) -> str:
    """The command that takes changed photos and captions over, for a hint."""
    return f"`{program()} update --run={shlex.quote(str(run))}`"
