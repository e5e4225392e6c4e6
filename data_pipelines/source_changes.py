"""Detection of changes of a data set since its records were written."""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePath

from data_pipelines.options import MANIFEST, DataOptions
from data_pipelines.records import Records
from data_pipelines.shard_plan import plan_shards
from data_pipelines.shards import read_sidecar
from data_pipelines.sources import SPLITS, Entry, Problems, SourceError
from data_pipelines.sources.base import PHOTO_SUFFIXES
from data_pipelines.sources.text_files import only_text

_LOGGER = logging.getLogger(__name__)
_SECOND = 10**9


def source_change(options: DataOptions, records: Records) -> str | None:
    """Compares records with their source.

    The modification times of its files are checked first. Only if one is newer than the records,
    the source is read, and its images, captions and labels are compared; then the time is recorded.
    Files that were deleted are not compared: records can be used without their source.

    Args:
        options: The `data` section of a config.
        records: Its records.

    Returns:
        A sentence about the differences, without a full stop; None without any.
    """
    values = (getattr(options.source, name) for name in type(options.source).model_fields)
    roots = [value for value in values if isinstance(value, Path) and value.exists()]
    begin = time.time_ns()
    newest, photos = _scan(roots, options.records.resolve(), options.source.captions_in_photos)
    if newest < (options.records / MANIFEST).stat().st_mtime_ns:
        return None
    try:
        difference = _compare(options, records, photos)
    except SourceError as error:
        _LOGGER.warning(
            "the source of %s cannot be compared with them, which are used as they are: %s",
            records.folder,
            error,
        )
        return None
    if difference is None:
        note_comparison(options.records, begin)
        return None
    folders = " and ".join(map(str, roots))
    return f"{folders} has changed since {records.folder} was written: {difference}"


def data_change(options: DataOptions) -> str | None:
    """Returns `source_change` of the records of a config; None without records."""
    if not options.is_prepared:
        return None
    return source_change(options, Records.open(options.records))


def note_comparison(folder: Path, begin: int) -> None:
    """Records when records were last equal to their source, as the time of their manifest.

    Args:
        folder: The folder of the records.
        begin: Start of reading the source, in nanoseconds.
    """
    begin -= _SECOND  # Clocks of file systems lag by milliseconds.
    with suppress(OSError):  # Records may be read-only; then the source is read every time.
        os.utime(folder / MANIFEST, ns=(begin, begin))


def _scan(roots: list[Path], without: Path, with_photos: bool) -> tuple[int, set[str]]:
    """Returns the time of the newest folder or file, and the names of all photos.

    The times of photos are ignored unless `with_photos`.
    """
    newest, photos = 0, set()
    for folder, names in _folders(roots, without):
        with suppress(OSError):
            newest = max(newest, folder.stat().st_mtime_ns)
        for name in names:
            if PurePath(name).suffix.lower() in PHOTO_SUFFIXES:
                photos.add(name)
                if not with_photos:
                    continue
            with suppress(OSError):
                # Not the modification time, which copies and renamed files may keep.
                newest = max(newest, (folder / name).stat().st_ctime_ns)
    return newest, photos


def _folders(roots: list[Path], without: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yields all folders but hidden ones, and the names of their files; links are followed."""
    seen = {without}
    for root in roots:
        if root.is_file():
            yield root.parent, [root.name]
        for path, folders, names in os.walk(root, followlinks=True):
            resolved = Path(path).resolve()
            if resolved in seen:
                folders.clear()
                continue
            seen.add(resolved)
            folders[:] = [name for name in folders if not name.startswith(".")]
            yield Path(path), [name for name in names if not name.startswith(".")]


def _compare(options: DataOptions, records: Records, photos: set[str]) -> str | None:
    """Reads the source, and returns how its entries differ from the records.

    Raises:
        SourceError: If the source cannot be read.
    """
    problems = Problems()
    gone: list[str] = []
    captions: Counter[str] = Counter()
    splits = [split for split in SPLITS if split in records.splits]
    known = {key for split in splits for key in records.split(split).image_keys}

    def count(entries: Iterator[Entry]) -> Iterator[Entry]:
        for entry in entries:
            name = PurePath(entry.file)
            is_photo = name.suffix.lower() in PHOTO_SUFFIXES
            if is_photo and name.name not in photos and entry.key in known:
                gone.append(entry.key)
            captions[entry.split] += len(entry.captions)
            yield entry

    with tempfile.TemporaryDirectory() as folder:
        entries = count(only_text(options.source.entries(problems), problems))
        plan = plan_shards(entries, Path(folder), options.images_per_shard, problems)
    planned = {shard.path.name: shard.fingerprint for shard in plan.shards}
    shards = (shard for split in records.manifest["splits"].values() for shard in split["shards"])
    # Shards of which every image was skipped are not in the manifest.
    names = {*planned, *(shard["file"] for shard in shards)}
    sidecars = {name: read_sidecar(records.folder / name) or {} for name in names}
    written = {name: sidecar.get("fingerprint") for name, sidecar in sidecars.items()}
    differ = []
    if gone and len(gone) < len(known):
        differ.append(f"{len(gone):,} photos of the records are gone, such as {gone[0]}")
    if planned == written:
        return differ[0] if differ else None
    for split in SPLITS:
        part = records.split(split) if split in splits else None
        images = sum(shard.images for shard in plan.splits.get(split, ()))
        for unit, now, then in (
            ("images", images, len(part) if part else 0),
            ("captions", captions[split], part.num_captions if part else 0),
        ):
            if now != then:
                differ.append(f"{split} has {now:,} {unit}, not {then:,}")
    return ", ".join(differ or ["images have other captions, labels or names"])
