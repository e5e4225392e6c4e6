"""Writes the records of a data set once, in parallel; it can be interrupted and resumed."""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from data_pipelines.options import DataOptions
from data_pipelines.processors import processor_count
from data_pipelines.records import WORDS, Records, truth_file, write_split
from data_pipelines.shard_plan import PlannedShard, ShardPlan, plan_shards
from data_pipelines.shards import (
    VERSION,
    RecordsError,
    ReportProgress,
    ShardTask,
    Skipped,
    StoppedError,
    check_version,
    disk_errors,
    parse_object,
    write_shard,
)
from data_pipelines.source_changes import note_comparison
from data_pipelines.sources import MissingFileError, Problems, Source, SourceError
from data_pipelines.sources.text_files import only_text
from data_pipelines.split_index import index_file, open_index
from data_pipelines.text import count_words
from data_pipelines.workers import Processes, RayCluster
from keras_xmr.utils.files import atomic_write, locked, replace_atomically
from keras_xmr.utils.progress import Progress
from keras_xmr.utils.tables import on_one_line

PLAN = "plan.json"

_FEW = 5
"""Number of broken images, up to a quarter, that is tolerated unless `max_skipped` is 0."""

_NAMED = 200
"""Maximum number of broken images that are named; the search stops there."""

_EXAMPLES = 10
"""Maximum number of missing images that are named."""

_WORTH = 4096
"""Minimum number of images for which starting further processes saves time."""


