"""Shards of records: a TFRecord file and the sidecar that describes it."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tensorflow as tf
from pydantic import BaseModel, Field, ValidationError

from data_pipelines.images import to_jpeg
from data_pipelines.options import DataOptions
from data_pipelines.resources import disk_message
from data_pipelines.sources import EncodedImage, Entry, Regions, UnreadableError
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.files import atomic_replace, atomic_write, checksum, temporary_path

VERSION = 2

FEATURES = "features"
"""Name of the folder of the records of features, in the folder of the records of images."""

# TFRecord frames a record as: length (8 bytes), its CRC (4), the record, its CRC (4).
HEADER, _FOOTER = 12, 4


class RecordsError(UserError):
    """Records are missing, damaged, or of another data set; the message says how to fix it."""


Count = Annotated[int, Field(ge=0, lt=2**63)]


@dataclass(frozen=True, slots=True)
class Item:
    """Metadata of one image of a shard.

    Attributes:
        key: The key of the image in its data set.
        captions: Pairs of key and text.
        labels: Its class or labels.
        offset: Offset of its record in the shard, in bytes.
        length: Length of the serialized record, in bytes.
        crc: CRC-32 of the serialized record.
        digest: Digest of the image or its features, for finding duplicates.
        regions: Shape (R, F) of its region features; empty for an image.
    """

    key: str
    captions: tuple[tuple[str, str], ...]
    labels: tuple[Count, ...]
    offset: Count
    length: Count
    crc: Annotated[int, Field(ge=0, lt=2**32)]
    digest: Annotated[str, Field(pattern="^[0-9a-f]{16}$")]
    regions: tuple[Count, ...]


class Sidecar(BaseModel):
    """Schema of a sidecar, to detect damage."""

    bytes: Count
    sha256: str
    items: list[Item]
    skipped: list[tuple[str, str]] = []


def content_digest(content: bytes) -> str:
    """Returns the digest of an image, as it is stored, or of its features: `Item.digest`."""
    return hashlib.sha256(content).hexdigest()[:16]


def serialize(entry: Entry, image: EncodedImage | Regions) -> bytes:
    """Serializes the record of one image, a `tf.train.Example`."""

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


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Converts errors of Python and TensorFlow about writing to a folder of records.

    Raises:
        RecordsError: If the block raises one.
    """
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        raise RecordsError(disk_message(folder, error)) from error


