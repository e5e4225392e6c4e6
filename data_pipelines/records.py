"""The records: sharded TFRecord files, their sidecars, and reading them in any order.

A record is one image with all its captions. Beside each shard `train-00000.tfrecord` stands a
sidecar `train-00000.json` with all of it but the image, and with the place of each record in
the shard. A shard is finished when its sidecar is there; both appear whole or not at all. The
file `manifest.json` is written last, and holds the SHA-256 of shards, sidecars, and what belongs to
all shards. The bytes of a record depend on what is in it alone, so checksums hold across machines.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from data_pipelines.caption_features import CaptionFeatures
from data_pipelines.errors import UserError
from data_pipelines.files import atomic_write, checksum
from data_pipelines.open_files import OpenFiles
from data_pipelines.options import MANIFEST
from data_pipelines.sources import Caption, EncodedImage, Entry, Regions, Split

VERSION = 2

FEATURES = "features"
"""The folder, beside the records of images, where records of their features are kept."""


# TFRecord frames a record as: length (8 bytes), its CRC (4), the record, its CRC (4).
_HEADER, _FOOTER = 12, 4


class RecordsError(UserError):
    """Records are missing, damaged, or made from something else; the message says what to do."""


def damage(error: tf.errors.OpError) -> RecordsError | None:
    """The `RecordsError` that a pipeline of TensorFlow has wrapped in an error of its own, if any.

    It keeps of the error of a Python function no more than the text.
    """
    found = re.search(rf"{RecordsError.__name__}: (.+)", error.message)
    return RecordsError(found[1]) if found else None


@dataclass(frozen=True, slots=True)
class Item:
    """One image of a shard, as its sidecar describes it.

    Attributes:
        key: The key of the image in its data set.
        captions: Pairs of key and text.
        labels: Its class, or its labels.
        offset: Where its record begins in the shard, in bytes.
        length: Length of the serialized record, in bytes.
        crc: CRC-32 of the serialized record.
        digest: Digest of the image or its features, for finding duplicates.
        regions: Shape (R, F) of its region features; empty for an image.
    """

    key: str
    captions: tuple[tuple[str, str], ...]
    labels: tuple[int, ...]
    offset: int
    length: int
    crc: int
    digest: str
    regions: tuple[int, ...] = ()


def serialize(entry: Entry, image: EncodedImage | Regions) -> bytes:
    """The record of one image: a serialized `tf.train.Example`."""

    def strings(values: Sequence[bytes]) -> tf.train.Feature:
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))

    def integers(values: Sequence[int]) -> tf.train.Feature:
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    features = {
        "image/key": strings([entry.key.encode()]),
        "caption/keys": strings([caption.key.encode() for caption in entry.captions]),
        "caption/texts": strings([caption.text.encode() for caption in entry.captions]),
        "labels": integers(entry.labels),
    }
    if isinstance(image, EncodedImage):
        features["image/encoded"] = strings([image.data])
    else:
        dtype = "<f2" if image.features.dtype == np.float16 else "<f4"
        regions = np.ascontiguousarray(image.features, dtype)
        features["image/regions"] = strings([regions.tobytes()])
        features["image/regions_shape"] = integers(regions.shape)
    example = tf.train.Example(features=tf.train.Features(feature=features))
    return example.SerializeToString(deterministic=True)


def parse(
    serialized: tf.Tensor,
    region_shape: tuple[int | None, int] | None,
    region_dtype: str = "float32",
) -> dict[str, tf.Tensor]:
    """Reads the image of one record.

    Args:
        serialized: A scalar string.
        region_shape: R (None if it varies) and F of records of regions; None for images.
        region_dtype: How the numbers of regions are kept: "float32", or "float16".

    Returns:
        `encoded`, a scalar string, or `regions`, float32 (R, F).
    """
    scalar = tf.io.FixedLenFeature([], tf.string)
    if region_shape is None:
        encoded = tf.io.parse_single_example(serialized, {"image/encoded": scalar})
        return {"encoded": encoded["image/encoded"]}
    shape = tf.io.FixedLenFeature([2], tf.int64)
    example = tf.io.parse_single_example(
        serialized, {"image/regions": scalar, "image/regions_shape": shape}
    )
    flat = tf.io.decode_raw(example["image/regions"], tf.as_dtype(region_dtype))
    regions = tf.reshape(tf.cast(flat, tf.float32), example["image/regions_shape"])
    return {"regions": tf.ensure_shape(regions, region_shape)}


class ShardWriter:
    """Writes one shard, whole or not at all. A context manager.

    Args:
        path: Where the shard will be.

    Raises:
        OSError: If the disk is full or cannot be written; nothing is left behind then.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.items: list[Item] = []
        self._aside = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
        self._writer = tf.io.TFRecordWriter(str(self._aside))
        self._offset = 0

    def write(self, entry: Entry, image: EncodedImage | Regions) -> None:
        """Adds one image."""
        record = serialize(entry, image)
        self._writer.write(record)
        content = image.data if isinstance(image, EncodedImage) else image.features.tobytes()
        self.items.append(
            Item(
                key=entry.key,
                captions=tuple((c.key, c.text) for c in entry.captions),
                labels=entry.labels,
                offset=self._offset,
                length=len(record),
                crc=zlib.crc32(record),
                digest=hashlib.sha256(content).hexdigest()[:16],
                regions=() if isinstance(image, EncodedImage) else image.features.shape,
            )
        )
        self._offset += _HEADER + len(record) + _FOOTER

    def finish(self, sidecar: dict[str, Any]) -> None:
        """Makes the shard and its sidecar visible.

        Args:
            sidecar: What the sidecar should hold besides the items.
        """
        self._writer.close()
        with self._aside.open("rb") as file:
            os.fsync(file.fileno())
        sha256 = checksum(self._aside)
        os.replace(self._aside, self.path)
        content = {
            "bytes": self._offset,
            "sha256": sha256,
            **sidecar,
            "items": [asdict(item) for item in self.items],
        }
        text = json.dumps(content, ensure_ascii=False)
        atomic_write(self.path.with_suffix(".json"), text.encode("utf-8"))

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            self._writer.close()
        except tf.errors.OpError:
            if kind is None:
                raise
        finally:
            self._aside.unlink(missing_ok=True)


