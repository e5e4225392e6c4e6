"""Records of the features of images, computed once from records of the images."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from data_pipelines.batches import image_batches
from data_pipelines.files import atomic_write, checksum, locked
from data_pipelines.options import MANIFEST, ImageOptions
from data_pipelines.progress import Progress
from data_pipelines.records import WORDS, Records, SplitRecords, read_index
from data_pipelines.resources import disk_message
from data_pipelines.shards import RecordsError, ShardWriter, finished_sidecar, read_sidecar
from data_pipelines.sources import Entry, Regions, Split
from data_pipelines.split_index import index_file, write_index

Encode = Callable[[tf.Tensor], np.ndarray]
"""Maps pixels uint8 (B, H, W, 3) to features (B, L, F) of any float type."""


def write_features(
    records: Records,
    splits: Sequence[Split],
    folder: Path,
    encode: Encode,
    shape: tuple[int, int],
    options: ImageOptions,
    batch: int,
) -> Records:
    """Writes the missing features of images as records of regions.

    They have the same images and captions in the same order, in the same shards. Splits that were
    written before are kept. Numbers are stored in half precision. Finished shards are not written
    again, and incomplete files are never visible.

    Args:
        records: Records of images.
        splits: The required splits.
        folder: Folder of the features.
        encode: Computes features.
        shape: L and F of an image.
        options: Options of decoding; as in evaluation.
        batch: Number of images per batch.

    Returns:
        Records that hold regions (L, F).

    Raises:
        RecordsError: If a record is damaged, a feature overflows half precision, or the disk is
            full.
        LockedError: If another process works in the folder.
    """
    features = open_features(folder)
    missing = missing_images(records, splits, folder)
    if features is not None and not missing and set(splits) <= set(features.splits):
        return features
    with locked(folder):
        shards = {split: records.manifest["splits"][split]["shards"] for split in splits}
        total = sum(shard["images"] for split_shards in shards.values() for shard in split_shards)
        with Progress("computing features", total, "images") as bar:
            for split, split_shards in shards.items():
                for shard in split_shards:
                    index = read_index(records.folder, [shard])
                    part = SplitRecords(records.folder, split, [shard], index, None)
                    _write_shard(part, shard, folder, encode, options, batch, bar)
        written = {
            split: manifest["shards"]
            for split, manifest in records.manifest["splits"].items()
            if not missing_images(records, [split], folder)
        }
        return _finish(records, written, folder, shape)


def open_features(folder: Path) -> Records | None:
    """Opens the features; returns None if they were not computed.

    Raises:
        RecordsError: If their manifest is damaged.
    """
    return Records.open(folder) if (folder / MANIFEST).exists() else None


def missing_images(records: Records, splits: Sequence[Split], folder: Path) -> int:
    """Returns the number of images of some splits without features in a folder."""
    return sum(
        shard["images"]
        for split in splits
        for shard in records.manifest["splits"][split]["shards"]
        if not all((folder / shard["file"]).with_suffix(s).exists() for s in (".tfrecord", ".json"))
    )


def _write_shard(
    part: SplitRecords,
    shard: dict[str, Any],
    folder: Path,
    encode: Encode,
    options: ImageOptions,
    batch: int,
    bar: Progress,
) -> None:
    """Writes the features of the images of one shard, unless they exist."""
    path = folder / shard["file"]
    if read_sidecar(path) is not None:
        bar.update(len(part))
        return
    entries = _entries(part)
    with _on_disk(folder, ShardWriter, path) as writer, part.naming_damage():
        for pixels in image_batches(part, options, batch):
            for features in _half(encode(pixels), folder):
                _on_disk(folder, writer.write, next(entries), Regions(features))
            bar.update(len(pixels))
        _on_disk(folder, writer.finish, {"made_from": shard["sha256"]})


def _on_disk(folder: Path, work: Callable[..., Any], *arguments: Any) -> Any:
    """Calls a function that writes, and converts errors of the disk, not those of encoding."""
    try:
        return work(*arguments)
    except (OSError, tf.errors.OpError) as error:
        raise RecordsError(disk_message(folder, error)) from error


def _half(features: np.ndarray, folder: Path) -> np.ndarray:
    """Converts features to half precision, whose maximum is 65,504."""
    with np.errstate(over="ignore"):
        half = features.astype(np.float16)
    if not np.isfinite(half).all():
        raise RecordsError(
            f"{folder}: a feature of an image is {np.abs(features).max():g}, which half precision "
            "cannot hold; train without train.precompute_features"
        )
    return half


def _entries(part: SplitRecords) -> Iterator[Entry]:
    """Yields the images of a part, with their captions and labels."""
    ends = part.first_caption[1:].tolist()
    first = 0
    for key, labels, end in zip(part.image_keys, part.labels, ends, strict=True):
        yield Entry(key, part.split, tuple(part.captions[first:end]), labels)
        first = end


def _finish(
    records: Records, shards: dict[Split, Any], folder: Path, shape: tuple[int, int]
) -> Records:
    """Copies the unchanged files of the records, and writes the manifest last."""
    splits: dict[str, Any] = {}
    files = [records.file(WORDS), *filter(None, (records.truth(split) for split in shards))]
    for file in files:
        # Atomic: other runs may be reading files of splits that were written before.
        _on_disk(folder, atomic_write, folder / file.name, file.read_bytes())
    for split, split_shards in shards.items():
        whole = records.manifest["splits"][split]
        splits[split] = {name: whole[name] for name in ("images", "captions")}
        splits[split]["shards"] = _on_disk(folder, _write_index, folder, split, split_shards)
        files.append(folder / index_file(split))
    manifest = records.manifest | {
        "holds": "regions",
        "region_shape": list(shape),
        "region_dtype": "float16",
        "splits": splits,
        "files": {file.name: checksum(file) for file in files},
    }
    content = json.dumps(manifest, indent=1, ensure_ascii=False).encode()
    _on_disk(folder, atomic_write, folder / MANIFEST, content)
    return Records(folder, manifest)


def _write_index(folder: Path, split: Split, shards: Sequence[Any]) -> list[dict[str, Any]]:
    """Writes the index of a split; returns the entries of its shards in the manifest."""
    entries = []
    with write_index(folder / index_file(split)) as append:
        for shard in shards:
            path = folder / shard["file"]
            sidecar = finished_sidecar(path)
            append(sidecar)
            changed = {name: sidecar[name] for name in ("bytes", "sha256")}
            changed["sidecar"] = checksum(path.with_suffix(".json"))
            entries.append(shard | changed)
    return entries
