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

from data_pipelines.errors import UserError
from data_pipelines.plugins import add_plugins, added_plugins

if TYPE_CHECKING:
    from data_pipelines.options import DataOptions
    from data_pipelines.shard_tasks import ReportProgress, ShardTask, Skipped

_SECONDS = 0.2
"""Interval in seconds of reporting progress."""


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
    from data_pipelines.shard_plan import entry_to_json

    fields = {"path": str(task.path), "entries": [entry_to_json(entry) for entry in task.entries]}
    return json.dumps(fields | {"fingerprint": task.fingerprint, "limit": task.limit})


def write_from_json(options: str, task: str, report: ReportProgress) -> dict[str, Any]:
    """Writes a shard.

    Args:
        options: Result of `options_to_json`.
        task: Result of `task_to_json`.
        report: Callback after every image.

    Returns:
        Argument of `skipped_from_json`.
    """
    parsed = _parse_options(options)  # Before other imports, which import the options.
    from data_pipelines.shard_plan import entry_from_json
    from data_pipelines.shard_tasks import ShardTask, TooManyError, write_shard

    fields = json.loads(task)
    entries = [entry_from_json(entry) for entry in fields["entries"]]
    shard = ShardTask(Path(fields["path"]), entries, fields["fingerprint"], fields["limit"])
    try:
        return {"skipped": write_shard(parsed, shard, report)}
    except TooManyError as error:
        return {"too_many": error.skipped}
    except UserError as error:
        return {"error": type(error).__name__, "message": str(error)}


def skipped_from_json(answer: dict[str, Any]) -> Skipped:
    """Returns the skipped items in an answer of `write_from_json`.

    Raises:
        UserError: If the shard could not be written.
    """
    from data_pipelines.shard_tasks import TooManyError
    from data_pipelines.shards import RecordsError
    from data_pipelines.sources import SourceError

    if "too_many" in answer:
        raise TooManyError([(reason, item) for reason, item in answer["too_many"]])
    if "error" in answer:
        known = {kind.__name__: kind for kind in (RecordsError, SourceError)}
        raise known.get(answer["error"], UserError)(answer["message"])
    return [(reason, item) for reason, item in answer["skipped"]]


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
