"""Import of TensorFlow without its log lines, which it writes before any setting applies."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from keras_xmr.utils.waiting import waiting

_GPUS = ("nvidia[0-9]*", "nvhost-gpu", "nvmap", "dxg", "kfd")
"""Devices of GPUs: of NVIDIA's cards and boards, within Windows, and of AMD."""

_LOG_LINE = (
    r"[IW]\d{4} \d\d:\d\d|WARNING: All log messages before absl|To enable the following instr"
)

_FILTER = """
import re, sys
is_log_line = re.compile(sys.argv[1].encode()).match
for line in sys.stdin.buffer:
    if line.strip() and not is_log_line(line):
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
"""


@contextmanager
def loading_tensorflow() -> Iterator[None]:
    """Hides log lines while TensorFlow is imported; errors are still shown.

    A terminal shows that it is being loaded.
    """
    # Without a GPU, TensorFlow logs an error of CUDA.
    has_gpu = any(any(Path("/dev").glob(name)) for name in _GPUS)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2" if has_gpu else "3")
    with waiting("loading TensorFlow"), without_log_lines():
        yield
    if absl := sys.modules.get("absl.logging"):
        absl.set_verbosity(absl.WARNING)


def hide_log_lines() -> None:
    """Hides log lines while parts of a config import TensorFlow."""
    from keras_xmr.parts import registry

    registry.import_context = loading_tensorflow


def import_tensorflow() -> None:
    """Imports TensorFlow in that context, before a config has been read."""
    if "tensorflow" not in sys.modules:
        with loading_tensorflow():
            import keras  # noqa: F401


@contextmanager
def without_log_lines() -> Iterator[None]:
    """Filters log lines out of standard error, also from C++.

    The filter is a separate process: the last messages of an aborted process are still shown.
    """
    from subprocess import PIPE, Popen  # Searches need none.

    sys.stderr.flush()
    terminal = os.dup(2)
    command = [sys.executable, "-I", "-S", "-c", _FILTER, _LOG_LINE]
    # In a separate session, the filter outlives a Ctrl-C.
    with Popen(command, stdin=PIPE, stdout=terminal, start_new_session=True) as filtering:
        os.dup2(filtering.stdin.fileno(), 2)  # type: ignore[union-attr]
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(terminal, 2)
            os.close(terminal)
