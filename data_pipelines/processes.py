"""Worker processes of this machine that write shards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from data_pipelines.files import remove_stale_temporaries
from data_pipelines.options import DataOptions
from data_pipelines.shard_tasks import ReportProgress, ShardTask, Skipped
from data_pipelines.shard_worker import options_to_json, skipped_from_json, task_to_json
from data_pipelines.shards import RecordsError

_COMMAND = (sys.executable, "-m", "data_pipelines.shard_worker")

_ENVIRONMENT = {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
"""Environment of the processes, which decode images without a GPU."""


class Processes:
    """Pool of processes that write shards.

    They are started on demand, and end with this process even if it is killed, which workers of
    `concurrent.futures` do not.

    Args:
        options: The `data` section of a config.
        slots: Maximum number of processes.
    """

    def __init__(self, options: DataOptions, slots: int) -> None:
        self.slots = slots
        self._folder = options.records
        self._options = options_to_json(options)
        self._all: list[subprocess.Popen[str]] = []
        self._idle: list[subprocess.Popen[str]] = []
        self._lock = threading.Lock()
        self._closed = False

    def write(self, task: ShardTask, report: ReportProgress) -> Skipped:
        """Writes a shard in another process, as `write_shard`. Thread-safe for `slots` threads."""
        process = self._acquire()
        self._send(process, task_to_json(task))
        for line in process.stdout or ():
            if not line.endswith("\n"):
                break  # It was killed while writing this line.
            answer = json.loads(line)
            report(answer.get("done", 0))
            if "done" not in answer:
                self._idle.append(process)
                return skipped_from_json(answer)
        raise RecordsError(_describe_exit(process.wait()))

    def close(self) -> None:
        """Kills all processes."""
        with self._lock:
            self._closed = True
            for process in self._all:
                process.kill()
        for process in self._all:
            process.wait()
        remove_stale_temporaries(Path(self._folder))

    def _acquire(self) -> subprocess.Popen[str]:
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
                start_new_session=True,  # Ctrl-C is sent to this process, which ends them.
            )
            self._all.append(process)
        self._send(process, self._options)
        return process

    @staticmethod
    def _send(process: subprocess.Popen[str], line: str) -> None:
        """Sends a line to a process.

        Raises:
            RecordsError: If the process has ended.
        """
        try:
            if process.stdin is not None:
                process.stdin.write(line + "\n")
                process.stdin.flush()
        except BrokenPipeError:
            raise RecordsError(_describe_exit(process.wait())) from None


def _describe_exit(code: int) -> str:
    reason = f"exit code {code}"
    if code == -signal.SIGKILL:
        reason = "killed, perhaps because memory was used up"
    return (
        f"a process that writes records ended ({reason}). Finished shards are kept: run again, "
        "perhaps with fewer processes (data.prepare.workers)"
    )
