"""Worker process that reads shards from standard input, writes them, and answers on its output.

Each line is a JSON object: first the options of all shards, then one shard per line. Answers hold
the number of finished images, and finally the skipped ones, or an error. The process ends with its
parent, which closes the pipes.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keras_xmr.utils.errors import UserError
from keras_xmr.utils.plugins import add_plugins

if TYPE_CHECKING:
    from data_pipelines.options import DataOptions
    from data_pipelines.shards import ReportProgress

_SECONDS = 0.2
"""Interval in seconds of reporting progress."""


def write_from_json(options: str, task: str, report: ReportProgress) -> dict[str, Any]:
    """Writes a shard.

    Args:
        options: Result of `workers.options_to_json`.
        task: Result of `workers.task_to_json`.
        report: Callback after every image.

    Returns:
        Argument of `workers.skipped_from_json`.
    """
    parsed = _parse_options(options)  # Before other imports, which import the options.
    from data_pipelines.shard_plan import entry_from_json
    from data_pipelines.shards import ShardTask, write_shard

    fields = json.loads(task)
    entries = [entry_from_json(entry) for entry in fields["entries"]]
    shard = ShardTask(Path(fields["path"]), entries, fields["fingerprint"], fields["limit"])
    try:
        return {"skipped": write_shard(parsed, shard, report)}
    except UserError as error:
        return {"error": type(error).__name__, "message": str(error)}


@lru_cache(maxsize=1)
def _parse_options(options: str) -> DataOptions:
    fields = json.loads(options)
    os.chdir(fields["folder"])  # Paths of a config may be relative.
    add_plugins(fields["plugins"])  # Before importing the options, which depend on all sources.
    from data_pipelines.options import DataOptions

    return DataOptions.model_validate(fields["options"])


def main() -> None:
    """Writes shards until the input ends."""
    # Other output must not be taken for an answer.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def answer(content: dict[str, Any]) -> None:
        answers.write(json.dumps(content) + "\n")
        answers.flush()

    try:
        options = sys.stdin.readline()
        for task in sys.stdin:
            answer(write_from_json(options, task, _throttle(answer)))
    except (BrokenPipeError, KeyboardInterrupt):
        os._exit(1)  # The parent has ended.


def _throttle(answer: Callable[[dict[str, Any]], None]) -> ReportProgress:
    done, last = 0, time.monotonic()

    def report(count: int) -> None:
        nonlocal done, last
        done += count
        if time.monotonic() - last > _SECONDS:
            answer({"done": done})
            done, last = 0, time.monotonic()

    return report


if __name__ == "__main__":
    main()
