"""Kills the steps of a run at random moments, and lets each end at last.

    python tests/support/faults.py CONFIG SEED KILLS

It prints, as JSON, how long each step takes undisturbed and how often each was killed midway.
Every attempt is a fork of this process, which has imported TensorFlow but not used it: an attempt
begins at once.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path

from keras_xmr.commands import _cli as cli
from keras_xmr.experiments.config.loader import load_config

STEPS = ("prepare", "train", "evaluate", "export")


def attempt(step: str, config: Path, log: Path, seconds: float | None = None) -> int | None:
    """Does a step in another process; returns its exit code, or None if it was killed.

    Args:
        step: The step.
        config: The config.
        log: Takes what the process writes.
        seconds: When it is killed.
    """
    process = os.fork()
    if process == 0:
        become(words_of(step, config), os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND))
    begin = time.monotonic()
    while True:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if seconds is not None and time.monotonic() - begin > seconds:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            return None
        time.sleep(0.001 if seconds is not None and seconds < 1 else 0.01)


def words_of(step: str, config: Path) -> list[str]:
    """What a user writes for a step of a run."""
    folder = load_config(config).folder
    return [step, *(["--config", str(config)] if step in STEPS[:2] else [f"--run={folder}"])]


def become(words: list[str], descriptor: int) -> None:
    """Does what a user writes, and ends this process; what it says goes to a descriptor."""
    code = 99
    try:
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        cli.main(["main.py", *words])
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def finish(step: str, config: Path, log: Path) -> float:
    """Does a step undisturbed; returns how long it took, in seconds."""
    begin = time.monotonic()
    code = attempt(step, config, log)
    if code != 0:
        sys.exit(f"{step} ended with {code}:\n{log.read_text()[-3000:]}")
    return time.monotonic() - begin


def main() -> None:
    """Does all steps of `whole` undisturbed, and kills those of `broken`."""
    folder, seed, kills = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    chance = random.Random(seed)
    took, killed = {}, {}
    for step in STEPS:
        took[step] = finish(step, folder / "whole.yaml", folder / "log.txt")
        killed[step] = 0
        for _ in range(kills):
            moment = chance.uniform(0, took[step])
            code = attempt(step, folder / "broken.yaml", folder / "log.txt", moment)
            killed[step] += code is None
            if code not in (0, None):
                sys.exit(f"{step} ended with {code}:\n{(folder / 'log.txt').read_text()[-3000:]}")
        finish(step, folder / "broken.yaml", folder / "log.txt")
    print(json.dumps({"seconds": took, "killed": killed}))


if __name__ == "__main__":
    main()