def parse_object(path: Path, content: bytes, way_out: str) -> dict[str, Any]:
    """What a JSON file of the records holds.

    Args:
        path: The file, for the message.
        content: Its bytes.
        way_out: What to do if it is damaged, for the message.

    Raises:
        RecordsError: If it is no JSON object.
    """
    try:
        parsed = json.loads(content)
    except ValueError as error:
        raise RecordsError(f"{path} is damaged ({error}); {way_out}") from None
    if not isinstance(parsed, dict):
        raise RecordsError(f"{path} is damaged (no JSON object is in it); {way_out}")
    return parsed


def check_version(folder: Path, made_from: Mapping[str, Any]) -> None:
    """Refuses records of another version of the format, as their plan or manifest says."""
    version = made_from.get("version")
    if version != VERSION:
        raise RecordsError(
            f"{folder} holds records of version {version}, but version {VERSION} is needed. Delete "
            f"the folder and run the command `{_writer(folder)}`"
        )


def read_sidecar(shard: Path, sha256: str | None = None) -> dict[str, Any] | None:
    """The sidecar of a shard, or None if the shard is not finished.

    Args:
        shard: The shard.
        sha256: The checksum that the sidecar has by the manifest; None before there is one.

    Raises:
        RecordsError: If the sidecar is damaged or has been changed, or the shard is not as long
            as it says.
    """
    path = shard.with_suffix(".json")
    try:
        content = path.read_bytes()
        size = shard.stat().st_size
    except FileNotFoundError:
        return None
    way_out = (
        f"delete it and run the command `{_writer(shard.parent)}`, which writes this shard again"
    )
    sidecar = parse_object(path, content, way_out)
    if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
        raise RecordsError(f"{path} is not as it was written; {way_out}")
    if size != sidecar.get("bytes"):
        raise RecordsError(
            f"{shard} is damaged: it has {size} bytes, not {sidecar.get('bytes')}; {way_out}"
        )
    return sidecar


