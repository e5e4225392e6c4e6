"""Files that are shared by all shards of a data set, and the manifest, which is written last."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from data_pipelines.files import atomic_write, checksum, replace_atomically
from data_pipelines.options import MANIFEST
from data_pipelines.records import WORDS, Records, truth_file
from data_pipelines.shard_plan import PlannedShard, ShardPlan
from data_pipelines.shards import VERSION, RecordsError, read_sidecar
from data_pipelines.sources import Problems, Source, SourceError, Split
from data_pipelines.split_index import SplitIndexWriter, index_file, open_index
from data_pipelines.text import count_words


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
    splits: dict[str, Any] = {}
    num_labels = 0
    for split in dict.fromkeys(shard.split for shard in plan.shards):
        entry = splits[split] = {"shards": [], "images": 0, "captions": 0}
        with SplitIndexWriter(folder / index_file(split)) as index:
            for shard in (shard for shard in plan.shards if shard.split == split):
                sidecar = _sidecar(shard)
                index.append(sidecar)
                _add_shard(entry, shard, sidecar)
                for reason, example in sidecar["skipped"]:
                    problems.add(reason, example)
                shapes |= {tuple(item["regions"]) for item in sidecar["items"]}
                labels = (label for item in sidecar["items"] for label in item["labels"])
                num_labels = max(num_labels, 1 + max(labels, default=-1))
    splits = {split: entry for split, entry in splits.items() if entry["images"]}
    if "train" not in splits:
        raise SourceError(f"no training image can be used\n{problems}")
    files = [folder / index_file(split) for split in splits]
    manifest = {
        "version": VERSION,
        "holds": source.holds,
        "region_shape": _region_shape(shapes),
        "label_kind": source.label_kind,
        "num_labels": num_labels,
        "splits": splits,
        "problems": {"counts": dict(problems.counts), "examples": problems.examples},
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


def _add_shard(split: dict[str, Any], shard: PlannedShard, sidecar: dict[str, Any]) -> None:
    """Adds a shard to the manifest of a split."""
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
    splits: list[Split] = list(dict.fromkeys(shard.split for shard in plan.shards))
    for split in splits:
        shards = [shard for shard in plan.shards if shard.split == split]
        written = set(open_index(folder / index_file(split)).keys)
        entries = (entry for shard in shards for entry in plan.entries(shard))
        truth = source.truth([entry for entry in entries if entry.key in written])
        if truth is not None:
            path = truth_file(folder, split)
            with replace_atomically(path, ".npz") as temporary:
                # Compressing takes as long as computing it.
                scipy.sparse.save_npz(temporary, truth.astype(np.bool_), compressed=False)
            yield path
