"""Assignment of images to shards."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter

from data_pipelines.sources import SPLITS, Entry, Problems, Split
from keras_xmr.utils.json_entries import has_words

_ENTRIES = TypeAdapter(list[Entry])


@dataclass(frozen=True)
class ShardTask:
    """A shard to write.

    Attributes:
        path: Path of the shard.
        split: The split.
        images: Number of images.
        captions: Number of their captions.
        fingerprint: Hash of their keys, captions and labels.
        packed: The images, compressed: millions of captions fit into memory.
    """

    path: Path
    split: Split
    images: int
    captions: int
    fingerprint: str
    packed: bytes

    @classmethod
    def pack(cls, path: Path, entries: list[Entry]) -> ShardTask:
        """Builds the task of a shard of some images of one split."""
        content = repr([(e.key, e.captions, e.labels) for e in entries]).encode()
        fingerprint = hashlib.sha256(content).hexdigest()[:16]
        packed = zlib.compress(_ENTRIES.dump_json(entries), 1)
        captions = sum(len(entry.captions) for entry in entries)
        return cls(path, entries[0].split, len(entries), captions, fingerprint, packed)

    @property
    def entries(self) -> list[Entry]:
        """The images."""
        return _ENTRIES.validate_json(zlib.decompress(self.packed))


def plan_shards(
    entries: Iterable[Entry], folder: Path, images_per_shard: int, problems: Problems
) -> dict[Split, list[ShardTask]]:
    """Divides the images of a data set into shards, by split.

    Repeated keys, captions without words and images without captions are skipped.

    Args:
        entries: The images, in the order of the data set.
        folder: Folder of the shards.
        images_per_shard: Number of images per shard.
        problems: Counts skipped items.
    """
    plan: dict[Split, list[ShardTask]] = {split: [] for split in SPLITS}
    waiting: dict[Split, list[Entry]] = {split: [] for split in SPLITS}

    def finish(split: Split) -> None:
        path = folder / f"{split}-{len(plan[split]):05d}.tfrecord"
        plan[split].append(ShardTask.pack(path, waiting[split]))
        waiting[split] = []

    for entry in _usable(entries, problems):
        waiting[entry.split].append(entry)
        if len(waiting[entry.split]) == images_per_shard:
            finish(entry.split)
    for split in SPLITS:
        if waiting[split]:
            finish(split)
    return {split: tasks for split, tasks in plan.items() if tasks}


def _usable(entries: Iterable[Entry], problems: Problems) -> Iterator[Entry]:
    """Skips repeated keys, captions without words, and images without captions."""
    images: set[str] = set()
    captions: set[str] = set()
    for entry in entries:
        if entry.key in images:
            problems.add("duplicate image key", entry.key)
            continue
        images.add(entry.key)
        kept = []
        for caption in entry.captions:
            if not has_words(caption.text):
                problems.add("caption without words", f"{entry.key}: {caption.text!r}")
            elif caption.key in captions:
                problems.add("duplicate caption key", caption.key)
            else:
                captions.add(caption.key)
                kept.append(caption)
        if kept:
            yield replace(entry, captions=tuple(kept))
        else:
            problems.add("image without captions", entry.key)
