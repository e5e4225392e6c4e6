"""Assignment of images to shards, kept on disk while the shards are written."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from data_pipelines.sources import SPLITS, Caption, Entry, Problems, Split


@dataclass(frozen=True)
class PlannedShard:
    """A planned shard.

    Attributes:
        path: Path of the shard.
        split: Its split.
        images: Number of images.
        fingerprint: Hash of their keys, captions and labels.
        offset: Offset of its entries in the file of the plan.
        length: Their length, in bytes.
    """

    path: Path
    split: Split
    images: int
    fingerprint: str
    offset: int
    length: int


@dataclass(frozen=True, eq=False)
class ShardPlan:
    """Shards of a data set, with their entries in an unnamed temporary file.

    Attributes:
        splits: The shards of each split that has images, in order.
        file: The file.
    """

    splits: Mapping[Split, Sequence[PlannedShard]]
    file: IO[bytes]

    @property
    def shards(self) -> list[PlannedShard]:
        """All shards, split by split."""
        return [shard for shards in self.splits.values() for shard in shards]

    @property
    def images(self) -> int:
        """Total number of images."""
        return sum(shard.images for shard in self.shards)

    def entries(self, shard: PlannedShard) -> list[Entry]:
        """Reads the entries of a shard. Thread-safe."""
        items = json.loads(os.pread(self.file.fileno(), shard.length, shard.offset))
        return [entry_from_json(item) for item in items]


def plan_shards(
    entries: Iterable[Entry], folder: Path, images_per_shard: int, problems: Problems
) -> ShardPlan:
    """Divides the entries of a data set into shards.

    Repeated keys, captions without words and images without captions are skipped. Memory is needed
    for one shard per split, and 8 bytes per key.

    Args:
        entries: The entries, in the order of the data set.
        folder: Folder of the shards.
        images_per_shard: Number of images per shard.
        problems: Counts skipped items.

    Raises:
        OSError: If the disk of the folder is full or cannot be written.
    """
    with tempfile.TemporaryFile(dir=folder) as raw:
        repeated = _write_entries(entries, raw)
        raw.seek(0)
        written = (entry_from_json(json.loads(line)) for line in raw)
        return _divide(_usable(written, repeated, problems), folder, images_per_shard)


def entry_to_json(entry: Entry) -> list[Any]:
    """Converts an entry to JSON; not by pydantic, which refuses unpaired surrogates of names."""
    captions = [[caption.key, caption.text] for caption in entry.captions]
    return [entry.key, entry.split, captions, list(entry.labels), entry.file, entry.position]


def entry_from_json(item: Sequence[Any]) -> Entry:
    """Converts the result of `entry_to_json` back to an entry."""
    key, split, captions, labels, file, position = item
    return Entry(key, split, tuple(Caption(*c) for c in captions), tuple(labels), file, position)


def _write_entries(entries: Iterable[Entry], file: IO[bytes]) -> set[int]:
    """Writes entries, one per line; returns hashes of repeated keys."""
    images, captions = array("q"), array("q")
    for entry in entries:
        images.append(hash(entry.key))
        captions.extend(hash(caption.key) for caption in entry.captions)
        file.write(json.dumps(entry_to_json(entry)).encode() + b"\n")
    return _repeated(images) | _repeated(captions)


def _repeated(hashes: array[int]) -> set[int]:
    values = np.sort(np.frombuffer(hashes, np.int64))
    return set(values[1:][values[1:] == values[:-1]].tolist())


def _usable(entries: Iterable[Entry], repeated: set[int], problems: Problems) -> Iterator[Entry]:
    """Skips repeated keys, captions without words, and images without captions."""
    images: set[str] = set()
    captions: set[str] = set()
    for entry in entries:
        if entry.key in images:
            problems.add("duplicate image key", entry.key)
            continue
        if hash(entry.key) in repeated:
            images.add(entry.key)
        kept = []
        for caption in entry.captions:
            if not any(map(str.isalnum, caption.text)):
                problems.add("caption without words", f"{entry.key}: {caption.text!r}")
            elif caption.key in captions:
                problems.add("duplicate caption key", caption.key)
            else:
                if hash(caption.key) in repeated:
                    captions.add(caption.key)
                kept.append(caption)
        if kept:
            yield replace(entry, captions=tuple(kept))
        else:
            problems.add("image without captions", entry.key)


def _divide(entries: Iterable[Entry], folder: Path, size: int) -> ShardPlan:
    file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (the plan keeps it)
    shards: dict[Split, list[PlannedShard]] = {split: [] for split in SPLITS}
    waiting: dict[Split, list[Entry]] = {split: [] for split in SPLITS}

    def plan(split: Split) -> None:
        part, waiting[split] = waiting[split], []
        path = folder / f"{split}-{len(shards[split]):05d}.tfrecord"
        content = repr([(e.key, e.captions, e.labels) for e in part]).encode()
        fingerprint = hashlib.sha256(content).hexdigest()[:16]
        place = file.tell(), file.write(json.dumps(list(map(entry_to_json, part))).encode())
        shards[split].append(PlannedShard(path, split, len(part), fingerprint, *place))

    for entry in entries:
        waiting[entry.split].append(entry)
        if len(waiting[entry.split]) == size:
            plan(entry.split)
    for split in SPLITS:
        if waiting[split]:
            plan(split)
    file.flush()
    return ShardPlan({split: shards[split] for split in SPLITS if shards[split]}, file)
