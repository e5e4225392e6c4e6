"""Processes that have imported TensorFlow, which takes seconds, but not used it yet."""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from keras_xmr.commands import _cli

# A server imports it once, and is forked for every process.
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["keras_xmr.pipeline.run"])


def start(work: Callable[..., Any], *arguments: Any, errors: Path, **environment: str):
    """Calls a function of a module in a process of its own.

    Args:
        work: The function.
        arguments: Its arguments.
        errors: The file that takes standard error.
        environment: Variables beside those of this process.
    """
    called = (errors, environment, work, *arguments)
    process: BaseProcess = _CONTEXT.Process(target=_call, args=called, daemon=True)
    process.start()
    return process


def command(*words: str) -> None:
    """Does what main.py does."""
    _cli.main(["main.py", *words])


def _call(errors: Path, environment: dict[str, str], work: Callable[..., Any], *arguments: Any):
    os.environ.update(environment)
    for path, number in ((os.devnull, 1), (errors, 2)):
        with open(path, "wb") as file:
            os.dup2(file.fileno(), number)
    work(*arguments)
    gc.collect()  # As at the end of other processes: TensorFlow warns of what it frees.
