"""Detection of changes of a data set since its records were written."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from data_pipelines.options import MANIFEST, DataOptions
from data_pipelines.records import Records
from data_pipelines.shard_plan import plan_shards
from data_pipelines.shards import Shard, mark_as_read
from data_pipelines.sources import SPLITS, Problems, SourceError
from data_pipelines.sources.text_files import only_text

_LOGGER = logging.getLogger(__name__)


def source_change(options: DataOptions, records: Records) -> str | None:
    """Compares records with their source.

    The times of its files and folders are checked first. Only if one is newer than the records, the
    source is read, and its images, captions and labels are compared, and the contents of the images
    in newer files; then the time is recorded. Files that were deleted are not compared: records can
    be used without their source.

    Args:
        options: The `data` section of a config.
        records: The records.

    Returns:
        A sentence about the differences, without a full stop; None without any.
    """
    values = (getattr(options.source, name) for name in type(options.source).model_fields)
    roots = [value for value in values if isinstance(value, Path) and value.exists()]
    begin, since = time.time_ns(), (options.records / MANIFEST).stat().st_mtime_ns
    if max(_times(roots, options.records.resolve()), default=0) < since:
        return None
    try:
        difference = _compare(options, records, since)
    except SourceError as error:
        _LOGGER.warning(
            "the source of %s cannot be compared with them, which are used as they are: %s",
            records.folder,
            error,
        )
        return None
    if difference is None:
        mark_as_read(options.records / MANIFEST, begin)
        return None
    folders = " and ".join(map(str, roots))
    return f"{folders} has changed since {records.folder} was written: {difference}"


def data_change(options: DataOptions) -> str | None:
    """Returns `source_change` of the records of a config; None without records."""
    if not options.is_prepared:
        return None
    return source_change(options, Records.open(options.records))


def _times(roots: list[Path], without: Path) -> Iterator[int]:
    """Yields the times of all folders but hidden ones and of their files; links are followed."""
    seen = {without}
    for root in roots:
        if root.is_file():
            yield root.stat().st_ctime_ns
        for path, folders, names in os.walk(root, followlinks=True):
            resolved = Path(path).resolve()
            if resolved in seen:
                folders.clear()
                continue
            seen.add(resolved)
            folders[:] = [name for name in folders if not name.startswith(".")]
            yield resolved.stat().st_mtime_ns
            for name in names:
                # Not the modification time, which copies and renamed files may keep.
                with suppress(OSError):
                    yield (0 if name[0] == "." else os.stat(os.path.join(path, name)).st_ctime_ns)


def _compare(options: DataOptions, records: Records, since: int) -> str | None:
    """Reads the source, and returns how its entries differ from the records.

    Raises:
        SourceError: If the source cannot be read.
    """
    problems = Problems()
    entries = only_text(options.source.entries(problems), problems)
    plan = plan_shards(entries, records.folder, options.images_per_shard, problems)
    tasks = {task.path: task for tasks in plan.values() for task in tasks}
    splits = records.manifest["splits"]
    written = (shard["file"] for split in splits.values() for shard in split["shards"])
    # Shards of which every image was skipped are not in the manifest.
    is_same = tasks.keys() >= {records.folder / name for name in written}
    changed: list[str] = []
    gone: list[str] = []
    for task in tasks.values():
        shard = Shard.open(task.path)
        if shard is None or shard.about["fingerprint"] != task.fingerprint:
            is_same = False
            continue
        for names, more in zip((changed, gone), shard.changes(options, task, since), strict=True):
            names += more
    differ = []
    for names, what in ((gone, "are gone"), (changed, "have other contents")):
        if names and not (names is gone and len(gone) == sum(s["images"] for s in splits.values())):
            differ.append(f"{len(names):,} of the images {what}, such as {names[0]}")
    if is_same:
        return ", ".join(differ) or None
    for split in SPLITS:
        for unit in ("images", "captions"):
            then = splits[split][unit] if split in splits else 0
            now = sum(getattr(task, unit) for task in plan.get(split, ()))
            if now != then:
                differ.append(f"{split} has {now:,} {unit}, not {then:,}")
    return ", ".join(differ or ["images have other captions, labels or names"])
