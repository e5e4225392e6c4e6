"""Records: sharded TFRecord files, their metadata, and random access.

A record is one image with all its captions. Each shard `train-00000.tfrecord` has a sidecar
`train-00000.json` with its content except the images, and with the offset of each record. A shard
is finished when its sidecar exists; both are written atomically. The sidecars of a split are merged
into `train-index.safetensors`, which is memory-mapped. `manifest.json` is written last, and holds
the SHA-256 of all other files. The bytes of a record depend only on its content, so checksums are
the same on all machines.
"""

from __future__ import annotations

import json
import os
import re
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tensorflow as tf
from pydantic import BaseModel, Field

from data_pipelines.features import Features
from data_pipelines.options import MANIFEST
from data_pipelines.shards import (
    HEADER,
    Count,
    RecordsError,
    check_size,
    check_version,
    command_for,
    finished_sidecar,
    parse_object,
)
from data_pipelines.sources import Split
from data_pipelines.split_index import SplitIndex, index_file, open_index, write_index
from keras_xmr.utils.files import atomic_write, checksum

LIMIT = 64
"""Maximum number of open files; most systems allow about 1,000 per process."""


class _OpenFile:
    """Open file, closed with its last reference: that of the cache, or of a thread that reads."""

    def __init__(self, path: Path) -> None:
        self.number = os.open(path, os.O_RDONLY)
        # Not at exit, when threads may still be reading: the system closes it.
        weakref.finalize(self, os.close, self.number).atexit = False