def _writer(folder: Path) -> str:
    """The mode that writes the records of a folder."""
    return "train" if folder.parent.name == FEATURES else "prepare"


class SplitRecords:
    """The records of one split. Images and captions are numbered in the order of the data set.

    Args:
        folder: The folder of the records.
        split: The split.
        shards: What the manifest says of its shards, in order: `file`, and the SHA-256 of its
            sidecar as `sidecar`.
        region_shape: R (None if it varies) and F of the regions of an image; None for images.
        region_dtype: How the numbers of regions are kept: "float32", or "float16".
        caption_features: Features of the captions, where they were computed.
    """

    def __init__(
        self,
        folder: Path,
        split: Split,
        shards: Sequence[Mapping[str, Any]],
        region_shape: tuple[int | None, int] | None,
        region_dtype: str = "float32",
        caption_features: CaptionFeatures | None = None,
    ) -> None:
        self.caption_features = caption_features
        self.split = split
        self.region_shape = region_shape
        self.region_dtype = region_dtype
        self.shards = [folder / shard["file"] for shard in shards]
        self.items: list[Item] = []
        owner: list[int] = []
        for number, (shard, told) in enumerate(zip(self.shards, shards, strict=True)):
            sidecar = read_sidecar(shard, told["sidecar"])
            if sidecar is None:
                raise RecordsError(
                    f"{shard} or its sidecar is missing; run the command `{_writer(folder)}`"
                )
            for item in sidecar["items"]:
                item["captions"] = tuple(tuple(caption) for caption in item["captions"])
                item["labels"] = tuple(item["labels"])
                self.items.append(Item(**item))
                owner.append(number)
        self._shard_of = np.array(owner, np.int32)
        self._files = OpenFiles()

    @property
    def holds(self) -> str:
        """Whether the records hold "images" or "regions"."""
        return "images" if self.region_shape is None else "regions"

    def __len__(self) -> int:
        return len(self.items)

    @cached_property
    def first_caption(self) -> np.ndarray:
        """Number of the first caption of each image, and of all captions: int64 (images + 1,)."""
        counts = [len(item.captions) for item in self.items]
        return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]).astype(np.int64)

    @property
    def num_captions(self) -> int:
        """How many captions the split has."""
        return int(self.first_caption[-1])

    @cached_property
    def caption_image(self) -> np.ndarray:
        """The image that each caption was written for: int64 (captions,)."""
        return np.repeat(np.arange(len(self)), np.diff(self.first_caption))

    @cached_property
    def image_keys(self) -> list[str]:
        """The key of each image."""
        return [item.key for item in self.items]

    @cached_property
    def captions(self) -> list[Caption]:
        """Every caption."""
        return [Caption(*caption) for item in self.items for caption in item.captions]

    @cached_property
    def labels(self) -> list[tuple[int, ...]]:
        """The class or the labels of each image."""
        return [item.labels for item in self.items]

    def read(self, image: int) -> bytes:
        """The serialized record of one image. Can be called from several threads.

        Raises:
            RecordsError: If the record is damaged.
        """
        item, shard = self.items[image], self.shards[self._shard_of[image]]
        record = self._files.read(shard, item.length, item.offset + _HEADER)
        if zlib.crc32(record) != item.crc:
            raise RecordsError(
                f"{shard} is damaged in the record of {item.key!r} (at byte {item.offset}). "
                f"Delete the shard and run the command `{_writer(shard.parent)}`, which writes it "
                "again"
            )
        return record

    def encoded(self, image: int) -> bytes:
        """The image file in the record of one image; the records must hold images."""
        found: bytes = parse(tf.constant(self.read(image)), None)["encoded"].numpy()
        return found


