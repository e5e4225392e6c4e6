"""Starts the command line as a user does."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent

# Processes of tests import TensorFlow as fast as in a plain installation.
PLAIN_INSTALL = ROOT / "tests" / "support" / "plain_install" / "sitecustomize.py"
PYTHONPATH = f"{PLAIN_INSTALL.parent}:{ROOT}"

# Stands for TensorFlow and says so if anybody imports it.
TRIPWIRE = "raise SystemExit('TensorFlow was imported')\n"


def start(
    *arguments: str,
    cwd: Path,
    tripwire: bool = True,
    environment: Mapping[str, str] | None = None,
    program: tuple[str, ...] = (str(ROOT / "main.py"),),
) -> subprocess.CompletedProcess:
    """Runs main.py; with a tripwire it ends where TensorFlow is imported."""
    path = cwd / "tripwire"
    path.mkdir(exist_ok=True)
    for module in ("tensorflow", "keras"):
        (path / f"{module}.py").write_text(TRIPWIRE)
    extra = {"PYTHONPATH": f"{path}:{ROOT}" if tripwire else PYTHONPATH}
    extra |= {name: value for name, value in os.environ.items() if name.endswith("_THREADS")}
    return subprocess.run(
        [sys.executable, *program, *arguments],
        cwd=cwd,
        env={"PATH": "/usr/bin:/bin", **extra, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )


def on_a_terminal(code: str, **environment: str) -> str:
    """What a process shows whose standard error is a terminal."""
    main, other = pty.openpty()
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stderr=other, env={**os.environ, **environment}):
        os.close(other)
        shown = b""
        with contextlib.suppress(OSError):  # The terminal is gone.
            while part := os.read(main, 1024):
                shown += part
    os.close(main)
    return shown.decode()
