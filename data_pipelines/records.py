"""The records: sharded TFRecord files, what lies beside them, and reading them in any order.

A record is one image with all its captions. Beside each shard `train-00000.tfrecord` stands a
sidecar `train-00000.json` with all of it but the image, and with the place of each record in
the shard. A shard is finished when its sidecar is there; both appear whole or not at all. What all
sidecars of a split say stands once more in `train-index.safetensors`, which is mapped. The file
`manifest.json` is written last, and holds the SHA-256 of shards, sidecars, and what belongs to all
shards. The bytes of a record depend on what is in it alone, so checksums hold across machines.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tensorflow as tf
from pydantic import BaseModel, Field

from data_pipelines.caption_features import CaptionFeatures, features_name
from data_pipelines.columns import Strings, Tuples
from data_pipelines.files import checksum
from data_pipelines.open_files import OpenFiles
from data_pipelines.options import MANIFEST
from data_pipelines.shards import (
    HEADER,
    Count,
    RecordsError,
    check_version,
    command_for,
    parse_object,
    read_sidecar,
)
from data_pipelines.sources import Split
from data_pipelines.split_index import Captions, SplitIndex, index_file, open_index


def damage(error: tf.errors.OpError) -> RecordsError | None:
    """The `RecordsError` that a pipeline of TensorFlow has wrapped in an error of its own, if any.

    It keeps of the error of a Python function no more than the text.
    """
    found = re.search(rf"{RecordsError.__name__}: (.+)", error.message)
    return RecordsError(found[1]) if found else None


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


class SplitRecords:
    """The records of one split. Images and captions are numbered in the order of the data set.

    Args:
        folder: The folder of the records.
        split: The split.
        shards: What the manifest says of its shards, in order: `file`, and its size as `bytes`.
        index: What is known of its images.
        region_shape: R (None if it varies) and F of the regions of an image; None for images.
        region_dtype: How the numbers of regions are kept: "float32", or "float16".
        caption_features: Features of the captions, where they were computed.

    Raises:
        RecordsError: If a shard is missing, or not as long as it was.
    """

    def __init__(
        self,
        folder: Path,
        split: Split,
        shards: Sequence[Mapping[str, Any]],
        index: SplitIndex,
        region_shape: tuple[int | None, int] | None,
        region_dtype: str = "float32",
        caption_features: CaptionFeatures | None = None,
    ) -> None:
        self.caption_features = caption_features
        self.split = split
        self.region_shape = region_shape
        self.region_dtype = region_dtype
        self.index = index
        self.shards = [folder / shard["file"] for shard in shards]
        self._checksums = [shard["sha256"] for shard in shards]
        for shard, told in zip(self.shards, shards, strict=True):
            _check_size(shard, told["bytes"])
        self._files = OpenFiles()

    @property
    def holds(self) -> str:
        """Whether the records hold "images" or "regions"."""
        return "images" if self.region_shape is None else "regions"

    def __len__(self) -> int:
        return len(self.index.keys)

    @property
    def first_caption(self) -> np.ndarray:
        """Number of the first caption of each image, and of all captions: int64 (images + 1,)."""
        return self.index.columns["first_caption"]

    @property
    def num_captions(self) -> int:
        """How many captions the split has."""
        return int(self.first_caption[-1])

    @cached_property
    def caption_image(self) -> np.ndarray:
        """The image that each caption was written for: int64 (captions,)."""
        return np.repeat(np.arange(len(self)), np.diff(self.first_caption))

    @property
    def image_keys(self) -> Strings:
        """The key of each image."""
        return self.index.keys

    @property
    def captions(self) -> Captions:
        """Every caption."""
        return self.index.captions

    @property
    def texts(self) -> Strings:
        """What each caption says."""
        return self.index.texts

    @property
    def labels(self) -> Tuples:
        """The class or the labels of each image."""
        return self.index.labels

    def read(self, image: int) -> bytes:
        """The serialized record of one image. Can be called from several threads.

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
        """Names the damaged record where TensorFlow, reading all shards, says only that one is.

        Raises:
            RecordsError: If TensorFlow fails at a record within the block, and one is damaged.
        """
        try:
            yield
        except (tf.errors.DataLossError, tf.errors.InvalidArgumentError):
            for image in range(len(self)):
                self.read(image)
            # What frames the records may be damaged, too.
            for shard, expected in zip(self.shards, self._checksums, strict=True):
                if checksum(shard) != expected:
                    raise RecordsError(
                        f"{shard} is damaged: its checksum is not the one in {MANIFEST}. Delete "
                        f"the shard and run the command `{command_for(shard.parent)}`, which "
                        "writes it again"
                    ) from None
            raise

    def encoded(self, image: int) -> bytes:
        """The image file in the record of one image; the records must hold images."""
        found: bytes = parse(tf.constant(self.read(image)), None)["encoded"].numpy()
        return found

    def regions(self, images: np.ndarray) -> np.ndarray:
        """The regions of some images, float32 (N, R, F); all must have the same number of them."""
        read = (tf.constant(self.read(int(image))) for image in images)
        found = [parse(record, self.region_shape, self.region_dtype)["regions"] for record in read]
        return np.stack(found)


