"""Writes the records of a data set once, in parallel; it can be interrupted and resumed."""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import as_completed
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from data_pipelines.options import MANIFEST, DataOptions
from data_pipelines.records import WORDS, Records, truth_file
from data_pipelines.shard_plan import ShardTask, plan_shards
from data_pipelines.shards import (
    VERSION,
    RecordsError,
    ReportProgress,
    Shard,
    disk_errors,
    mark_as_read,
    origin_of,
)
from data_pipelines.sources import MissingFileError, Problems, Source, SourceError, Split
from data_pipelines.sources.text_files import only_text
from data_pipelines.text import count_words
from data_pipelines.workers import RayCluster, Workers
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.files import atomic_write, locked, replace_atomically
from keras_xmr.utils.processors import processor_count
from keras_xmr.utils.progress import Progress
from keras_xmr.utils.tables import on_one_line

_FEW = 5
"""Number of broken images, up to a quarter, that is tolerated unless `max_skipped` is 0."""

_NAMED = 200
"""Maximum number of broken images that are named; the search stops there."""

_EXAMPLES = 10
"""Maximum number of missing images that are named."""

_WORTH = 4096
"""Minimum number of images for which starting further processes saves time."""


def _example_line(folder: Path | None) -> str:
    """Returns a line on a file in the folder of the photos; empty without one."""
    if folder is None:
        return ""
    files = (Path(at, name) for at, _, names in os.walk(folder) for name in names)
    file = next(files, None)
    if file is None:
        return ""
    name = on_one_line(file.relative_to(folder).as_posix())
    return f"\n{folder} has files such as {name}: captions name them so"


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
    judgements = options.training_judgements
    if judgements is not None and not judgements.exists():
        raise MissingFileError(f"data.training_judgements: {judgements} does not exist")
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
    if "train" not in plan:
        why = f"\n{problems}" if problems.total else ""
        raise SourceError(f"the source {options.source.name!r} has no training images{why}")
    check_origin(options)
    _write_all([task for tasks in plan.values() for task in tasks], options)
    records = _finish(folder, plan, options, problems)
    mark_as_read(folder / MANIFEST, begin)
    return records


def check_origin(options: DataOptions) -> None:
    """Checks that existing records, finished or not, were made from the source of a config.

    The folder of the source (`root`) may differ: records can be used without it.

    Raises:
        RecordsError: If they were made from another source.
    """
    folder = options.records
    if options.is_prepared:
        old = Records.open(folder).manifest["origin"]
    else:
        opened = map(Shard.open, sorted(folder.glob("*.tfrecord")))
        old = next((shard.about["origin"] for shard in opened if shard is not None), None)
    if old is None:
        return
    new = origin_of(options)
    for name, field in type(options.source).model_fields.items():
        # An option that did not exist when the records were written.
        if f"source.{name}" not in old and getattr(options.source, name) == field.default:
            new.pop(f"source.{name}")
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) != new.get(key) and key != "source.root":
            raise RecordsError(
                f"{folder} holds records made with data.{key}: {old.get(key)}, but it is "
                f"now {new.get(key)}. Choose another folder with data.records, or delete this one"
            )


