"""What belongs to all shards of a data set, and the manifest, which is written last."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from data_pipelines.files import aside_of, atomic_write, checksum, put_in_place
from data_pipelines.options import MANIFEST
from data_pipelines.records import WORDS, Records, truth_file
from data_pipelines.shard_plan import PlannedShard, ShardPlan
from data_pipelines.shards import VERSION, RecordsError, read_sidecar
from data_pipelines.sources import Problems, Source, SourceError, Split
from data_pipelines.split_index import SplitIndexWriter, index_file, open_index
from data_pipelines.text import count_words


def finish_records(folder: Path, plan: ShardPlan, source: Source, found: Problems) -> Records:
    """Writes the indices, the words, the truth where the source knows it, and the manifest.

    Args:
        folder: The folder of the records, with all shards.
        plan: The shards.
        source: Where they come from.
        found: What was wrong with the annotations; what was skipped of the images is added.

    Raises:
        RecordsError: If a shard is missing.
        SourceError: If region features do not go together, or no training image can be used.
        OSError: If the disk is full or cannot be written.
    """
    shapes: set[tuple[int, ...]] = set()
    splits: dict[str, Any] = {}
    num_labels = 0
    for split in dict.fromkeys(shard.split for shard in plan.shards):
        told = splits[split] = {"shards": [], "images": 0, "captions": 0}
        with SplitIndexWriter(folder / index_file(split)) as index:
            for shard in (shard for shard in plan.shards if shard.split == split):
                sidecar = _sidecar(shard)
                index.append(sidecar)
                _tell(told, shard, sidecar)
                for reason, what in sidecar["skipped"]:
                    found.add(reason, what)
                shapes |= {tuple(item["regions"]) for item in sidecar["items"]}
                labels = (label for item in sidecar["items"] for label in item["labels"])
                num_labels = max(num_labels, 1 + max(labels, default=-1))
    splits = {split: told for split, told in splits.items() if told["images"]}
    if "train" not in splits:
        raise SourceError(f"no training image can be used\n{found}")
    files = [folder / index_file(split) for split in splits]
    manifest = {
        "version": VERSION,
        "holds": source.holds,
        "region_shape": _region_shape(shapes),
        "label_kind": source.label_kind,
        "num_labels": num_labels,
        "splits": splits,
        "problems": {"counts": dict(found.counts), "examples": found.examples},
    }
    files += [_write_words(folder), *_write_truth(folder, plan, source)]
    manifest["files"] = {path.name: checksum(path) for path in files}
    atomic_write(folder / MANIFEST, json.dumps(manifest, indent=1, ensure_ascii=False).encode())
    return Records(folder, manifest)


def _sidecar(shard: PlannedShard) -> dict[str, Any]:
    sidecar = read_sidecar(shard.path)
    if sidecar is None:
        raise RecordsError(f"{shard.path} was removed while the records were written")
    return sidecar


def _tell(split: dict[str, Any], shard: PlannedShard, sidecar: dict[str, Any]) -> None:
    """Adds to the manifest of a split what it says of a shard."""
    counts = {
        "images": len(sidecar["items"]),
        "captions": sum(len(item["captions"]) for item in sidecar["items"]),
    }
    split["shards"].append(
        {"file": shard.path.name, "bytes": sidecar["bytes"], "sha256": sidecar["sha256"]}
        | {"sidecar": checksum(shard.path.with_suffix(".json"))}
        | counts
    )
    for name, count in counts.items():
        split[name] += count


def _region_shape(shapes: set[tuple[int, ...]]) -> tuple[int | None, int] | None:
    """What the region features of all images have in common: (R, F), with R None if it varies."""
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
    """Writes which captions are true of which images, where the source knows all of it."""
    if type(source).truth is Source.truth:
        return  # Nothing to ask for, so that entries need not be in memory.
    splits: list[Split] = list(dict.fromkeys(shard.split for shard in plan.shards))
    for split in splits:
        shards = [shard for shard in plan.shards if shard.split == split]
        written = set(open_index(folder / index_file(split)).keys)
        entries = (entry for shard in shards for entry in plan.entries(shard))
        truth = source.truth([entry for entry in entries if entry.key in written])
        if truth is not None:
            path = truth_file(folder, split)
            aside = aside_of(path, ".npz")
            # To compress it takes as long as to compute it.
            scipy.sparse.save_npz(aside, truth.astype(np.bool_), compressed=False)
            put_in_place(aside, path)
            yield path