def _check_size(shard: Path, size: int) -> None:
    try:
        found = shard.stat().st_size
    except FileNotFoundError:
        raise RecordsError(
            f"{shard} is missing; run the command `{command_for(shard.parent)}`"
        ) from None
    if found != size:
        raise RecordsError(
            f"{shard} is damaged: it has {found} bytes, not {size}; delete it and run the command "
            f"`{command_for(shard.parent)}`, which writes it again"
        )


def read_index(folder: Path, shards: Sequence[Mapping[str, Any]]) -> SplitIndex:
    """What is known of the images of some shards, from their sidecars.

    Args:
        folder: The folder of the records.
        shards: What the manifest says of them: `file`, and the SHA-256 of the sidecar as `sidecar`.

    Raises:
        RecordsError: If a sidecar is missing, or not as it was written.
    """

    def sidecars() -> Iterator[Mapping[str, Any]]:
        for shard in shards:
            path = folder / shard["file"]
            sidecar = read_sidecar(path, shard["sidecar"])
            if sidecar is None:
                raise RecordsError(
                    f"{path} or its sidecar is missing; run the command `{command_for(folder)}`"
                )
            yield sidecar

    return SplitIndex.of(sidecars())


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
    """What a manifest must hold, to tell it from a damaged one."""

    holds: Literal["images", "regions"]
    region_shape: tuple[Count | None, Count] | None
    region_dtype: Literal["float16", "float32"] = "float32"
    label_kind: Literal["none", "class", "set"]
    num_labels: Count
    splits: dict[Split, _Split]
    problems: dict[str, dict[str, Any]]
    files: dict[str, str]


@dataclass(frozen=True)
class Records:
    """All records of a data set.

    Attributes:
        folder: Where they are.
        manifest: What `manifest.json` says.
        caption_features: Folder of the features of captions, if they were computed.
        image_features: Records of the features of images, if they were computed. Splits that
            these have are read from there, and the others from the images.
        more_captions: Captions of the training split beside those of the data set, by the key of
            their image: pairs of key and text.
    """

    folder: Path
    manifest: dict[str, Any]
    caption_features: Path | None = None
    image_features: Records | None = None
    more_captions: Mapping[str, Sequence[tuple[str, str]]] = field(default_factory=dict)

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
        way_out = (
            f"delete it and run the command `{command_for(folder)}`, which keeps finished shards"
        )
        check_version(folder, parse_object(path, content, way_out))
        return cls(folder, parse_object(path, content, way_out, _Manifest))

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

    def without_features(self) -> Records:
        """The same records, read from images and texts in place of their features."""
        return replace(self, caption_features=None, image_features=None)

    def split(self, name: Split) -> SplitRecords:
        """The records of one split.

        Raises:
            RecordsError: If the data set has no such split, or a shard is missing or damaged.
        """
        if self.image_features is not None and name in self.image_features.splits:
            return replace(
                self.image_features,
                caption_features=self.caption_features,
                more_captions=self.more_captions,
            ).split(name)
        if name not in self.manifest["splits"]:
            raise RecordsError(
                f"{self.folder} has no split {name!r}; it has {', '.join(self.splits)}"
            )
        features, shards = self.caption_features, self.manifest["splits"][name]["shards"]
        index = self._index(name, shards)
        if name == "train":
            index = index.with_captions(self.more_captions)
        return SplitRecords(
            self.folder,
            name,
            shards,
            index,
            self.region_shape,
            self.region_dtype,
            None
            if features is None
            else CaptionFeatures.open(features, features_name(name, index.texts)),
        )

    def _index(self, split: Split, shards: Sequence[Mapping[str, Any]]) -> SplitIndex:
        """The index of a split. Records that were written before there was one have sidecars."""
        name = index_file(split)
        if name in self.manifest["files"]:
            return open_index(self.file(name))
        return read_index(self.folder, shards)

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
                f"the command `{command_for(self.folder)}`, which writes both again"
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
