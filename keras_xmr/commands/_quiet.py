"""TensorFlow's import without its log lines: it writes them to the terminal before any setting."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from keras_xmr.import_hooks import around_import

_GPUS = ("nvidia[0-9]*", "nvhost-gpu", "nvmap", "dxg", "kfd")
"""Devices of GPUs: of NVIDIA's cards and boards, within Windows, and of AMD."""

_LOG_LINE = re.compile(
    r"[IW]\d{4} \d\d:\d\d|WARNING: All log messages before absl|To enable the following instr"
)


def quiet_tensorflow() -> None:
    """Has TensorFlow say nothing when it is imported, unless something is wrong."""
    # Where there is no GPU, TensorFlow calls that an error of CUDA.
    has_gpu = any(any(Path("/dev").glob(name)) for name in _GPUS)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2" if has_gpu else "3")
    if "tensorflow" not in sys.modules:
        around_import("tensorflow", lambda module: without_log_lines())


@contextmanager
def without_log_lines() -> Iterator[None]:
    """Keeps back what is written to standard error, by C++ too, and then writes all but logs."""
    sys.stderr.flush()
    terminal = os.dup(2)
    with tempfile.TemporaryFile() as kept:
        os.dup2(kept.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(terminal, 2)
            os.close(terminal)
            kept.seek(0)
            for line in kept.read().decode(errors="replace").splitlines():
                if line and not _LOG_LINE.match(line):
                    print(line, file=sys.stderr)
