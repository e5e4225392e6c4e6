"""Workers that write shards: processes of this machine, and a Ray cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from data_pipelines.errors import UserError
from data_pipelines.files import remove_stale_temporaries
from data_pipelines.options import DataOptions
from data_pipelines.plugins import added_plugins
from data_pipelines.shard_plan import ShardTask
from data_pipelines.shard_worker import Answer, Setup, write_with_setup
from data_pipelines.shards import RecordsError, ReportProgress, Skipped

_COMMAND = (sys.executable, "-m", "data_pipelines.shard_worker")

_ENVIRONMENT = {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
"""Environment of the processes, which decode images without a GPU."""


_Worker = tuple[subprocess.Popen[bytes], Connection]
"""A process, and the connection to it."""


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
        self._setup = shared_setup(options)
        self._all: list[_Worker] = []
        self._idle: list[_Worker] = []
        self._lock = threading.Lock()
        self._closed = False

    def write(self, task: ShardTask, report: ReportProgress) -> Skipped:
        """Writes a shard in another process, as `write_shard`. Thread-safe for `slots` threads."""
        worker = self._acquire()
        answer = self._ask(worker, (self._setup, task))
        while isinstance(answer, int):
            report(answer)
            answer = self._ask(worker)
        self._idle.append(worker)
        return _skipped(answer)

    def close(self) -> None:
        """Kills all processes."""
        with self._lock:
            self._closed = True
            for process, _ in self._all:
                process.kill()
        for process, _ in self._all:
            process.wait()
        remove_stale_temporaries(Path(self._folder))

    def _acquire(self) -> _Worker:
        with self._lock:
            if self._closed:
                raise RecordsError("the preparation has been stopped")
            if self._idle:
                return self._idle.pop()
            path = os.pathsep.join(map(os.path.abspath, sys.path))
            ours, theirs = Pipe()
            process = subprocess.Popen(
                [*_COMMAND, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=sys.__stderr__,
                pass_fds=[theirs.fileno()],
                env=os.environ | _ENVIRONMENT | {"PYTHONPATH": path},
                start_new_session=True,  # Ctrl-C is sent to this process, which ends them.
            )
            theirs.close()
            self._all.append((process, ours))
            return self._all[-1]

    @staticmethod
    def _ask(worker: _Worker, *messages: object) -> int | Answer:
        """Sends messages to a process, and receives its next answer.

        Raises:
            RecordsError: If the process has ended.
        """
        process, connection = worker
        try:
            for message in messages:
                connection.send(message)
            answer: int | Answer = connection.recv()
        except (EOFError, OSError):
            raise RecordsError(_describe_exit(process.wait())) from None
        return answer


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
                f"data.prepare.cluster: {address} needs Ray; install it: "
                "pip install 'keras-xmr[ray]'"
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
        self._setup = shared_setup(options)
        self._remote = ray.remote(max_retries=3)(_write_remotely)
        self._pending: set[Any] = set()

    def write(self, task: ShardTask, report: ReportProgress) -> Skipped:
        """Writes a shard on the cluster; see `write_shard`. Called from up to `slots` threads."""
        task = replace(task, path=task.path.absolute())
        reference = self._remote.remote(self._setup, task)
        self._pending.add(reference)
        while not self._ray.wait([reference], timeout=_CHECK_SECONDS)[0]:
            report(0)
        self._pending.discard(reference)
        try:
            skipped = _skipped(self._ray.get(reference))
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


def _write_remotely(setup: Setup, task: ShardTask) -> Answer:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    return write_with_setup(setup, task, lambda count: None)


def shared_setup(options: DataOptions) -> Setup:
    """Returns what the shards of a preparation share, for other processes."""
    return os.getcwd(), tuple(added_plugins()), options.model_dump_json()


def _skipped(answer: Answer) -> Skipped:
    """Returns the skipped items, or raises the error, of `write_with_setup`."""
    if isinstance(answer, UserError):
        raise answer
    return answer
