"""Writes the records of a data set: once, in parallel, and so that it can be interrupted."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import tensorflow as tf

from data_pipelines.disk import disk_message
from data_pipelines.files import aside_of, atomic_write, checksum, put_in_place
from data_pipelines.images import to_jpeg
from data_pipelines.locks import locked
from data_pipelines.options import MANIFEST, DataOptions
from data_pipelines.progress import Progress
from data_pipelines.records import (
    VERSION,
    WORDS,
    Records,
    RecordsError,
    ShardWriter,
    check_version,
    parse_object,
    read_sidecar,
    truth_file,
)
from data_pipelines.sources import (
    SPLITS,
    EncodedImage,
    Entry,
    Problems,
    Regions,
    Source,
    SourceError,
    Split,
    UnreadableError,
)
from data_pipelines.sources.text_files import only_text
from data_pipelines.text import count_words

PLAN = "plan.json"


@dataclass(frozen=True)
class _Shard:
    """One shard that is to be written."""

    path: Path
    entries: Sequence[Entry]
    fingerprint: str


class _Allowance:
    """Counts skipped images, and stops the preparation when there are too many."""

    def __init__(self, limit: int, total: int, share: float) -> None:
        self.limit, self.total, self.share = limit, total, share
        self.problems = Problems()
        self._lock = threading.Lock()

    def skip(self, reason: str, what: str) -> None:
        with self._lock:
            self.problems.add(reason, what)
            if self.problems.total > self.limit:
                examples = [e for found in self.problems.examples.values() for e in found]
                raise SourceError(
                    f"more than {self.limit} of {self.total} images cannot be used "
                    f"(data.max_skipped: {self.share:g}). The first ones:\n  "
                    + "\n  ".join(examples)
                    + "\nRepair or remove them, or raise data.max_skipped"
                )


def prepare(options: DataOptions, workers: int | None = None) -> Records:
    """Writes the records of a data set, or what is still missing of them.

    Finished shards are never written again, and nothing half-written is ever visible.

    Args:
        options: The `data` section of a config.
        workers: Threads that read and write; as many as there are processors by default.

    Returns:
        The records.

    Raises:
        SourceError: If the data set cannot be read, or more of it is broken than
            `max_skipped` allows.
        RecordsError: If the folder holds records of something else, or the disk is full.
        LockedError: If another process works in the folder.
    """
    with locked(options.records):
        return _prepare(options, workers or os.cpu_count() or 1)


def _prepare(options: DataOptions, workers: int) -> Records:
    folder = options.records
    found = Problems()
    with Progress("reading annotations", unit="images") as bar:
        watched = _watched(options.source.entries(found), bar)
        entries = _usable(only_text(watched, found), found)
    if not entries["train"]:
        why = f"\n{found}" if found.total else ""
        raise SourceError(f"the source {options.source.name!r} gives no training images{why}")
    folder.mkdir(parents=True, exist_ok=True)
    check_plan(options)
    atomic_write(folder / PLAN, json.dumps(_made_from(options), indent=2).encode())
    shards = [s for split in SPLITS for s in _plan(folder, split, entries[split], options)]
    total = sum(len(shard.entries) for shard in shards)
    allowance = _Allowance(int(options.max_skipped * total), total, options.max_skipped)
    try:
        _write_all(shards, options, allowance, workers)
        return _finish(folder, shards, options.source, found)
    except (OSError, tf.errors.OpError) as error:
        raise RecordsError(disk_message(folder, error)) from error


def _watched(entries: Iterable[Entry], bar: Progress) -> Iterable[Entry]:
    for entry in entries:
        bar.update()
        yield entry


def _usable(entries: Iterable[Entry], problems: Problems) -> dict[Split, list[Entry]]:
    """The entries by split, without repeated keys, empty captions and images without captions."""
    splits: dict[Split, list[Entry]] = {split: [] for split in SPLITS}
    images: set[str] = set()
    captions: set[str] = set()
    for entry in entries:
        if entry.key in images:
            problems.add("image key given twice", entry.key)
            continue
        images.add(entry.key)
        kept = []
        for caption in entry.captions:
            if not any(character.isalnum() for character in caption.text):
                problems.add("caption without words", f"{caption.key}: {caption.text!r}")
            elif caption.key in captions:
                problems.add("caption key given twice", caption.key)
            else:
                captions.add(caption.key)
                kept.append(caption)
        if kept:
            splits[entry.split].append(replace(entry, captions=tuple(kept)))
        else:
            problems.add("image without captions", entry.key)
    return splits


def check_plan(options: DataOptions) -> None:
    """Checks that records, if there are any, were made from the source of a config.

    Where the source lies (`root`) may differ: records can be used without it.

    Raises:
        RecordsError: If they were made from something else.
    """
    path = options.records / PLAN
    if not path.exists():
        return
    old = parse_object(path, path.read_bytes(), "delete it and run the command `prepare`")
    check_version(options.records, old)
    new = _made_from(options)
    for name, field in type(options.source).model_fields.items():
        # An option that there was not yet when the records were made.
        if f"source.{name}" not in old and getattr(options.source, name) == field.default:
            new.pop(f"source.{name}")
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) != new.get(key) and key != "source.root":
            raise RecordsError(
                f"{options.records} holds records made with data.{key}: {old.get(key)}, but it is "
                f"now {new.get(key)}. Choose another folder with data.records, or delete this one"
            )


def _made_from(options: DataOptions) -> dict[str, Any]:
    """What records depend on, by key of the `data` section."""
    source = options.source.model_dump(mode="json")
    return {
        "version": VERSION,
        "images_per_shard": options.images_per_shard,
        **{f"source.{key}": value for key, value in source.items()},
    } | ({"image.store_side": side} if (side := options.image.store_side) else {})


def _plan(
    folder: Path, split: Split, entries: Sequence[Entry], options: DataOptions
) -> list[_Shard]:
    shards = []
    size = options.images_per_shard
    for number, start in enumerate(range(0, len(entries), size)):
        part = entries[start : start + size]
        content = repr([(e.key, e.captions, e.labels) for e in part]).encode()
        shards.append(
            _Shard(
                folder / f"{split}-{number:05d}.tfrecord",
                part,
                hashlib.sha256(content).hexdigest()[:16],
            )
        )
    return shards


def _write_all(
    shards: Sequence[_Shard], options: DataOptions, allowance: _Allowance, workers: int
) -> None:
    total = sum(len(shard.entries) for shard in shards)
    stop = threading.Event()
    with (
        Progress("writing records", total, "images") as bar,
        ThreadPoolExecutor(workers) as pool,
    ):
        jobs = [pool.submit(_write, s, options, allowance, bar, stop) for s in shards]
        try:
            for job in as_completed(jobs):
                job.result()
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise


def _write(
    shard: _Shard,
    options: DataOptions,
    allowance: _Allowance,
    bar: Progress,
    stop: threading.Event,
) -> None:
    """Writes one shard, unless it is finished."""
    sidecar = read_sidecar(shard.path)
    if sidecar is not None:
        if sidecar.get("fingerprint") != shard.fingerprint:
            raise RecordsError(
                f"{shard.path} was written from other images or captions than the source has now. "
                "Choose another folder with data.records, or delete this one"
            )
        if not _is_whole(sidecar, shard.entries):
            raise RecordsError(
                f"{shard.path.with_suffix('.json')} is not as it was written; delete it and run "
                "the command `prepare`, which writes this shard again"
            )
        for reason, what in sidecar["skipped"]:
            allowance.skip(reason, what)
        bar.update(len(shard.entries))
        return
    skipped = []
    with ShardWriter(shard.path) as writer:
        for entry in shard.entries:
            if stop.is_set():
                return
            try:
                writer.write(entry, _readable(options, entry))
            except UnreadableError as error:
                skipped.append(("unreadable image", str(error)))
                allowance.skip(*skipped[-1])
            bar.update()
        writer.finish({"fingerprint": shard.fingerprint, "skipped": skipped})


def _is_whole(sidecar: dict[str, Any], entries: Sequence[Entry]) -> bool:
    """Whether a sidecar tells of every entry, as it is or as skipped."""
    known = {e.key: ([[c.key, c.text] for c in e.captions], list(e.labels)) for e in entries}
    items = sidecar["items"]
    return len(items) + len(sidecar["skipped"]) == len(entries) and all(
        known.get(item["key"]) == (item["captions"], item["labels"]) for item in items
    )


def _readable(options: DataOptions, entry: Entry) -> EncodedImage | Regions:
    image = options.source.read(entry)
    if isinstance(image, EncodedImage):
        name = entry.file or entry.key
        return EncodedImage(to_jpeg(image.data, name, options.image.store_side))
    return image


def _finish(folder: Path, shards: Sequence[_Shard], source: Source, found: Problems) -> Records:
    """Writes what belongs to all shards together, and the manifest last."""
    splits: dict[str, Any] = {}
    num_labels = 0
    regions: set[tuple[int, ...]] = set()
    for shard in shards:
        sidecar = read_sidecar(shard.path)
        if sidecar is None:
            raise RecordsError(f"{shard.path} was removed while the records were written")
        for reason, what in sidecar["skipped"]:
            found.add(reason, what)
        items = sidecar["items"]
        regions |= {tuple(item["regions"]) for item in items}
        num_labels = max([num_labels, *(label + 1 for item in items for label in item["labels"])])
        split = splits.setdefault(shard.path.name.partition("-")[0], {"shards": []})
        split["shards"].append(
            {"file": shard.path.name, "bytes": sidecar["bytes"], "sha256": sidecar["sha256"]}
            | {"sidecar": checksum(shard.path.with_suffix(".json"))}
            | {"images": len(items), "captions": sum(len(item["captions"]) for item in items)}
        )
    for split in splits.values():
        for count in ("images", "captions"):
            split[count] = sum(shard[count] for shard in split["shards"])
    manifest = {
        "version": VERSION,
        "holds": source.holds,
        "region_shape": _region_shape(regions),
        "label_kind": source.label_kind,
        "num_labels": num_labels,
        "splits": splits,
        "problems": {"counts": dict(found.counts), "examples": found.examples},
    }
    records = Records(folder, manifest)
    files = [_write_words(records), *_write_truth(records, source, shards)]
    manifest["files"] = {path.name: checksum(path) for path in files}
    atomic_write(folder / MANIFEST, json.dumps(manifest, indent=1, ensure_ascii=False).encode())
    return records


def _region_shape(shapes: set[tuple[int, ...]]) -> tuple[int | None, int] | None:
    """What the region features of all images have in common: (R, F), with R None if it varies."""
    if shapes <= {()}:
        return None
    numbers, widths = {shape[0] for shape in shapes}, {shape[1] for shape in shapes}
    if len(widths) > 1:
        raise SourceError(f"region features have different widths: {sorted(widths)}")
    return numbers.pop() if len(numbers) == 1 else None, widths.pop()


def _write_words(records: Records) -> Path:
    """Counts the words of the training captions."""
    path = records.folder / WORDS
    counts = count_words(caption.text for caption in records.split("train").captions)
    lines = [f"{word}\t{count}\n" for word, count in counts.most_common()]
    atomic_write(path, "".join(lines).encode())
    return path


def _write_truth(records: Records, source: Source, shards: Sequence[_Shard]) -> Iterator[Path]:
    """Writes which captions are true of which images, where the source knows all of it."""
    entries = {entry.key: entry for shard in shards for entry in shard.entries}
    for name in records.splits:
        split: Split = next(s for s in SPLITS if s == name)
        written = [entries[key] for key in records.split(split).image_keys]
        truth = source.truth(written)
        if truth is not None:
            path = truth_file(records.folder, split)
            aside = aside_of(path, ".npz")
            scipy.sparse.save_npz(aside, truth.astype(np.bool_))
            put_in_place(aside, path)
            yield path