class _SkipBudget:
    """Counts skipped images, and stops the preparation if there are too many.

    All images are checked first, so that the error names all broken ones.
    """

    def __init__(self, share: float, total: int, source: Source) -> None:
        few = min(_FEW, total // 4) if share else 0
        self.limit, self.total, self.share = max(few, int(share * total + 1e-9)), total, share
        self.source = source
        self.skipped: list[str] = []

    @property
    def left(self) -> int:
        """Number of images that may still be skipped before checking stops."""
        return max(_NAMED, self.limit + 1) - 1 - len(self.skipped)

    def take(self, job: Future[Skipped]) -> None:
        """Counts the skipped images of one shard.

        Raises:
            SourceError: If too many were skipped.
        """
        self.skipped += [on_one_line(message) for _, message in job.result()]
        if self.left < 0:
            raise self._error("at least ")

    def check(self) -> None:
        """Raises an error with the skipped images if there are too many.

        Raises:
            SourceError: If more were skipped than allowed.
        """
        if len(self.skipped) > self.limit:
            raise self._error()

    def _error(self, about: str = "") -> SourceError:
        count = len(self.skipped)
        needed = math.ceil(1000 * count / self.total) / 1000
        named = sorted(self.skipped)[:_NAMED]
        advice = ""
        if all("does not exist" in text or " is in none of " in text for text in named):
            # All files are missing: one cause is likely, and a few examples show it.
            named, advice = named[:_EXAMPLES], _example_line(self.source.photos_folder)
            advice += f"\n{self.source.origin}"
            if count > _EXAMPLES:
                named.append(f"and {count - _EXAMPLES:,} more")
        return SourceError(
            f"{about}{count:,} of {self.total:,} images cannot be used, and {self.limit:,} may be "
            f"left out (data.max_skipped: {self.share:g}):\n  "
            + "\n  ".join(named)
            + advice
            + "\nRepair them"
            + f", or go on without them: --set data.max_skipped={needed:g}" * (count < self.total)
        )


def _example_line(folder: Path | None) -> str:
    """A line on a file in the folder of the photos; empty without one."""
    if folder is None:
        return ""
    files = (Path(at, name) for at, _, names in os.walk(folder) for name in names)
    file = next(files, None)
    if file is None:
        return ""
    name = on_one_line(file.relative_to(folder).as_posix())
    return f"\n{folder} has files such as {name}: captions name them so"


class _Threads:
    """Threads of this process."""

    def __init__(self, options: DataOptions, slots: int) -> None:
        self.slots = slots
        self._options = options

    def write(self, task: ShardTask, report: ReportProgress) -> Skipped:
        """Writes a shard; see `write_shard`."""
        return write_shard(self._options, task, report)

    def close(self) -> None:
        """Does nothing: threads end by themselves."""


def prepare(options: DataOptions) -> Records:
    """Writes the missing records of a data set.

    Finished shards are not written again, and incomplete files are never visible.

    Args:
        options: The `data` section of a config.

    Returns:
        The records.

    Raises:
        SourceError: If the data set cannot be read, or more of it is broken than
            `max_skipped` allows.
        RecordsError: If the folder holds records of another data set, or the disk is full.
        LockedError: If another process uses the folder.
        UserError: If the cluster `prepare.cluster` cannot be reached.
    """
    with locked(options.records), disk_errors(options.records):
        try:
            return _prepare(options)
        except MissingFileError as error:
            raise MissingFileError(f"{error}. {options.source.origin}") from None


def _prepare(options: DataOptions) -> Records:
    folder, begin = options.records, time.time_ns()
    problems = Problems()
    annotated = options.source.entries(problems)
    with Progress("reading annotations", unit="images", iterable=annotated) as bar:
        entries = only_text(bar, problems)
        plan = plan_shards(entries, folder, options.images_per_shard, problems)
    if "train" not in plan.splits:
        why = f"\n{problems}" if problems.total else ""
        raise SourceError(f"the source {options.source.name!r} has no training images{why}")
    check_plan(options)
    atomic_write(folder / PLAN, json.dumps(_origin_of_records(options), indent=2).encode())
    _write_all(plan, options)
    records = finish_records(folder, plan, options.source, problems)
    note_comparison(folder, begin)
    return records


def check_plan(options: DataOptions) -> None:
    """Checks that existing records were made from the source of a config.

    Its folder (`root`) may differ: records can be used without it.

    Raises:
        RecordsError: If they were made from another source.
    """
    path = options.records / PLAN
    if not path.exists():
        return
    old = parse_object(path, path.read_bytes(), "delete it and run the command `prepare`")
    check_version(options.records, old)
    new = _origin_of_records(options)
    for name, field in type(options.source).model_fields.items():
        # An option that did not exist when the records were written.
        if f"source.{name}" not in old and getattr(options.source, name) == field.default:
            new.pop(f"source.{name}")
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) != new.get(key) and key != "source.root":
            raise RecordsError(
                f"{options.records} holds records made with data.{key}: {old.get(key)}, but it is "
                f"now {new.get(key)}. Choose another folder with data.records, or delete this one"
            )


def _origin_of_records(options: DataOptions) -> dict[str, Any]:
    """Returns the options that records depend on, by key of the `data` section."""
    source = options.source.model_dump(mode="json")
    return {
        "version": VERSION,
        "images_per_shard": options.images_per_shard,
        **{f"source.{key}": value for key, value in source.items()},
    } | ({"image.store_side": side} if (side := options.image.store_side) else {})


def _write_all(plan: ShardPlan, options: DataOptions) -> None:
    allowance = _SkipBudget(options.max_skipped, plan.images, options.source)
    stop = threading.Event()
    with (
        Progress("writing records", plan.images, "images") as bar,
        closing(_executor(plan, options)) as executor,
        ThreadPoolExecutor(executor.slots) as pool,
    ):

        def report(count: int) -> None:
            if stop.is_set():
                raise StoppedError
            bar.update(count)

        def write(shard: PlannedShard) -> Skipped:
            task = ShardTask(shard.path, plan.entries(shard), shard.fingerprint, allowance.left)
            return executor.write(task, report)

        jobs = [pool.submit(write, shard) for shard in plan.shards]
        try:
            for job in as_completed(jobs):
                allowance.take(job)
        except BaseException:
            stop.set()
            executor.close()
            pool.shutdown(cancel_futures=True)
            raise
    allowance.check()


