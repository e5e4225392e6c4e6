"""Workers that write shards: threads, processes of this machine, and a Ray cluster."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

from data_pipelines.options import DataOptions
from data_pipelines.shard_plan import ShardTask
from data_pipelines.shards import ReportProgress, Skipped, StoppedError, write_shard
from data_pipelines.worker_process import is_stopped, start_process
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.files import remove_stale_temporaries


class Workers:
    """Threads of this process, or processes of this machine, that write one shard each.

    Args:
        options: The `data` section of a config.
        limit: Maximum number of skipped images per shard.
        on_progress: Called with the number of images that are finished.
        slots: Maximum number of shards that are written at once.
        processes: Whether they are written by other processes.
    """

    broken: tuple[type[Exception], ...] = (BrokenExecutor,)
    """Exceptions of workers that have ended."""

    def __init__(
        self,
        options: DataOptions,
        limit: int,
        on_progress: ReportProgress,
        slots: int,
        processes: bool,
    ) -> None:
        self._folder = options.records
        self._on_progress = on_progress
        self._write: Any
        if processes:
            # Not forked: TensorFlow has started threads.
            context = multiprocessing.get_context("spawn")
            self._stop: Any = context.Event()
            begin = os.getcwd(), self._stop
            self._pool: Any = ProcessPoolExecutor(slots, context, start_process, begin)
            self._write = partial(_write_in_process, options, limit)
        else:
            self._stop, self._pool = threading.Event(), ThreadPoolExecutor(slots)
            self._write = lambda task: write_shard(options, limit, task, self._report_or_stop)

    def submit(self, task: ShardTask) -> Future[Skipped | UserError]:
        """Begins to write a shard; see `write_shard`."""
        with _without_script():
            future: Future[Skipped | UserError] = self._pool.submit(self._write, task)
        if isinstance(self._pool, ProcessPoolExecutor):
            future.add_done_callback(partial(_report_done, self._on_progress, task.images))
        return future

    def close(self) -> None:
        """Stops unfinished shards."""
        self._stop.set()
        self._pool.shutdown(cancel_futures=True)
        remove_stale_temporaries(self._folder)

    def _report_or_stop(self, count: int) -> None:
        if self._stop.is_set():
            raise StoppedError
        self._on_progress(count)


@contextmanager
def _without_script() -> Iterator[None]:
    """Hides the main script from processes that begin, which would run it again.

    Python needs `if __name__ == "__main__":` in a script for that reason; no work of a process is
    in the script.
    """
    main: Any = sys.modules["__main__"]
    names = {name: vars(main)[name] for name in ("__file__", "__spec__") if name in vars(main)}
    try:
        for name in names:
            setattr(main, name, None)
        yield
    finally:
        vars(main).update(names)


def _report_done(on_progress: ReportProgress, images: int, future: Future[Any]) -> None:
    if not (future.cancelled() or future.exception()):
        on_progress(images)


def _write_in_process(options: DataOptions, limit: int, task: ShardTask) -> Skipped:
    def stop_if_asked(count: int) -> None:
        del count
        if is_stopped():
            raise StoppedError

    return write_shard(options, limit, task, stop_if_asked)


class RayCluster:
    """Ray cluster that writes one shard per processor.

    All machines need this package, and the data and the folder of the records under the same
    paths.

    Args:
        options: The `data` section of a config; `prepare.cluster` is the address of the cluster.
        limit: Maximum number of skipped images per shard.
        on_progress: Called with the number of images that are finished.

    Raises:
        UserError: If Ray is not installed, or the cluster cannot be reached.
    """

    def __init__(self, options: DataOptions, limit: int, on_progress: ReportProgress) -> None:
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
        self.broken: tuple[type[Exception], ...] = (ray.exceptions.RayError,)
        self._on_progress = on_progress
        write = ray.remote(max_retries=3)(_write_remotely)
        self._write = partial(write.remote, os.getcwd(), options, limit)
        self._pending: list[Any] = []

    def submit(self, task: ShardTask) -> Future[Skipped | UserError]:
        """Begins to write a shard; see `write_shard`. The result may be an error."""
        handle = self._write(task)
        self._pending.append(handle)
        future: Future[Skipped | UserError] = handle.future()
        future.add_done_callback(partial(_report_done, self._on_progress, task.images))
        return future

    def close(self) -> None:
        """Cancels unfinished shards, and leaves the cluster."""
        if self._ray.is_initialized():
            for handle in self._pending:
                self._ray.cancel(handle, force=True)
            if not self._was_initialized:
                self._ray.shutdown()


def _write_remotely(
    folder: str, options: DataOptions, limit: int, task: ShardTask
) -> Skipped | UserError:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.chdir(folder)
    try:
        return write_shard(options, limit, task, lambda count: None)
    except UserError as error:
        return error
