"""Records of the features of images, computed once from records of the images."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from data_pipelines.batches import image_batches
from data_pipelines.options import MANIFEST, ImageOptions
from data_pipelines.records import WORDS, Records, SplitRecords, read_index, write_split
from data_pipelines.shards import ShardWriter, disk_errors, read_sidecar, to_half
from data_pipelines.sources import Entry, Regions, Split
from data_pipelines.split_index import index_file
from keras_xmr.utils.files import atomic_write, locked
from keras_xmr.utils.progress import Progress

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
                    if read_sidecar(folder / shard["file"]) is not None:
                        bar.update(shard["images"])
                        continue
                    index = read_index(records.folder, [shard])
                    part = SplitRecords(records, split, [shard], index)
                    encoded = map(encode, image_batches(part, options, batch))
                    _write_shard(part, shard, folder, encoded, bar)
        written = [
            split for split in records.splits if not missing_images(records, [split], folder)
        ]
        with disk_errors(folder):
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
    encoded: Iterable[np.ndarray],
    bar: Progress,
) -> None:
    """Writes the features of the images of one shard."""
    entries = _entries(part)
    with ShardWriter(folder / shard["file"]) as writer, part.naming_damage():
        for batch in encoded:
            for features in to_half(batch, folder, "an image", "train.precompute_features"):
                writer.write(next(entries), Regions(features))
            bar.update(len(batch))
        writer.finish({"made_from": shard["sha256"]})


def _entries(part: SplitRecords) -> Iterator[Entry]:
    """Yields the images of a part, with their captions and labels."""
    ends = part.first_caption[1:].tolist()
    first = 0
    for key, labels, end in zip(part.image_keys, part.labels, ends, strict=True):
        yield Entry(key, part.split, tuple(part.captions[first:end]), labels)
        first = end


def _finish(
    records: Records, splits: Sequence[Split], folder: Path, shape: tuple[int, int]
) -> Records:
    """Copies the unchanged files of the records, and writes the manifest last."""
    files = [records.file(WORDS), *filter(None, map(records.truth, splits))]
    for file in files:
        # Atomic: other runs may be reading files of splits that were written before.
        atomic_write(folder / file.name, file.read_bytes())
    entries = {}
    for split in splits:
        shards = records.manifest["splits"][split]["shards"]
        entries[split] = write_split(folder, split, [shard["file"] for shard in shards])
        files.append(folder / index_file(split))
    manifest = records.manifest | {
        "holds": "regions",
        "region_shape": list(shape),
        "region_dtype": "float16",
        "splits": entries,
    }
    return Records.write(folder, manifest, files)
