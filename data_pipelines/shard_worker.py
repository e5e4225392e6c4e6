"""A process that writes shards: it is told of them on standard input, and answers on its output.

A line is a JSON object. The first says what all shards have in common; each of the others is a
shard. The answers say how many images are done, and at last what was skipped, or what is wrong.
The process ends with whoever has started it, as nobody is left to write or read.
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
    from data_pipelines.shard_tasks import Report, ShardTask, Skipped

_SECONDS = 0.2
"""How often it tells how many images are done."""


def common(options: DataOptions) -> str:
    """What all shards of a preparation have in common, as JSON."""
    return json.dumps(
        {
            "folder": os.getcwd(),
            "plugins": added_plugins(),
            "options": options.model_dump(mode="json"),
        }
    )


def told_of_task(task: ShardTask) -> str:
    """A task as JSON."""
    from data_pipelines.shard_plan import told_of

    entries = [[entry.split, told_of(entry)] for entry in task.entries]
    told = {"path": str(task.path), "entries": entries}
    return json.dumps(told | {"fingerprint": task.fingerprint, "limit": task.limit})


def perform(shared: str, task: str, report: Report) -> dict[str, Any]:
    """Writes a shard.

    Args:
        shared: What `common` gave.
        task: What `told_of_task` gave.
        report: Is told of every image.

    Returns:
        What `result_of` takes.
    """
    from data_pipelines.shard_plan import entry_of
    from data_pipelines.shard_tasks import ShardTask, TooManyError, write_shard

    told = json.loads(task)
    entries = [entry_of(split, entry) for split, entry in told["entries"]]
    mine = ShardTask(Path(told["path"]), entries, told["fingerprint"], told["limit"])
    try:
        return {"skipped": write_shard(_options(shared), mine, report)}
    except TooManyError as error:
        return {"too_many": error.skipped}
    except UserError as error:
        return {"error": type(error).__name__, "message": str(error)}


def result_of(answer: dict[str, Any]) -> Skipped:
    """What was skipped, as `perform` has answered.

    Raises:
        UserError: If it could not be written.
    """
    from data_pipelines.shard_tasks import TooManyError
    from data_pipelines.shards import RecordsError
    from data_pipelines.sources import SourceError

    if "too_many" in answer:
        raise TooManyError([(reason, what) for reason, what in answer["too_many"]])
    if "error" in answer:
        known = {kind.__name__: kind for kind in (RecordsError, SourceError)}
        raise known.get(answer["error"], UserError)(answer["message"])
    return [(reason, what) for reason, what in answer["skipped"]]


@lru_cache(maxsize=1)
def _options(shared: str) -> DataOptions:
    told = json.loads(shared)
    os.chdir(told["folder"])  # Paths of a config may be relative to where it was started.
    add_plugins(told["plugins"])  # Before the options, which know all sources, are imported.
    from data_pipelines.options import DataOptions

    return DataOptions.model_validate(told["options"])


def main() -> None:
    """Writes shards until there are no more."""
    # What anybody prints is not to be taken for an answer.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def answer(content: dict[str, Any]) -> None:
        answers.write(json.dumps(content) + "\n")
        answers.flush()

    try:
        shared = sys.stdin.readline()
        for task in sys.stdin:
            answer(perform(shared, task, _now_and_then(answer)))
    except (BrokenPipeError, KeyboardInterrupt):
        os._exit(1)  # Nobody listens any more.


def _now_and_then(answer: Callable[[dict[str, Any]], None]) -> Report:
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