def _executor(plan: ShardPlan, options: DataOptions) -> _Threads | Processes | RayCluster:
    if options.prepare.cluster != "local":
        return RayCluster(options)
    missing = [shard for shard in plan.shards if not shard.path.with_suffix(".json").exists()]
    processors = options.prepare.workers or processor_count()
    if options.prepare.workers is None and sum(shard.images for shard in missing) < _WORTH:
        return _Threads(options, processors)
    slots = min(processors, len(missing))
    return Processes(options, slots) if slots > 1 else _Threads(options, processors)


def finish_records(folder: Path, plan: ShardPlan, source: Source, problems: Problems) -> Records:
    """Writes the indices, the words, the ground truth if the source has it, and the manifest.

    Args:
        folder: The folder of the records, with all shards.
        plan: The shards.
        source: The source of the shards.
        problems: Problems of the annotations; skipped images are added.

    Raises:
        RecordsError: If a shard is missing.
        SourceError: If region features have different widths, or no training image can be used.
        OSError: If the disk is full or cannot be written.
    """
    shapes: set[tuple[int, ...]] = set()
    num_labels = 0

    def visit(sidecar: dict[str, Any]) -> None:
        nonlocal num_labels
        for reason, example in sidecar["skipped"]:
            problems.add(reason, example)
        for item in sidecar["items"]:
            shapes.add(tuple(item["regions"]))
            num_labels = max(num_labels, 1 + max(item["labels"], default=-1))

    splits: dict[str, Any] = {}
    for split, shards in plan.splits.items():
        entry = write_split(folder, split, [shard.path.name for shard in shards], visit)
        if entry["images"]:
            splits[split] = entry
    if "train" not in splits:
        raise SourceError(f"no training image can be used\n{problems}")
    manifest = {
        "version": VERSION,
        "holds": source.holds,
        "region_shape": _region_shape(shapes),
        "label_kind": source.label_kind,
        "num_labels": num_labels,
        "splits": splits,
        "problems": {"counts": dict(problems.counts), "examples": problems.examples},
    }
    files = [folder / index_file(split) for split in splits]
    files += [_write_words(folder), *_write_truth(folder, plan, source)]
    return Records.write(folder, manifest, files)


def _region_shape(shapes: set[tuple[int, ...]]) -> tuple[int | None, int] | None:
    """Returns the shape (R, F) of the region features of all images, with R None if it varies."""
    if shapes <= {()}:
        return None
    numbers, widths = {shape[0] for shape in shapes}, {shape[1] for shape in shapes}
    if len(widths) > 1:
        raise SourceError(f"region features have different widths: {sorted(widths)}")
    return numbers.pop() if len(numbers) == 1 else None, widths.pop()


def _write_words(folder: Path) -> Path:
    """Counts the words of the training captions."""
    path = folder / WORDS
    counts = count_words(open_index(folder / index_file("train")).texts)
    lines = [f"{word}\t{count}\n" for word, count in counts.most_common()]
    atomic_write(path, "".join(lines).encode())
    return path


def _write_truth(folder: Path, plan: ShardPlan, source: Source) -> Iterator[Path]:
    """Writes the exhaustive ground truth, if the source has it."""
    if type(source).truth is Source.truth:
        return  # Without loading entries into memory.
    for split, shards in plan.splits.items():
        written = set(open_index(folder / index_file(split)).keys)
        entries = (entry for shard in shards for entry in plan.entries(shard))
        truth = source.truth([entry for entry in entries if entry.key in written])
        if truth is not None:
            path = truth_file(folder, split)
            with replace_atomically(path, ".npz") as temporary:
                # Compressing takes as long as computing it.
                scipy.sparse.save_npz(temporary, truth.astype(np.bool_), compressed=False)
            yield path