def _write_all(tasks: list[ShardTask], options: DataOptions) -> None:
    """Writes the shards; all images are checked first, so that an error names all broken ones."""
    total, share = sum(task.images for task in tasks), options.max_skipped
    limit = max(min(_FEW, total // 4) if share else 0, int(share * total + 1e-9))
    most = max(_NAMED, limit + 1) - 1
    skipped: list[str] = []
    with (
        Progress("writing records", total, "images") as bar,
        closing(_workers(tasks, options, most, bar.update)) as workers,
    ):
        try:
            for job in as_completed([workers.submit(task) for task in tasks]):
                if isinstance(result := job.result(), UserError):
                    raise result
                skipped += [on_one_line(message) for _, message in result]
                if len(skipped) > most:
                    raise _too_many_skipped(skipped, total, limit, options, "at least ")
        except workers.broken as error:
            raise RecordsError(
                f"a process that writes records has ended ({error}), perhaps because memory was "
                "used up. Finished shards are kept: run again, perhaps with fewer processes "
                "(data.prepare.workers)"
            ) from None
    if len(skipped) > limit:
        raise _too_many_skipped(skipped, total, limit, options)


def _too_many_skipped(
    skipped: list[str], total: int, limit: int, options: DataOptions, about: str = ""
) -> SourceError:
    count = len(skipped)
    needed = math.ceil(1000 * count / total) / 1000
    named = sorted(skipped)[:_NAMED]
    advice = ""
    if all("does not exist" in text or " is in none of " in text for text in named):
        # All files are missing: one cause is likely, and a few examples show it.
        named, advice = named[:_EXAMPLES], _example_line(options.source.photos_folder)
        advice += f"\n{options.source.origin}"
        if count > _EXAMPLES:
            named.append(f"and {count - _EXAMPLES:,} more")
    return SourceError(
        f"{about}{count:,} of {total:,} images cannot be used, and {limit:,} may be "
        f"left out (data.max_skipped: {options.max_skipped:g}):\n  "
        + "\n  ".join(named)
        + advice
        + "\nRepair them"
        + f", or go on without them: --set data.max_skipped={needed:g}" * (count < total)
    )


def _workers(
    tasks: list[ShardTask], options: DataOptions, limit: int, on_progress: ReportProgress
) -> Workers | RayCluster:
    if options.prepare.cluster != "local":
        return RayCluster(options, limit, on_progress)
    missing = [task.images for task in tasks if not task.path.with_suffix(".npz").exists()]
    processors = options.prepare.workers or processor_count()
    slots = min(processors, len(missing))
    is_worth_it = options.prepare.workers is not None or sum(missing) >= _WORTH
    if slots > 1 and is_worth_it:
        return Workers(options, limit, on_progress, slots, processes=True)
    return Workers(options, limit, on_progress, processors, processes=False)


def _finish(
    folder: Path, plan: dict[Split, list[ShardTask]], options: DataOptions, problems: Problems
) -> Records:
    """Writes the words, the ground truth if the source has it, and the manifest.

    Args:
        folder: The folder of the records, with all shards.
        plan: The shards.
        options: The `data` section of a config.
        problems: Problems of the annotations; skipped images are added.

    Raises:
        RecordsError: If a shard is missing.
        SourceError: If region features have different widths, or no training image can be used.
        OSError: If the disk is full or cannot be written.
    """
    shapes: set[tuple[int, ...]] = set()
    words: Counter[str] = Counter()
    num_labels = 0
    splits: dict[str, Any] = {}
    for split, tasks in plan.items():
        entries: list[dict[str, Any]] = []
        for shard in (Shard.finished(task.path) for task in tasks):
            for skipped in shard.about["skipped"]:
                problems.add(*skipped)
            shapes |= set(map(tuple, shard.about["shapes"]))
            num_labels = max(
                [num_labels, *(label + 1 for of in shard.index.labels for label in of)]
            )
            if split == "train":
                words.update(count_words(shard.index.texts))
            entries.append(
                {
                    "file": shard.path.name,
                    "sha256": shard.sha256,
                    "images": len(shard.index.keys),
                    "captions": len(shard.index.texts),
                }
            )
        totals = {unit: sum(e[unit] for e in entries) for unit in ("images", "captions")}
        if totals["images"]:
            splits[split] = {"shards": entries, **totals}
    if "train" not in splits:
        raise SourceError(f"no training image can be used\n{problems}")
    manifest = {
        "version": VERSION,
        "origin": origin_of(options),
        "holds": options.source.holds,
        "region_shape": _region_shape(shapes),
        "label_kind": options.source.label_kind,
        "num_labels": num_labels,
        "splits": splits,
        "problems": {"counts": dict(problems.counts), "examples": problems.examples},
    }
    lines = [f"{word}\t{count}\n" for word, count in words.most_common()]
    atomic_write(folder / WORDS, "".join(lines).encode())
    return Records.write(
        folder, manifest, [folder / WORDS, *_write_truth(folder, plan, options.source)]
    )


def _region_shape(shapes: set[tuple[int, ...]]) -> tuple[int | None, int] | None:
    """Returns the shape (R, F) of the region features of all images, with R None if it varies."""
    if shapes <= {()}:
        return None
    numbers, widths = {shape[0] for shape in shapes}, {shape[1] for shape in shapes}
    if len(widths) > 1:
        raise SourceError(f"region features have different widths: {sorted(widths)}")
    return numbers.pop() if len(numbers) == 1 else None, widths.pop()


def _write_truth(
    folder: Path, plan: dict[Split, list[ShardTask]], source: Source
) -> Iterator[Path]:
    """Writes the exhaustive ground truth, if the source has it."""
    if type(source).truth is Source.truth:
        return  # Without loading entries into memory.
    for split, tasks in plan.items():
        written = {key for task in tasks for key in Shard.finished(task.path).index.keys}
        entries = (entry for task in tasks for entry in task.entries)
        truth = source.truth([entry for entry in entries if entry.key in written])
        if truth is not None:
            path = truth_file(folder, split)
            with replace_atomically(path, ".npz") as temporary:
                # Compressing takes as long as computing it.
                scipy.sparse.save_npz(temporary, truth.astype(np.bool_), compressed=False)
            yield path
