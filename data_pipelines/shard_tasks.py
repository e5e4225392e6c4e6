"""Writing of one shard, in this process, in another, or on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_pipelines.images import to_jpeg
from data_pipelines.options import DataOptions
from data_pipelines.shards import RecordsError, ShardWriter, disk_errors, read_sidecar
from data_pipelines.sources import EncodedImage, Entry, Regions, UnreadableError

Skipped = list[tuple[str, str]]
"""Skipped items: pairs of reason and description."""

ReportProgress = Callable[[int], None]
"""Callback with the number of finished images; raises `StoppedError` to cancel."""


class StoppedError(Exception):
    """The shard was cancelled."""


@dataclass(frozen=True)
class ShardTask:
    """A shard to write.

    Attributes:
        path: Path of the shard.
        entries: Its images.
        fingerprint: Hash of their keys, captions and labels.
        limit: Maximum number of skipped images.
    """

    path: Path
    entries: Sequence[Entry]
    fingerprint: str
    limit: int


def write_shard(options: DataOptions, task: ShardTask, report: ReportProgress) -> Skipped:
    """Writes one shard, unless it is finished.

    Args:
        options: The `data` section of a config.
        task: The shard.
        report: Callback after every image.

    Returns:
        The skipped items. The shard is not finished if they are more than the limit.

    Raises:
        RecordsError: If a finished shard has other content, or the disk is full.
        StoppedError: From `report`.
    """
    with disk_errors(task.path.parent):
        sidecar = read_sidecar(task.path)
        if sidecar is None:
            return _write(options, task, report)
    _check(sidecar, task)
    report(len(task.entries))
    return [(reason, item) for reason, item in sidecar["skipped"]]


def _check(sidecar: dict[str, Any], task: ShardTask) -> None:
    """Rejects a finished shard of other images, or with a changed sidecar."""
    if sidecar.get("fingerprint") != task.fingerprint:
        raise RecordsError(
            f"{task.path} was written from other images or captions than the source has now. "
            "Choose another folder with data.records, or delete this one"
        )
    if not _is_whole(sidecar, task.entries):
        raise RecordsError(
            f"{task.path.with_suffix('.json')} is not as it was written; delete it and run "
            "the command `prepare`, which writes this shard again"
        )


def _is_whole(sidecar: dict[str, Any], entries: Sequence[Entry]) -> bool:
    """Whether a sidecar has every entry, as an item or as skipped."""
    known = {e.key: ([[c.key, c.text] for c in e.captions], list(e.labels)) for e in entries}
    items = sidecar["items"]
    return len(items) + len(sidecar["skipped"]) == len(entries) and all(
        known.get(item["key"]) == (item["captions"], item["labels"]) for item in items
    )


def _write(options: DataOptions, task: ShardTask, report: ReportProgress) -> Skipped:
    skipped: Skipped = []
    with ShardWriter(task.path) as writer:
        for entry in task.entries:
            try:
                writer.write(entry, _readable(options, entry))
            except UnreadableError as error:
                skipped.append(("unreadable image", str(error)))
                if len(skipped) > task.limit:
                    return skipped
            report(1)
        writer.finish({"fingerprint": task.fingerprint, "skipped": skipped})
    return skipped


def _readable(options: DataOptions, entry: Entry) -> EncodedImage | Regions:
    image = options.source.read(entry)
    if isinstance(image, EncodedImage):
        name = entry.file or entry.key
        return EncodedImage(to_jpeg(image.data, name, options.image.store_side))
    return image
