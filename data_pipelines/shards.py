"""Shards of records: a TFRecord file of images, and its description.

A shard `train-00000.tfrecord` holds the images, and its description `train-00000.npz` all else: the
columns of `split_index`, and in `about` the options and images that it was made of. A shard is
finished when its description exists; both are written atomically.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from data_pipelines.image_decoding import checked_jpeg
from data_pipelines.options import DataOptions
from data_pipelines.photo_files import UnreadableError, content_digest
from data_pipelines.shard_plan import ShardTask
from data_pipelines.sources import EncodedImage, Entry, RegionArray
from data_pipelines.split_index import SplitIndex
from keras_xmr.utils.disk_errors import disk_message
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.files import (
    NO_ARRAY,
    atomic_replace,
    checksum,
    replace_atomically,
    temporary_path,
)

VERSION = 3

FEATURES = "features"
"""Name of the folder of the features of images, in the folder of the records."""

# TFRecord frames a record as: length (8 bytes), its CRC (4), the record, its CRC (4).
HEADER, _FOOTER = 12, 4
_SECOND = 10**9


class RecordsError(UserError):
    """Records are missing, damaged, or of another data set; the message says how to fix it."""


class StoppedError(Exception):
    """The shard was cancelled."""


def _digest(image: EncodedImage | RegionArray) -> int:
    if isinstance(image, EncodedImage):
        return content_digest(image.data)
    return content_digest(image.features.tobytes())


def serialize(entry: Entry, image: EncodedImage | RegionArray) -> bytes:
    """Serializes the record of one image, a `tf.train.Example`."""

    def strings(value: bytes) -> tf.train.Feature:
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))

    features = {"image/key": strings(entry.key.encode())}
    if isinstance(image, EncodedImage):
        features["image/encoded"] = strings(image.data)
    else:
        regions = np.ascontiguousarray(image.features, "<f4")
        shape = tf.train.Int64List(value=regions.shape)
        features["image/regions"] = strings(regions.tobytes())
        features["image/regions_shape"] = tf.train.Feature(int64_list=shape)
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


def mark_as_read(path: Path, begin: int) -> None:
    """Sets the time of a file to when its source was read; files that are newer have changed.

    Args:
        path: The file.
        begin: The time, in nanoseconds.
    """
    begin -= _SECOND  # Clocks of file systems lag by milliseconds.
    with suppress(OSError):  # Records may be read-only; then the source is read every time.
        os.utime(path, ns=(begin, begin))


def check_version(folder: Path, made_from: Mapping[str, Any]) -> None:
    """Rejects records of another version of the format."""
    version = made_from.get("version")
    if version != VERSION:
        raise RecordsError(
            f"{folder} holds records of version {version}, but version {VERSION} is required. "
            "Delete the folder and run the command `prepare`"
        )


@dataclass(frozen=True)
class Shard:
    """A finished shard.

    Attributes:
        path: The path.
        about: The `version`, the options that it depends on as `origin`, the `fingerprint` of its
            images, its size in `bytes`, its `sha256`, the `skipped` images, and the `shapes` of
            regions.
        index: The images and captions.
        sha256: Checksum of its description.
        read_at: Time at which its images were read from the source, in nanoseconds.
    """

    path: Path
    about: dict[str, Any]
    index: SplitIndex
    sha256: str
    read_at: int

    @classmethod
    def open(cls, path: Path, sha256: str | None = None) -> Shard | None:
        """Opens a shard; returns None if it is not finished.

        Args:
            path: The shard.
            sha256: Checksum of its description in the manifest; None without a manifest.

        Raises:
            RecordsError: If the description is damaged or has changed, or the size of the shard
                differs.
        """
        description = path.with_suffix(".npz")
        try:
            content, read_at = description.read_bytes(), description.stat().st_mtime_ns
            size = path.stat().st_size
        except FileNotFoundError:
            return None
        hint = "delete it and run the command `prepare`, which writes this shard again"
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as file:
                about = json.loads(file["about"].tobytes())
                index = SplitIndex.from_arrays(file)
        except (*NO_ARRAY, KeyError) as error:
            raise RecordsError(f"{description} is damaged ({error}); {hint}") from None
        actual = hashlib.sha256(content).hexdigest()
        if actual != (sha256 or actual):
            raise RecordsError(f"{description} is not as it was written; {hint}")
        check_version(path.parent, about)
        if size != about["bytes"]:
            raise RecordsError(
                f"{path} is damaged: it has {size} bytes, not {about['bytes']}; {hint}"
            )
        return cls(path, about, index, actual, read_at)

    @classmethod
    def finished(cls, path: Path, sha256: str | None = None) -> Shard:
        """Opens a shard that must be finished; see `open`."""
        shard = cls.open(path, sha256)
        if shard is None:
            missing = path.with_suffix(".npz") if path.exists() else path
            raise RecordsError(f"{missing} is missing; run the command `prepare`")
        return shard

    def changes(
        self, options: DataOptions, task: ShardTask, since: int
    ) -> tuple[list[str], list[str]]:
        """Compares the contents of files that are newer than a time with its images.

        Args:
            options: The `data` section of a config.
            task: The images, which have its fingerprint.
            since: The time, in nanoseconds.

        Returns:
            The keys of images with other contents, and of images whose file is gone.
        """
        digests = dict(zip(self.index.keys, self.index.columns["source"].tolist(), strict=True))
        changed, gone = [], []
        for entry in task.entries:
            try:
                file = options.source.file_of(entry)
                # Not the modification time, which copies and renamed files may keep.
                is_newer = file is not None and file.stat().st_ctime_ns >= since
            except (OSError, UnreadableError):
                if entry.key in digests:
                    gone.append(entry.key)
                continue
            if is_newer and _has_changed(options, entry, digests.get(entry.key)):
                changed.append(entry.key)
        return changed, gone


def _has_changed(options: DataOptions, entry: Entry, digest: int | None) -> bool:
    """Returns whether an image has another digest, or None and can be used now."""
    try:
        if digest is not None:
            return _digest(options.source.read(entry)) != digest
        _stored(options, entry, options.source.read(entry))
    except UnreadableError:
        return digest is not None
    return True


Skipped = list[tuple[str, str]]
"""Skipped images: pairs of reason and description."""

ReportProgress = Callable[[int], object]
"""Callback with the number of finished images; may raise `StoppedError` to cancel."""


def origin_of(options: DataOptions) -> dict[str, Any]:
    """Returns the options that records depend on, by key of the `data` section."""
    source = options.source.model_dump(mode="json")
    return {
        "images_per_shard": options.images_per_shard,
        **{f"source.{key}": value for key, value in source.items()},
    } | ({"image.store_side": side} if (side := options.image.store_side) else {})


def write_shard(
    options: DataOptions, limit: int, task: ShardTask, on_progress: ReportProgress
) -> Skipped:
    """Writes one shard, unless it is finished.

    Args:
        options: The `data` section of a config.
        limit: Maximum number of skipped images.
        task: The shard.
        on_progress: Callback after every image.

    Returns:
        The skipped images. The shard is not finished if they are more than the limit.

    Raises:
        RecordsError: If a finished shard has other content, or the disk is full.
        StoppedError: From `on_progress`.
    """
    with disk_errors(task.path.parent):
        shard = Shard.open(task.path)
        if shard is None:
            return _write(options, limit, task, on_progress)
    if shard.about["fingerprint"] != task.fingerprint:
        raise RecordsError(
            f"{task.path} was written from other images or captions than the source has now. "
            "Choose another folder with data.records, or delete this one"
        )
    changed, _ = shard.changes(options, task, shard.read_at)
    if changed:
        raise RecordsError(
            f"{task.path} was written from other contents of {len(changed):,} images, such as "
            f"{changed[0]}. Delete it and run the command `prepare`, which writes it again"
        )
    on_progress(task.images)
    return shard.about["skipped"]


def _write(
    options: DataOptions, limit: int, task: ShardTask, on_progress: ReportProgress
) -> Skipped:
    begin, temporary, end = time.time_ns(), temporary_path(task.path), 0
    skipped: Skipped = []
    written: list[tuple[Entry, tuple[int, ...], list[tuple[int, ...]]]] = []
    try:
        with tf.io.TFRecordWriter(str(temporary)) as writer:
            for entry in task.entries:
                try:
                    source = options.source.read(entry)
                    image = _stored(options, entry, source)
                except UnreadableError as error:
                    skipped.append(("unreadable image", str(error)))
                    if len(skipped) > limit:
                        return skipped
                else:
                    record = serialize(entry, image)
                    writer.write(record)
                    row = end, len(record), zlib.crc32(record), _digest(image), _digest(source)
                    shape = [image.features.shape] if isinstance(image, RegionArray) else []
                    written.append((entry, row, shape))
                    end += HEADER + len(record) + _FOOTER
                on_progress(1)
        about = {
            "bytes": end,
            "sha256": checksum(temporary),
            **{"version": VERSION, "origin": origin_of(options)},
            **{"fingerprint": task.fingerprint, "skipped": skipped},
            "shapes": sorted({shape for *_, shapes in written for shape in shapes}),
        }
        atomic_replace(temporary, task.path)
    finally:
        temporary.unlink(missing_ok=True)
    index = SplitIndex.from_entries([e for e, *_ in written], [row for _, row, _ in written])
    arrays: Any = index.arrays() | {"about": np.frombuffer(json.dumps(about).encode(), np.uint8)}
    with replace_atomically(task.path.with_suffix(".npz"), ".npz") as description:
        np.savez(description, **arrays)
        mark_as_read(description, begin)
    return skipped


def _stored(
    options: DataOptions, entry: Entry, image: EncodedImage | RegionArray
) -> EncodedImage | RegionArray:
    """Returns an image as records store it."""
    if isinstance(image, EncodedImage):
        name = entry.file or entry.key
        return EncodedImage(checked_jpeg(image.data, name, options.image.store_side))
    return image
