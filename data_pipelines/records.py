"""Records: sharded TFRecord files, their descriptions, and random access.

A record is one image. Its shard has a description with all captions and labels, and with the place
of each record; see `shards`. `manifest.json` is written last, and holds the SHA-256 of all
descriptions. Their bytes depend only on the content, so checksums are the same on all machines.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tensorflow as tf
from pydantic import BaseModel, Field, ValidationError

from data_pipelines.features import Features
from data_pipelines.options import MANIFEST
from data_pipelines.shards import HEADER, RecordsError, Shard, check_version
from data_pipelines.sources import Caption, Split
from data_pipelines.split_index import SplitIndex
from keras_xmr.utils.files import atomic_write, checksum


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
        shards: The path of each shard, and its checksum.
        index: Metadata of its images.
        image_features: Features of the images, if they were computed, which replace these.
        caption_features: Features of the captions, if they were computed.

    Attributes:
        holds: What images are read as: "images" or "regions".
        region_shape: R (None if it varies) and F of the regions of an image; None for images.
        first_caption: First caption of each image, and the number of captions: int64 (images + 1,).
        image_keys: Keys of the images.
        caption_keys: Keys of the captions.
        texts: Texts of the captions.
        labels: Class or labels of each image.
    """

    def __init__(
        self,
        records: Records,
        split: Split,
        shards: Mapping[Path, str],
        index: SplitIndex,
        image_features: Features | None = None,
        caption_features: Features | None = None,
    ) -> None:
        self.image_features, self.caption_features = image_features, caption_features
        self.split = split
        self.holds = records.holds if image_features is None else "regions"
        self.region_shape = records.region_shape
        self.index = index
        self.first_caption, self.image_keys = index.first_caption, index.keys
        self.caption_keys, self.texts, self.labels = index.caption_keys, index.texts, index.labels
        self.shards = list(shards)
        self._checksums = shards

    def __len__(self) -> int:
        return len(self.index.keys)

    @property
    def num_captions(self) -> int:
        """Number of captions."""
        return int(self.first_caption[-1])

    @cached_property
    def captions(self) -> list[Caption]:
        """Captions with their keys."""
        return list(map(Caption, self.caption_keys, self.texts))

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
        with shard.open("rb") as file:
            file.seek(offset + HEADER)
            record = file.read(length)
        if zlib.crc32(record) != crc:
            raise RecordsError(
                f"{shard} is damaged in the record of {self.image_keys[image]!r} (at byte "
                f"{offset}). Delete the shard and run the command `prepare`, which writes it again"
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
            for shard, expected in self._checksums.items():
                if checksum(shard) != expected:
                    raise RecordsError(
                        f"{shard} is damaged: its checksum is not the one in its description. "
                        "Delete the shard and run the command `prepare`, which writes it again"
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
        flat = tf.io.decode_raw(example["image/regions"], tf.float32)
        regions = tf.reshape(flat, example["image/regions_shape"])
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


_Count = Annotated[int, Field(ge=0, lt=2**63)]


class _Shard(BaseModel):
    file: Annotated[str, Field(pattern=r"^[\w-]+\.tfrecord$")]
    sha256: str
    images: _Count
    captions: _Count


class _Split(BaseModel):
    shards: list[_Shard]
    images: _Count
    captions: _Count


class _Manifest(BaseModel):
    """Schema of the manifest, to detect damage."""

    origin: dict[str, Any]
    holds: Literal["images", "regions"]
    region_shape: tuple[_Count | None, _Count] | None
    label_kind: Literal["none", "class", "set"]
    num_labels: _Count
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
            manifest = json.loads(path.read_bytes())
            if isinstance(manifest, dict):
                check_version(folder, manifest)
            _Manifest.model_validate(manifest)
        except FileNotFoundError:
            raise RecordsError(
                f"{folder} holds no finished records (no {MANIFEST}); run the command `prepare`"
            ) from None
        except (ValueError, RecursionError) as error:
            fault = str(error)
            if isinstance(error, ValidationError):
                first = error.errors()[0]
                fault = ": ".join(filter(None, [".".join(map(str, first["loc"])), first["msg"]]))
            raise RecordsError(
                f"{path} is damaged ({fault}); delete it and run the command `prepare`, which "
                "keeps finished shards"
            ) from None
        return cls(folder, manifest)

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
    def digest(self) -> str:
        """SHA-256 of the checksums of all shards: of the content of photos and captions."""
        return hashlib.sha256(json.dumps(self.manifest["splits"]).encode()).hexdigest()

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
        shards = [
            Shard.finished(self.folder / shard["file"], shard["sha256"])
            for shard in self.manifest["splits"][name]["shards"]
        ]
        index = SplitIndex.join([shard.index for shard in shards])
        if name == "train":
            index = index.with_captions(self.more_captions)
        checksums = {shard.path: shard.about["sha256"] for shard in shards}
        images, captions = (
            None if opened is None else opened(index)
            for opened in (self.image_features, self.caption_features)
        )
        return SplitRecords(self, name, checksums, index, images, captions)

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
                "the command `prepare`, which writes both again"
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