class OpenFiles:
    """Cache of the last `limit` open files. Thread-safe; the files are closed with the object.

    Args:
        limit: Maximum number of open files, unless more threads are reading.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self._open = lru_cache(maxsize=limit)(_OpenFile)

    def read(self, path: Path, length: int, offset: int) -> bytes:
        """Reads a part of a file; fewer than `length` bytes at its end.

        Args:
            path: The file.
            length: Number of bytes.
            offset: Position of the first byte.

        Raises:
            OSError: If the file cannot be read.
        """
        file = self._open(path)  # The reference keeps it open.
        return os.pread(file.number, length, offset)


def records_error(error: tf.errors.OpError) -> RecordsError | None:
    """Returns the `RecordsError` inside an error of TensorFlow, or None.

    TensorFlow keeps only the text of an exception of a Python function.
    """
    match = re.search(rf"{RecordsError.__name__}: (.+)", error.message)
    return RecordsError(match[1]) if match else None


class SplitRecords:
    """Records of one split. Images and captions are indexed in the order of the data set.

    Args:
        records: The records of all splits.
        split: The split.
        shards: Entries of its shards in the manifest, in order: `file`, and its size as `bytes`.
        index: Metadata of its images.
        image_features: Features of the images, if they were computed, which replace these.
        caption_features: Features of the captions, if they were computed.

    Attributes:
        holds: What images are read as: "images" or "regions".
        region_shape: R (None if it varies) and F of the regions of an image; None for images.
        region_dtype: Stored type of regions: "float32" or "float16".
        first_caption: First caption of each image, and the number of captions: int64 (images + 1,).
        image_keys: Keys of the images.
        captions: Captions with their keys.
        texts: Texts of the captions.
        labels: Class or labels of each image.

    Raises:
        RecordsError: If a shard is missing, or its size has changed.
    """

    def __init__(
        self,
        records: Records,
        split: Split,
        shards: Sequence[Mapping[str, Any]],
        index: SplitIndex,
        image_features: Features | None = None,
        caption_features: Features | None = None,
    ) -> None:
        self.image_features, self.caption_features = image_features, caption_features
        self.split = split
        self.holds = records.holds if image_features is None else "regions"
        self.region_shape = records.region_shape
        self.region_dtype = records.region_dtype
        self.index = index
        self.first_caption: np.ndarray = index.columns["first_caption"]
        self.image_keys = index.keys
        self.captions = index.captions
        self.texts = index.texts
        self.labels = index.labels
        self.shards = [records.folder / shard["file"] for shard in shards]
        self._checksums = [shard["sha256"] for shard in shards]
        for path, shard in zip(self.shards, shards, strict=True):
            check_size(path, shard["bytes"])
        self._files = OpenFiles()

    def __len__(self) -> int:
        return len(self.index.keys)

    @property
    def num_captions(self) -> int:
        """Number of captions."""
        return int(self.first_caption[-1])

    @cached_property
    def caption_image(self) -> np.ndarray:
        """Index of the image of each caption: int64 (captions,)."""
        return np.repeat(np.arange(len(self)), np.diff(self.first_caption))

    def read(self, image: int) -> bytes:
        """Reads the serialized record of one image. Thread-safe.

        Raises:
            RecordsError: If the record is damaged.
        """
        offset, length, crc, number = (
            int(self.index.columns[name][image]) for name in ("offset", "length", "crc", "shard")
        )
        shard = self.shards[number]
        record = self._files.read(shard, length, offset + HEADER)
        if zlib.crc32(record) != crc:
            raise RecordsError(
                f"{shard} is damaged in the record of {self.image_keys[image]!r} (at byte "
                f"{offset}). Delete the shard and run the command `{command_for(shard.parent)}`, "
                "which writes it again"
            )
        return record

    @contextmanager
    def naming_damage(self) -> Iterator[None]:
        """Converts errors of TensorFlow about any damaged record to an error that names the record.

        Raises:
            RecordsError: If TensorFlow fails within the block, and a record is damaged, or features
                are.
        """
        try:
            yield
        except tf.errors.UnknownError as error:
            raise records_error(error) or error from None
        except (tf.errors.DataLossError, tf.errors.InvalidArgumentError):
            for image in range(len(self)):
                self.read(image)
            # The framing of the records may be damaged, too.
            for shard, expected in zip(self.shards, self._checksums, strict=True):
                if checksum(shard) != expected:
                    raise RecordsError(
                        f"{shard} is damaged: its checksum is not the one in {MANIFEST}. Delete "
                        f"the shard and run the command `{command_for(shard.parent)}`, which "
                        "writes it again"
                    ) from None
            raise

    def parse(self, serialized: tf.Tensor) -> tf.Tensor:
        """Parses the image of one record.

        Args:
            serialized: A scalar string.

        Returns:
            The image file, a scalar string, or its regions, float32 (R, F).
        """
        scalar = tf.io.FixedLenFeature([], tf.string)
        if self.region_shape is None:
            example = tf.io.parse_single_example(serialized, {"image/encoded": scalar})
            return example["image/encoded"]
        shape = tf.io.FixedLenFeature([2], tf.int64)
        example = tf.io.parse_single_example(
            serialized, {"image/regions": scalar, "image/regions_shape": shape}
        )
        flat = tf.io.decode_raw(example["image/regions"], tf.as_dtype(self.region_dtype))
        regions = tf.reshape(tf.cast(flat, tf.float32), example["image/regions_shape"])
        return tf.ensure_shape(regions, self.region_shape)

    def encoded(self, image: int) -> bytes:
        """Reads the image file in a record; the records must hold images."""
        encoded: bytes = self.parse(tf.constant(self.read(image))).numpy()
        return encoded

    def regions(self, images: np.ndarray) -> np.ndarray:
        """Reads regions of images with the same number of regions: float32 (N, R, F)."""
        if self.image_features is not None:
            return self.image_features.read(images)
        return np.stack([self.parse(tf.constant(self.read(int(image)))) for image in images])


def read_index(folder: Path, shards: Sequence[Mapping[str, Any]]) -> SplitIndex:
    """Reads the metadata of the images of some shards from their sidecars.

    Args:
        folder: The folder of the records.
        shards: Their entries in the manifest: `file`, and the SHA-256 of the sidecar as `sidecar`.

    Raises:
        RecordsError: If a sidecar is missing or has changed.
    """
    return SplitIndex.from_sidecars(
        finished_sidecar(folder / shard["file"], shard["sidecar"]) for shard in shards
    )


def write_split(
    folder: Path,
    split: Split,
    shards: Iterable[str],
    visit: Callable[[dict[str, Any]], None] = lambda sidecar: None,
) -> dict[str, Any]:
    """Writes the index of a split of finished shards; returns its entry in the manifest.

    Args:
        folder: The folder of the records.
        split: The split.
        shards: The file names of its shards, in order.
        visit: Called with each sidecar.

    Raises:
        RecordsError: If a shard is missing.
        OSError: If the disk is full or cannot be written.
    """
    written: list[dict[str, Any]] = []

    def sidecars() -> Iterator[dict[str, Any]]:
        for name in shards:
            sidecar = finished_sidecar(folder / name)
            visit(sidecar)
            shard = {
                "file": name,
                "bytes": sidecar["bytes"],
                "sha256": sidecar["sha256"],
                "sidecar": checksum((folder / name).with_suffix(".json")),
                "images": len(sidecar["items"]),
                "captions": sum(len(item["captions"]) for item in sidecar["items"]),
            }
            written.append(shard)
            yield sidecar

    write_index(folder / index_file(split), sidecars())
    totals = {unit: sum(shard[unit] for shard in written) for unit in ("images", "captions")}
    return {"shards": written, **totals}


class _Shard(BaseModel):
    file: Annotated[str, Field(pattern=r"^[\w-]+\.tfrecord$")]
    bytes: Count
    sha256: str
    sidecar: str
    images: Count
    captions: Count


class _Split(BaseModel):
    shards: list[_Shard]
    images: Count
    captions: Count


class _Manifest(BaseModel):
    """Schema of the manifest, to detect damage."""

    holds: Literal["images", "regions"]
    region_shape: tuple[Count | None, Count] | None
    region_dtype: Literal["float16", "float32"] = "float32"
    label_kind: Literal["none", "class", "set"]
    num_labels: Count
    splits: dict[Split, _Split]
    problems: dict[str, dict[str, Any]]
    files: dict[str, str]


OpenFeatures = Callable[[SplitIndex], Features | None]
"""Opens the features of the items of a split; None if some are missing."""


@dataclass(frozen=True)
class Records:
    """Records of all splits of a data set.

    Attributes:
        folder: Folder of the records.
        manifest: Content of `manifest.json`.
        image_features: Opens the features of the images of a split, which replace these, if all of
            them were computed.
        caption_features: The same for its captions.
        more_captions: Additional captions of the training split, by the key of their image: pairs
            of key and text.
    """

    folder: Path
    manifest: dict[str, Any]
    image_features: OpenFeatures | None = None
    caption_features: OpenFeatures | None = None
    more_captions: Mapping[str, Sequence[tuple[str, str]]] = field(default_factory=dict)

    @classmethod
    def open(cls, folder: Path) -> Records:
        """Opens finished records.

        Raises:
            RecordsError: If they do not exist, have another version of the format, or the manifest
                is damaged.
        """
        path = folder / MANIFEST
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise RecordsError(
                f"{folder} holds no finished records (no {MANIFEST}); run the command `prepare`"
            ) from None
        hint = f"delete it and run the command `{command_for(folder)}`, which keeps finished shards"
        check_version(folder, parse_object(path, content, hint))
        return cls(folder, parse_object(path, content, hint, _Manifest))

    @classmethod
    def write(cls, folder: Path, manifest: dict[str, Any], files: Iterable[Path]) -> Records:
        """Writes the manifest, which is the last file of finished records.

        Args:
            folder: The folder of the records.
            manifest: The manifest without `files`.
            files: The files other than shards, or copies of them.
        """
        manifest = manifest | {"files": {file.name: checksum(file) for file in files}}
        content = json.dumps(manifest, indent=1, ensure_ascii=False).encode()
        atomic_write(folder / MANIFEST, content)
        return cls(folder, manifest)

    @property
    def holds(self) -> str:
        """Content of the records: "images" or "regions"."""
        return str(self.manifest["holds"])

    @property
    def region_shape(self) -> tuple[int | None, int] | None:
        """Number R (None if it varies) and width F of the regions of an image; None for images."""
        shape = self.manifest["region_shape"]
        return None if shape is None else (shape[0], shape[1])

    @property
    def region_dtype(self) -> str:
        """Stored type of regions: "float32" or "float16"."""
        return str(self.manifest.get("region_dtype", "float32"))

    @property
    def label_kind(self) -> str:
        """Kind of labels: "none", "class" or "set"."""
        return str(self.manifest["label_kind"])

    @property
    def splits(self) -> list[Split]:
        """Names of the splits."""
        return list(self.manifest["splits"])

    def without_features(self) -> Records:
        """Returns these records without features, to be read from images and texts."""
        return replace(self, image_features=None, caption_features=None)

    def split(self, name: Split) -> SplitRecords:
        """Opens the records of one split.

        Raises:
            RecordsError: If the data set has no such split, or a shard is missing or damaged.
        """
        if name not in self.manifest["splits"]:
            raise RecordsError(
                f"{self.folder} has no split {name!r}, only {', '.join(self.splits)}: the source "
                f"has no image in it, as may happen to a few images that are split at random. "
                "Choose one of these (evaluation.splits), or prepare again with more images"
            )
        shards = self.manifest["splits"][name]["shards"]
        if index_file(name) in self.manifest["files"]:
            index = open_index(self.file(index_file(name)))
        else:  # Older records have no index.
            index = read_index(self.folder, shards)
        if name == "train":
            index = index.with_captions(self.more_captions)
        images, captions = (
            None if opened is None else opened(index)
            for opened in (self.image_features, self.caption_features)
        )
        return SplitRecords(self, name, shards, index, images, captions)

    def file(self, name: str) -> Path:
        """Returns the path of a file other than shards, after verifying its checksum.

        Raises:
            RecordsError: If it is missing or has changed.
        """
        path = self.folder / name
        if not path.exists() or checksum(path) != self.manifest["files"].get(name):
            fault = "not as it was written" if path.exists() else "missing"
            raise RecordsError(
                f"{path} is {fault}; delete {MANIFEST} in the same folder and run "
                f"the command `{command_for(self.folder)}`, which writes both again"
            )
        return path

    def truth(self, split: Split) -> Path | None:
        """Returns the file with the exhaustive ground truth of a split; None if it is not known.

        Raises:
            RecordsError: If the file is missing or has changed.
        """
        name = truth_file(self.folder, split).name
        return self.file(name) if name in self.manifest["files"] else None

    def word_counts(self) -> Iterator[tuple[str, int]]:
        """Yields every word of the training captions and its count.

        Raises:
            RecordsError: If the file of words is missing or has changed.
        """
        for line in self.file(WORDS).read_text("utf-8").splitlines():
            word, _, count = line.partition("\t")
            yield word, int(count)


WORDS = "words.tsv"


def truth_file(folder: Path, split: Split) -> Path:
    """Returns the path of the exhaustive ground truth of a split."""
    return folder / f"{split}-truth.npz"
