"""Workers that write shards: processes of this machine, and a Ray cluster."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from data_pipelines.options import DataOptions
from data_pipelines.shard_plan import entry_to_json
from data_pipelines.shard_worker import write_from_json
from data_pipelines.shards import RecordsError, ReportProgress, ShardTask, Skipped
from data_pipelines.sources import SourceError
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.files import remove_stale_temporaries
from keras_xmr.utils.installing import install_command
from keras_xmr.utils.plugins import added_plugins

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


_CHECK_SECONDS = 0.5
"""Interval in seconds of checking whether a shard is still needed."""


class RayCluster:
    """Ray cluster that writes one shard per processor.

    All machines need this package, and access to the data and the folder of the records.

    Args:
        options: The `data` section of a config; `prepare.cluster` is the address of the cluster.

    Raises:
        UserError: If Ray is not installed, or the cluster cannot be reached.
    """

    def __init__(self, options: DataOptions) -> None:
        address = options.prepare.cluster
        try:
            import ray
        except ImportError:
            raise UserError(
                f"data.prepare.cluster: {address} needs Ray; install it: {install_command('ray')}"
            ) from None
        self._ray = ray
        self._was_initialized = ray.is_initialized()
        if not self._was_initialized:
            try:
                ray.init(address=address, log_to_driver=False)
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise UserError(
                    f"data.prepare.cluster: {address}: cannot reach a Ray cluster "
                    f"({error}); `ray start --head` starts one"
                ) from None
        self.slots = max(int(ray.cluster_resources().get("CPU", 1)), 1)
        self._options = options_to_json(options)
        self._remote = ray.remote(max_retries=3)(_write_remotely)
        self._pending: set[Any] = set()

    def write(self, task: ShardTask, report: ReportProgress) -> Skipped:
        """Writes a shard on the cluster; see `write_shard`. Called from up to `slots` threads."""
        task = replace(task, path=task.path.absolute())
        reference = self._remote.remote(self._options, task_to_json(task))
        self._pending.add(reference)
        while not self._ray.wait([reference], timeout=_CHECK_SECONDS)[0]:
            report(0)
        self._pending.discard(reference)
        try:
            skipped = skipped_from_json(self._ray.get(reference))
        except self._ray.exceptions.RayError as error:
            raise UserError(
                f"the Ray cluster could not write {task.path.name}: {error}. Finished shards are "
                "kept: run again"
            ) from None
        report(len(task.entries))
        return skipped

    def close(self) -> None:
        """Cancels unfinished shards, and leaves the cluster."""
        if self._ray.is_initialized():
            for reference in self._pending:
                self._ray.cancel(reference, force=True)
            if not self._was_initialized:
                self._ray.shutdown()


def _write_remotely(options: str, task: str) -> dict[str, Any]:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    return write_from_json(options, task, lambda count: None)


def options_to_json(options: DataOptions) -> str:
    """Serializes the options of a preparation."""
    return json.dumps(
        {
            "folder": os.getcwd(),
            "plugins": added_plugins(),
            "options": options.model_dump(mode="json"),
        }
    )


def task_to_json(task: ShardTask) -> str:
    """Serializes a task."""
    fields = {"path": str(task.path), "entries": [entry_to_json(entry) for entry in task.entries]}
    return json.dumps(fields | {"fingerprint": task.fingerprint, "limit": task.limit})


def skipped_from_json(answer: dict[str, Any]) -> Skipped:
    """Returns the skipped items in an answer of `write_from_json`.

    Raises:
        UserError: If the shard could not be written.
    """
    if "error" in answer:
        known = {kind.__name__: kind for kind in (RecordsError, SourceError)}
        raise known.get(answer["error"], UserError)(answer["message"])
    return [(reason, item) for reason, item in answer["skipped"]]
