"""Process that writes the shards which its parent sends over a connection.

A message has what all shards share and one shard; see `data_pipelines.workers.shared_setup`. The
answers are numbers of finished images, and finally the skipped ones, or an error. The process ends
with its parent, which closes the connection.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from functools import lru_cache
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from data_pipelines.errors import UserError
from data_pipelines.plugins import add_plugins

if TYPE_CHECKING:
    from data_pipelines.options import DataOptions
    from data_pipelines.shard_plan import ShardTask
    from data_pipelines.shards import ReportProgress

_SECONDS = 0.2
"""Interval in seconds of reporting progress."""

Setup = tuple[str, tuple[str, ...], str]
"""The current folder, the plugins, and the options as JSON."""

Answer = list[tuple[str, str]] | UserError
"""The skipped items of a shard, or an error that a user can fix."""


def write_with_setup(setup: Setup, task: ShardTask, report: ReportProgress) -> Answer:
    """Writes a shard, as `write_shard`."""
    options = _parse_options(*setup)  # Before other imports, which import the options.
    from data_pipelines.shards import write_shard

    try:
        return write_shard(options, task, report)
    except UserError as error:
        return error


@lru_cache(maxsize=1)
def _parse_options(folder: str, plugins: tuple[str, ...], options: str) -> DataOptions:
    os.chdir(folder)  # Paths of a config may be relative.
    add_plugins(plugins)  # Before importing the options, which depend on all sources.
    from data_pipelines.options import DataOptions

    return DataOptions.model_validate_json(options)


def main() -> None:
    """Writes shards until the connection, a file descriptor in the first argument, is closed."""
    parent = Connection(int(sys.argv[1]))
    try:
        while True:
            setup, task = parent.recv()
            parent.send(write_with_setup(setup, task, _throttle(parent.send)))
    except (EOFError, OSError, KeyboardInterrupt):
        os._exit(1)  # The parent has ended.


def _throttle(answer: Callable[[int], None]) -> ReportProgress:
    done, last = 0, time.monotonic()

    def report(count: int) -> None:
        nonlocal done, last
        done += count
        if time.monotonic() - last > _SECONDS:
            answer(done)
            done, last = 0, time.monotonic()

    return report


if __name__ == "__main__":
    main()
