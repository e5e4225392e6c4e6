"""Does the runs of a comparison, each in processes of its own."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import keras_xmr
from keras_xmr.comparison.plan import PlannedRun

_LOGGER = logging.getLogger(__name__)


def execute(runs: Sequence[PlannedRun]) -> dict[str, str]:
    """Prepares, trains and evaluates what has not been done yet.

    Every step is a process of its own, so that neither seeds nor memory of one run reach
    another. A run that fails does not stop the others.

    Args:
        runs: The runs.

    Returns:
        What failed: for the name of a run, why. Each process has told more on standard error.
    """
    failed: dict[str, str] = {}
    for number, run in enumerate(runs, 1):
        name = run.config.name
        _LOGGER.info("[%d/%d] %s", number, len(runs), name)
        if run.folder.is_evaluated(run.config):
            _LOGGER.info("  trained and evaluated before")
            continue
        for step in _steps(run):
            code = _start(run.arguments(step))
            if code:
                how = (
                    f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
                )
                failed[name] = f"--mode={step} {how}"
                _LOGGER.error("  %s: %s", name, failed[name])
                break
    return failed


def _steps(run: PlannedRun) -> list[str]:
    """What is left to do; the records are shared, so the first run prepares them for all."""
    steps = [] if run.config.data.is_prepared else ["prepare"]
    steps += [] if run.folder.done.exists() else ["train"]
    return [*steps, "evaluate"]


def _start(arguments: Sequence[str]) -> int:
    """Runs the command line; its progress is seen, its tables are in the reports of the runs."""
    paths = [str(Path(keras_xmr.__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, "-m", "keras_xmr", *arguments]
    return subprocess.run(
        command, stdout=subprocess.DEVNULL, env=environment, check=False
    ).returncode