@dataclass(frozen=True)
class Records:
    """All records of a data set.

    Attributes:
        folder: Where they are.
        manifest: What `manifest.json` says.
        caption_features: Where features of the captions are, if they were computed.
    """

    folder: Path
    manifest: dict[str, Any]
    caption_features: Path | None = None

    @classmethod
    def open(cls, folder: Path) -> Records:
        """Opens finished records.

        Raises:
            RecordsError: If there are none, they are from another version of the format, or the
                manifest is damaged.
        """
        path = folder / MANIFEST
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise RecordsError(
                f"{folder} holds no finished records (no {MANIFEST}); run the command `prepare`"
            ) from None
        way_out = f"delete it and run the command `{_writer(folder)}`, which keeps finished shards"
        manifest = parse_object(path, content, way_out)
        check_version(folder, manifest)
        return cls(folder, manifest)

    @property
    def holds(self) -> str:
        """Whether the records hold "images" or "regions"."""
        return str(self.manifest["holds"])

    @property
    def region_shape(self) -> tuple[int | None, int] | None:
        """Number R (None if it varies) and width F of the regions of an image; None for images."""
        shape = self.manifest["region_shape"]
        return None if shape is None else (shape[0], shape[1])

    @property
    def region_dtype(self) -> str:
        """How the numbers of regions are kept: "float32", or "float16"."""
        return str(self.manifest.get("region_dtype", "float32"))

    @property
    def label_kind(self) -> str:
        """What labels are: "none", "class" or "set"."""
        return str(self.manifest["label_kind"])

    @property
    def num_labels(self) -> int:
        """How many different labels there can be."""
        return int(self.manifest["num_labels"])

    @property
    def splits(self) -> list[str]:
        """The splits that have images."""
        return list(self.manifest["splits"])

    def split(self, name: Split) -> SplitRecords:
        """The records of one split.

        Raises:
            RecordsError: If the data set has no such split, or a shard is missing or damaged.
        """
        if name not in self.manifest["splits"]:
            raise RecordsError(
                f"{self.folder} has no split {name!r}; it has {', '.join(self.splits)}"
            )
        features = self.caption_features
        return SplitRecords(
            self.folder,
            name,
            self.manifest["splits"][name]["shards"],
            self.region_shape,
            self.region_dtype,
            None if features is None else CaptionFeatures.open(features, name),
        )

    def file(self, name: str) -> Path:
        """A file besides the shards.

        Raises:
            RecordsError: If it is missing, or not as it was written.
        """
        path = self.folder / name
        if not path.exists() or checksum(path) != self.manifest["files"].get(name):
            fault = "not as it was written" if path.exists() else "missing"
            raise RecordsError(
                f"{path} is {fault}; delete {MANIFEST} beside it and run "
                f"the command `{_writer(self.folder)}`, which writes both again"
            )
        return path

    def truth(self, split: Split) -> Path | None:
        """The file with the exhaustive truth of a split; None if the data set does not know it.

        Raises:
            RecordsError: If the file is missing, or not as it was written.
        """
        name = truth_file(self.folder, split).name
        return self.file(name) if name in self.manifest["files"] else None

    def word_counts(self) -> Iterator[tuple[str, int]]:
        """Yields every word of the training captions and how often it occurs.

        Raises:
            RecordsError: If the file of words is missing, or not as it was written.
        """
        for line in self.file(WORDS).read_text("utf-8").splitlines():
            word, _, count = line.partition("\t")
            yield word, int(count)


WORDS = "words.tsv"


def truth_file(folder: Path, split: Split) -> Path:
    """Where the exhaustive truth of a split is kept, if its data set knows it."""
    return folder / f"{split}-truth.npz"