class ShardWriter:
    """Context manager that writes one shard atomically; without `finish` nothing is left behind.

    Args:
        path: Path of the shard.

    Raises:
        RecordsError: If the disk is full or cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.items: list[Item] = []
        self._temporary = temporary_path(path)
        self._offset = 0
        with disk_errors(path.parent):
            self._writer = tf.io.TFRecordWriter(str(self._temporary))

    def write(self, entry: Entry, image: EncodedImage | Regions) -> None:
        """Adds one image."""
        record = serialize(entry, image)
        with disk_errors(self.path.parent):
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
                digest=content_digest(content),
                regions=() if isinstance(image, EncodedImage) else image.features.shape,
            )
        )
        self._offset += HEADER + len(record) + _FOOTER

    def finish(self, sidecar: dict[str, Any]) -> None:
        """Renames the shard and writes its sidecar.

        Args:
            sidecar: Content of the sidecar in addition to the items.
        """
        with disk_errors(self.path.parent):
            self._writer.close()
            sha256 = checksum(self._temporary)
            atomic_replace(self._temporary, self.path)
            items = [asdict(item) for item in self.items]
            content = {"bytes": self._offset, "sha256": sha256, **sidecar, "items": items}
            text = json.dumps(content, ensure_ascii=False)
            atomic_write(self.path.with_suffix(".json"), text.encode("utf-8"))

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(tf.errors.OpError):  # Of a shard that is not finished.
            self._writer.close()
        self._temporary.unlink(missing_ok=True)


def to_half(features: np.ndarray, folder: Path, item: str, option: str) -> np.ndarray:
    """Converts features to half precision, which has a maximum of 65,504.

    Args:
        features: The features.
        folder: The folder that they are written to, for the message.
        item: The item with these features.
        option: The option without which they are not stored.

    Raises:
        RecordsError: If one is larger, or is not a number.
    """
    with np.errstate(over="ignore"):
        half = features.astype("<f2")
    if not np.isfinite(half).all():
        raise RecordsError(
            f"{folder}: a feature of {item} is {np.abs(features).max():g}, which half precision "
            f"cannot hold; train without {option}"
        )
    return half


def parse_object(
    path: Path, content: bytes, hint: str, schema: type[BaseModel] | None = None
) -> dict[str, Any]:
    """Parses a JSON file of the records.

    Args:
        path: The file, for the message.
        content: Its bytes.
        hint: How to fix a damaged file, for the message.
        schema: Schema of the content.

    Raises:
        RecordsError: If it is not a JSON object of this schema.
    """
    try:
        parsed = json.loads(content)
        if schema is not None:
            schema.model_validate(parsed)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        fault = f"{where}: {error.errors()[0]['msg']}"
        raise RecordsError(f"{path} is damaged ({fault}); {hint}") from None
    except (ValueError, RecursionError) as error:
        raise RecordsError(f"{path} is damaged ({error}); {hint}") from None
    if not isinstance(parsed, dict):
        raise RecordsError(f"{path} is damaged (it is not a JSON object); {hint}")
    return parsed


def check_version(folder: Path, made_from: Mapping[str, Any]) -> None:
    """Rejects records of another version of the format."""
    version = made_from.get("version")
    if version != VERSION:
        raise RecordsError(
            f"{folder} holds records of version {version}, but version {VERSION} is required. "
            f"Delete the folder and run the command `{command_for(folder)}`"
        )


def read_sidecar(shard: Path, sha256: str | None = None) -> dict[str, Any] | None:
    """Reads the sidecar of a shard; returns None if the shard is not finished.

    Args:
        shard: The shard.
        sha256: Checksum of the sidecar in the manifest; None without a manifest.

    Raises:
        RecordsError: If the sidecar is damaged or has changed, or the size of the shard differs.
    """
    path = shard.with_suffix(".json")
    try:
        content = path.read_bytes()
        shard.stat()
    except FileNotFoundError:
        return None
    command = command_for(shard.parent)
    hint = f"delete it and run the command `{command}`, which writes this shard again"
    sidecar = parse_object(path, content, hint, Sidecar)
    if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
        raise RecordsError(f"{path} is not as it was written; {hint}")
    check_size(shard, sidecar["bytes"])
    return {"skipped": [], **sidecar}


def check_size(shard: Path, size: int) -> None:
    """Rejects a shard that is missing, or does not have its size."""
    command = command_for(shard.parent)
    try:
        actual = shard.stat().st_size
    except FileNotFoundError:
        raise RecordsError(f"{shard} is missing; run the command `{command}`") from None
    if actual != size:
        raise RecordsError(
            f"{shard} is damaged: it has {actual} bytes, not {size}; delete it and run the command "
            f"`{command}`, which writes it again"
        )


def finished_sidecar(shard: Path, sha256: str | None = None) -> dict[str, Any]:
    """Reads the sidecar of a shard that must be finished; see `read_sidecar`."""
    sidecar = read_sidecar(shard, sha256)
    if sidecar is None:
        raise RecordsError(
            f"{shard} or its sidecar is missing; run the command `{command_for(shard.parent)}`"
        )
    return sidecar


def command_for(folder: Path) -> str:
    """Returns the name of the command that writes the records of a folder."""
    return "train" if folder.parent.name == FEATURES else "prepare"


Skipped = list[tuple[str, str]]
"""Skipped items: pairs of reason and description."""

ReportProgress = Callable[[int], None]
"""Callback with the number of finished images; raises `StoppedError` to cancel."""


class StoppedError(Exception):
    """The shard was cancelled."""


@dataclass(frozen=True)
class ShardTask:
    """A shard to write.

    Attributes:
        path: Path of the shard.
        entries: Its images.
        fingerprint: Hash of their keys, captions and labels.
        limit: Maximum number of skipped images.
    """

    path: Path
    entries: Sequence[Entry]
    fingerprint: str
    limit: int


def write_shard(options: DataOptions, task: ShardTask, report: ReportProgress) -> Skipped:
    """Writes one shard, unless it is finished.

    Args:
        options: The `data` section of a config.
        task: The shard.
        report: Callback after every image.

    Returns:
        The skipped items. The shard is not finished if they are more than the limit.

    Raises:
        RecordsError: If a finished shard has other content, or the disk is full.
        StoppedError: From `report`.
    """
    with disk_errors(task.path.parent):
        sidecar = read_sidecar(task.path)
        if sidecar is None:
            return _write(options, task, report)
    _check(sidecar, task)
    report(len(task.entries))
    return [(reason, item) for reason, item in sidecar["skipped"]]


def _check(sidecar: dict[str, Any], task: ShardTask) -> None:
    """Rejects a finished shard of other images, or with a changed sidecar."""
    if sidecar.get("fingerprint") != task.fingerprint:
        raise RecordsError(
            f"{task.path} was written from other images or captions than the source has now. "
            "Choose another folder with data.records, or delete this one"
        )
    if not _is_whole(sidecar, task.entries):
        raise RecordsError(
            f"{task.path.with_suffix('.json')} is not as it was written; delete it and run "
            "the command `prepare`, which writes this shard again"
        )


def _is_whole(sidecar: dict[str, Any], entries: Sequence[Entry]) -> bool:
    """Whether a sidecar has every entry, as an item or as skipped."""
    known = {e.key: ([[c.key, c.text] for c in e.captions], list(e.labels)) for e in entries}
    items = sidecar["items"]
    return len(items) + len(sidecar["skipped"]) == len(entries) and all(
        known.get(item["key"]) == (item["captions"], item["labels"]) for item in items
    )


def _write(options: DataOptions, task: ShardTask, report: ReportProgress) -> Skipped:
    skipped: Skipped = []
    with ShardWriter(task.path) as writer:
        for entry in task.entries:
            try:
                writer.write(entry, _readable(options, entry))
            except UnreadableError as error:
                skipped.append(("unreadable image", str(error)))
                if len(skipped) > task.limit:
                    return skipped
            report(1)
        writer.finish({"fingerprint": task.fingerprint, "skipped": skipped})
    return skipped


def _readable(options: DataOptions, entry: Entry) -> EncodedImage | Regions:
    image = options.source.read(entry)
    if isinstance(image, EncodedImage):
        name = entry.file or entry.key
        return EncodedImage(to_jpeg(image.data, name, options.image.store_side))
    return image
