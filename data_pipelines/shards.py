"""One shard of records: a TFRecord file, the sidecar that describes it, and writing both."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tensorflow as tf
from pydantic import BaseModel, Field, ValidationError

from data_pipelines.errors import UserError
from data_pipelines.files import atomic_write, checksum
from data_pipelines.sources import EncodedImage, Entry, Regions

VERSION = 2

FEATURES = "features"
"""The folder, beside the records of images, where records of their features are kept."""

# TFRecord frames a record as: length (8 bytes), its CRC (4), the record, its CRC (4).
HEADER, _FOOTER = 12, 4


class RecordsError(UserError):
    """Records are missing, damaged, or made from something else; the message says what to do."""


Count = Annotated[int, Field(ge=0, lt=2**63)]


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
    labels: tuple[Count, ...]
    offset: Count
    length: Count
    crc: Annotated[int, Field(ge=0, lt=2**32)]
    digest: Annotated[str, Field(pattern="^[0-9a-f]{16}$")]
    regions: tuple[Count, ...]


class Sidecar(BaseModel):
    """What a sidecar must hold, to tell it from a damaged one."""

    bytes: Count
    sha256: str
    items: list[Item]
    skipped: list[tuple[str, str]] = []


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
        self._offset += HEADER + len(record) + _FOOTER

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


def parse_object(
    path: Path, content: bytes, way_out: str, holds: type[BaseModel] | None = None
) -> dict[str, Any]:
    """What a JSON file of the records holds.

    Args:
        path: The file, for the message.
        content: Its bytes.
        way_out: What to do if it is damaged, for the message.
        holds: What it must hold.

    Raises:
        RecordsError: If it is no JSON object, or holds something else.
    """
    try:
        parsed = json.loads(content)
        if holds is not None:
            holds.model_validate(parsed)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        fault = f"{where}: {error.errors()[0]['msg']}"
        raise RecordsError(f"{path} is damaged ({fault}); {way_out}") from None
    except (ValueError, RecursionError) as error:
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
            f"the folder and run the command `{command_for(folder)}`"
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
    command = command_for(shard.parent)
    way_out = f"delete it and run the command `{command}`, which writes this shard again"
    sidecar = parse_object(path, content, way_out, Sidecar)
    if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
        raise RecordsError(f"{path} is not as it was written; {way_out}")
    if size != sidecar.get("bytes"):
        raise RecordsError(
            f"{shard} is damaged: it has {size} bytes, not {sidecar.get('bytes')}; {way_out}"
        )
    return {"skipped": [], **sidecar}


def command_for(folder: Path) -> str:
    """The mode that writes the records of a folder."""
    return "train" if folder.parent.name == FEATURES else "prepare"
