"""Which images make which shard: decided once, and kept on disk while the shards are written."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from data_pipelines.sources import SPLITS, Caption, Entry, Problems, Split


@dataclass(frozen=True)
class PlannedShard:
    """One shard that is to be written.

    Attributes:
        path: Where it will be.
        split: Its split.
        images: How many images it has.
        fingerprint: A hash of their keys, captions and labels.
    """

    path: Path
    split: Split
    images: int
    fingerprint: str


class ShardPlan:
    """The shards of a data set, split by split, with their entries in a file without a name.

    Args:
        shards: The shards, in order.
        places: Offset and length of the entries of each in the file.
        file: The file.
    """

    def __init__(
        self, shards: Sequence[PlannedShard], places: dict[Path, tuple[int, int]], file: IO[bytes]
    ) -> None:
        self.shards = shards
        self._places = places
        self._file = file

    @property
    def images(self) -> int:
        """How many images all shards have."""
        return sum(shard.images for shard in self.shards)

    def entries(self, shard: PlannedShard) -> list[Entry]:
        """The entries of a shard. Can be called from several threads."""
        offset, length = self._places[shard.path]
        kept = json.loads(os.pread(self._file.fileno(), length, offset))
        return [entry_of(shard.split, told) for told in kept]


def plan_shards(
    entries: Iterable[Entry], folder: Path, images_per_shard: int, problems: Problems
) -> ShardPlan:
    """Divides the entries of a data set into shards.

    Repeated keys, captions without words and images without captions are left out. Memory is for
    one shard a split, and 8 bytes a key.

    Args:
        entries: The entries, in the order of the data set.
        folder: Where the shards will be.
        images_per_shard: How many images a shard has.
        problems: Where what is left out is counted.

    Raises:
        OSError: If the disk of the folder is full or cannot be written.
    """
    with tempfile.TemporaryFile(dir=folder) as raw:
        repeated = _keep(entries, raw)
        raw.seek(0)
        usable = _usable(map(_entry_of_line, raw), repeated, problems)
        return _divide(usable, folder, images_per_shard)


def told_of(entry: Entry) -> list[Any]:
    """What JSON holds of an entry, but for its split."""
    captions = [[caption.key, caption.text] for caption in entry.captions]
    return [entry.key, captions, list(entry.labels), entry.file, entry.position]


def entry_of(split: Split, told: Sequence[Any]) -> Entry:
    """The entry that `told_of` tells of."""
    key, captions, labels, file, position = told
    return Entry(key, split, tuple(Caption(*c) for c in captions), tuple(labels), file, position)


def _entry_of_line(line: bytes) -> Entry:
    split, told = json.loads(line)
    return entry_of(split, told)


def _keep(entries: Iterable[Entry], file: IO[bytes]) -> set[int]:
    """Writes entries, one a line; returns the hashes that several keys have: few, if any."""
    images, captions = array("q"), array("q")
    for entry in entries:
        images.append(hash(entry.key))
        captions.extend(hash(caption.key) for caption in entry.captions)
        file.write(json.dumps([entry.split, told_of(entry)]).encode() + b"\n")
    return _several(images) | _several(captions)


def _several(hashes: array[int]) -> set[int]:
    found = np.sort(np.frombuffer(hashes, np.int64))
    return set(found[1:][found[1:] == found[:-1]].tolist())


def _usable(entries: Iterable[Entry], repeated: set[int], problems: Problems) -> Iterator[Entry]:
    """The entries without repeated keys, captions without words, and images without captions."""
    images: set[str] = set()
    captions: set[str] = set()
    for entry in entries:
        if entry.key in images:
            problems.add("image key given twice", entry.key)
            continue
        if hash(entry.key) in repeated:
            images.add(entry.key)
        kept = []
        for caption in entry.captions:
            if not any(character.isalnum() for character in caption.text):
                problems.add("caption without words", f"{caption.key}: {caption.text!r}")
            elif caption.key in captions:
                problems.add("caption key given twice", caption.key)
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
    places: dict[Path, tuple[int, int]] = {}

    def plan(split: Split) -> None:
        part, waiting[split] = waiting[split], []
        path = folder / f"{split}-{len(shards[split]):05d}.tfrecord"
        content = repr([(e.key, e.captions, e.labels) for e in part]).encode()
        fingerprint = hashlib.sha256(content).hexdigest()[:16]
        shards[split].append(PlannedShard(path, split, len(part), fingerprint))
        offset = file.tell()
        places[path] = offset, file.write(json.dumps([told_of(entry) for entry in part]).encode())

    for entry in entries:
        waiting[entry.split].append(entry)
        if len(waiting[entry.split]) == size:
            plan(entry.split)
    for split in SPLITS:
        if waiting[split]:
            plan(split)
    file.flush()
    return ShardPlan([shard for split in SPLITS for shard in shards[split]], places, file)
