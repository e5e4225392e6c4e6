"""Writing of shards on a Ray cluster."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from data_pipelines.errors import UserError
from data_pipelines.options import DataOptions
from data_pipelines.shard_tasks import ReportProgress, ShardTask, Skipped
from data_pipelines.shard_worker import (
    options_to_json,
    skipped_from_json,
    task_to_json,
    write_from_json,
)

_SECONDS = 0.5
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
        self._options = options_to_json(options)
        self._remote = ray.remote(max_retries=3)(_perform)
        self._pending: set[Any] = set()

    def write(self, task: ShardTask, report: ReportProgress) -> Skipped:
        """Writes a shard on the cluster; see `write_shard`. Called from up to `slots` threads."""
        task = replace(task, path=task.path.absolute())
        reference = self._remote.remote(self._options, task_to_json(task))
        self._pending.add(reference)
        while not self._ray.wait([reference], timeout=_SECONDS)[0]:
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


def _perform(options: str, task: str) -> dict[str, Any]:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    return write_from_json(options, task, lambda count: None)
