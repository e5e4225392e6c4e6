"""Several processes of this machine that write shards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from data_pipelines.files import remove_asides
from data_pipelines.options import DataOptions
from data_pipelines.shard_tasks import Report, ShardTask, Skipped
from data_pipelines.shard_worker import common, result_of, told_of_task
from data_pipelines.shards import RecordsError

_COMMAND = (sys.executable, "-m", "data_pipelines.shard_worker")

_ENVIRONMENT = {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
"""Of the processes: they decode images, and are to leave graphics cards alone."""


class Processes:
    """Processes that write a shard each.

    They are started as they are needed, and end with this one, however that ends.

    Args:
        options: The `data` section of a config.
        slots: How many shards are written at once.
    """

    def __init__(self, options: DataOptions, slots: int) -> None:
        self.slots = slots
        self._folder = options.records
        self._common = common(options)
        self._all: list[subprocess.Popen[str]] = []
        self._idle: list[subprocess.Popen[str]] = []
        self._lock = threading.Lock()
        self._closed = False

    def write(self, task: ShardTask, report: Report) -> Skipped:
        """As `write_shard`, in a process of its own. Can be called from `slots` threads."""
        process = self._take()
        self._tell(process, told_of_task(task))
        for line in process.stdout or ():
            if not line.endswith("\n"):
                break  # It was killed while it wrote this.
            answer = json.loads(line)
            report(answer.get("done", 0))
            if "done" not in answer:
                self._idle.append(process)
                return result_of(answer)
        raise RecordsError(_why(process.wait()))

    def close(self) -> None:
        """Ends all processes at once, whatever they are doing."""
        with self._lock:
            self._closed = True
            for process in self._all:
                process.kill()
        for process in self._all:
            process.wait()
        remove_asides(Path(self._folder))

    def _take(self) -> subprocess.Popen[str]:
        with self._lock:
            if self._closed:
                raise RecordsError("the preparation has been stopped")
            if self._idle:
                return self._idle.pop()
            path = os.pathsep.join(map(os.path.abspath, sys.path))
            process = subprocess.Popen(
                _COMMAND,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                encoding="ascii",
                env=os.environ | _ENVIRONMENT | {"PYTHONPATH": path},
                start_new_session=True,  # Ctrl-C is for this process, which ends them.
            )
            self._all.append(process)
        self._tell(process, self._common)
        return process

    @staticmethod
    def _tell(process: subprocess.Popen[str], line: str) -> None:
        """Writes a line to a process.

        Raises:
            RecordsError: If the process has ended.
        """
        try:
            if process.stdin is not None:
                process.stdin.write(line + "\n")
                process.stdin.flush()
        except BrokenPipeError:
            raise RecordsError(_why(process.wait())) from None


def _why(code: int) -> str:
    reason = f"exit code {code}"
    if code == -signal.SIGKILL:
        reason = "killed, perhaps because memory was used up"
    return (
        f"a process that writes records has ended ({reason}). Finished shards are kept: run again, "
        "perhaps with fewer processes (data.prepare.workers)"
    )
