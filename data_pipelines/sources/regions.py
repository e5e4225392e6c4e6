"""Precomputed region features: arrays as of SCAN, and TSV files of bottom-up attention."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from data_pipelines.photo_files import UnreadableError, check_file, inside
from data_pipelines.sources.base import (
    SPLITS,
    Caption,
    Entry,
    FolderSource,
    MissingFileError,
    Problems,
    RegionArray,
    SourceError,
    Split,
    where_to_get,
)
from data_pipelines.sources.coco import is_split_file, karpathy_entries, read_captions_file
from data_pipelines.sources.text_files import read_lines, reading
from keras_xmr.utils.files import NO_ARRAY, bytes_after
from keras_xmr.utils.progress import Progress


def with_boxes(features: np.ndarray, boxes: np.ndarray, size: tuple[float, float]) -> np.ndarray:
    """Appends the box and the area of each region to its features.

    Args:
        features: Float (R, F).
        boxes: Left, top, right and bottom of each region (R, 4), in pixels.
        size: Width and height of the image, in pixels; (1, 1) if boxes are relative already.

    Returns:
        Float32 (R, F + 5): the last columns are x1, y1, x2, y2 and the area, from 0 to 1.

    Raises:
        ValueError: If a box exceeds the image by more than one pixel, or its corners are not in
            this order.
    """
    width, height = size
    places = np.asarray(boxes, np.float32) / np.array([width, height, width, height], np.float32)
    slack = 1 / min(width, height) if min(width, height) > 1 else 1e-3
    if not (np.isfinite(places).all() and (places >= -slack).all() and (places <= 1 + slack).all()):
        raise ValueError(f"a box is outside of its image of {width:g} x {height:g}")
    places = places.clip(0, 1)
    sides = places[:, 2:] - places[:, :2]
    if (sides < 0).any():
        raise ValueError("a box is not left, top, right, bottom")
    area = sides.prod(axis=1, keepdims=True)
    return np.concatenate([features, places, area], axis=1, dtype=np.float32)


class RegionsSource(FolderSource):
    """Region features `{train,dev,test}_ims.npy` of shape (n, R, F), and captions `_caps.txt`.

    Optional boxes of regions are read from `{train,dev,test}_boxes.npy` of shape (n, R, 4): left,
    top, right and bottom, relative to the image, or in pixels if there is a
    `{train,dev,test}_sizes.npy` of shape (n, 2) with widths and heights.

    A release may repeat every image for each caption, or hold each image once.
    """

    holds: ClassVar[Literal["images", "regions"]] = "regions"
    origin: ClassVar[str] = where_to_get(
        "regions of COCO and Flickr30K, and where to put them", "https://github.com/kuanghuei/SCAN"
    )

    name: Literal["regions"] = "regions"

    captions_per_image: Annotated[int, Field(ge=1)] = 5
    """Number of consecutive captions per image."""

    test: Annotated[str, Field(pattern=r"^[\w-]+$")] = "test"
    """Prefix of the files of the test split: `testall` for the 5,000 test images of COCO in the
    release of SCAN, where `test` holds the first 1,000."""

    boxes: bool = False
    """Whether the box of a region is appended to its features, as five numbers: left, top, right,
    bottom and area, relative to the image."""

    def entries(self, problems: Problems) -> Iterator[Entry]:
        """Yields the images of train, dev and test, in the order of the arrays."""
        for split, name in self._names.items():
            captions = self.root / f"{name}_caps.txt"
            if split not in self._arrays:
                if captions.exists():
                    problems.add("split without features", f"{name}_ims.npy does not exist")
                continue
            texts = read_lines(captions, "one caption per line")
            stride = self._stride(split, len(texts))
            per_image = self.captions_per_image
            for image in range(len(texts) // per_image):
                numbers = range(image * per_image, (image + 1) * per_image)
                named = tuple(Caption(f"{name}/{i}", texts[i]) for i in numbers)
                yield Entry(f"{name}/{image}", split, named, position=image * stride)

    def file_of(self, entry: Entry) -> Path:
        """Returns the array with the features of an image."""
        return self.root / f"{self._names[entry.split]}_ims.npy"

    def read(self, entry: Entry) -> RegionArray:
        """Copies the features of one image out of the memory-mapped array."""
        arrays, boxes, sizes = self._arrays[entry.split]
        features = np.array(arrays[entry.position], dtype=np.float32)
        if not np.isfinite(features).all():
            raise UnreadableError(f"{entry.key} has features that are not finite")
        if boxes is not None:
            size = (1.0, 1.0) if sizes is None else tuple(sizes[entry.position].tolist())
            try:
                features = with_boxes(features, boxes[entry.position], size)
            except ValueError as error:
                raise UnreadableError(f"{entry.key}: {error}") from None
        return RegionArray(features)

    @property
    def _names(self) -> dict[Split, str]:
        return {"train": "train", "val": "dev", "test": self.test}

    def _stride(self, split: Split, num_captions: int) -> int:
        """Returns the number of rows of the array per image: 1, or one per caption."""
        rows = len(self._arrays[split][0])
        if num_captions == rows * self.captions_per_image:
            return 1
        if num_captions == rows and rows % self.captions_per_image == 0:
            return self.captions_per_image
        name = self._names[split]
        raise SourceError(
            f"{self.root}: {name}_ims.npy has {rows} rows and {name}_caps.txt has {num_captions} "
            f"lines, but {rows * self.captions_per_image} lines (an image once) or {rows} (an "
            "image repeated for each of its captions) are expected. Set captions_per_image if it "
            f"is not {self.captions_per_image}"
        )

    @cached_property
    def _arrays(self) -> dict[Split, tuple[np.ndarray, np.ndarray | None, np.ndarray | None]]:
        """Features of each split, boxes if they are read, and sizes if these are in pixels."""
        return {
            split: self._load_split(name)
            for split, name in self._names.items()
            if split == "train" or (self.root / f"{name}_ims.npy").exists()
        }

    def _load_split(self, name: str) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
        features = _memory_map(self.root / f"{name}_ims.npy")
        if not self.boxes:
            return features, None, None
        images, regions = features.shape[:2]
        path, sizes_path = (self.root / f"{name}_{ending}.npy" for ending in ("boxes", "sizes"))
        boxes = _load(path, f"boxes {(images, regions, 4)}")
        if boxes.shape != (images, regions, 4):
            raise SourceError(
                f"{path} is of shape {boxes.shape}, but the features have {images} images of "
                f"{regions} regions"
            )
        if not sizes_path.exists():
            return features, boxes, None
        sizes = _load(sizes_path, "widths and heights (n, 2)")
        if sizes.shape != (images, 2):
            raise SourceError(f"{sizes_path} is of shape {sizes.shape}, not {(images, 2)}")
        return features, boxes, sizes


def _memory_map(path: Path) -> np.ndarray:
    array = _load(path, "features (n, R, F)")
    if array.ndim == 2:
        array = array[:, None, :]
    if array.ndim != 3 or array.dtype.kind != "f" or 0 in array.shape[1:]:
        raise SourceError(
            f"{path} holds {array.dtype} of shape {array.shape}; floats of shape (n, R, F) are "
            "expected, with at least one region per image"
        )
    return array


def _load(path: Path, holds: str) -> np.ndarray:
    try:
        array = np.load(check_file(path), mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise MissingFileError(f"{path} does not exist; it should hold {holds}") from None
    except NO_ARRAY as error:
        raise SourceError(
            f"{path} is not a complete .npy array ({error}); it may have been cut off while it was "
            "downloaded"
        ) from None
    if not isinstance(array, np.ndarray):
        array.close()
        raise SourceError(f"{path} is an archive of arrays (.npz); write {holds} with numpy.save")
    if surplus := bytes_after(array, path):
        raise SourceError(
            f"{path} has {surplus:,} bytes after its array; it may have been damaged while it was "
            "copied"
        )
    return array


_COLUMNS = ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features")
_HOLDS = f"features of bottom-up attention (TSV with {', '.join(_COLUMNS)})"


class BottomUpSource(FolderSource):
    """Bottom-up attention (Anderson et al. 2018): one row per image, features in base64 float32.

    The columns are image_id, image_w, image_h, num_boxes, boxes and features, without a header. The
    number of regions per image may be fixed (36) or adaptive (10 to 100), with features of any
    width. Files are scanned once for the offsets of rows, and then read row by row, so their size
    does not matter. Images are identified by their id in the captions file, or by their file name
    with or without suffix.
    """

    holds: ClassVar[Literal["images", "regions"]] = "regions"

    name: Literal["bottom_up"] = "bottom_up"

    features: tuple[str, ...] = ("trainval_resnet101_faster_rcnn_genome_36.tsv",)
    """The TSV files, under `root`. Images may be in any of them."""

    captions: tuple[str, ...] = ("dataset_coco.json",)
    """Files of captions and splits, under `root`: one split file of Karpathy; or a captions file
    for each of train, val and test, in the format of COCO or CSV with `image,caption`."""

    restval: bool = True
    """Whether the photos that Karpathy's split calls `restval` belong to the training split, as
    in the papers."""

    boxes: bool = False
    """Whether the box of a region is appended to its features, as five numbers: left, top, right,
    bottom and area, relative to the image."""

    def entries(self, problems: Problems) -> Iterator[Entry]:
        """Yields the images of the captions files, in their order."""
        captioned = list(self._captioned(problems))
        if not any(entry.captions for entry in captioned):
            raise SourceError(
                f"{', '.join(self.captions)} under {self.root}: the files hold no captions"
            )
        rows = self._index(problems)
        for entry in captioned:
            names = (entry.key, Path(entry.file).name, Path(entry.file).stem)
            file, position = next((rows[name] for name in names if name in rows), ("", 0))
            yield replace(entry, file=file, position=position)

    def read(self, entry: Entry) -> RegionArray:
        """Decodes the row of one image."""
        if not entry.file:
            raise UnreadableError(f"{entry.key} has no row in {', '.join(self.features)}")
        with inside(self.root, entry.file).open("rb") as file:
            file.seek(entry.position)
            line = file.readline()
        try:
            size, boxes, features = _decode(line)
            if not (np.isfinite(features).all() and features.any()):
                raise ValueError("its features are not finite, or all 0")
            if self.boxes:
                features = with_boxes(features, boxes, size)
        except ValueError as error:  # Includes `binascii.Error`.
            raise UnreadableError(
                f"{entry.key}: its row in {entry.file} (byte {entry.position}) is broken: {error}"
            ) from None
        return RegionArray(features)

    def _captioned(self, problems: Problems) -> Iterator[Entry]:
        """Yields the images of the captions files, with the names of their photos."""
        paths = [self.root / name for name in self.captions]
        if len(paths) == 1 and is_split_file(paths[0]):
            yield from karpathy_entries(paths[0], self.restval, problems)
            return
        if len(paths) > len(SPLITS):
            raise SourceError("data.source.captions: a file for each of train, val and test")
        seen: dict[str, Split] = {}
        for split, path in zip(SPLITS, paths, strict=False):
            for entry in read_captions_file(path, problems):
                if seen.setdefault(entry.key, split) != split:
                    problems.add("image in two splits", entry.key)
                else:
                    yield Entry(entry.key, split, entry.captions, file=entry.file or entry.key)

    def _index(self, problems: Problems) -> dict[str, tuple[str, int]]:
        """Returns file and offset of the row of every image id, without decoding."""
        total = 0
        for name in self.features:
            with reading(self.root / name, _HOLDS):
                total += check_file(self.root / name).stat().st_size
        rows: dict[str, tuple[str, int]] = {}
        with Progress("scanning rows", total, "B", unit_scale=True, unit_divisor=1000) as bar:
            for name in self.features:
                for position, line in _lines(self.root / name):
                    key = line[:256].partition(b"\t")[0].decode("utf-8", "replace").strip()
                    bar.update(len(line))
                    if not line.strip():
                        continue
                    if key in rows:
                        problems.add("duplicate row of an image", f"{key} in {self.root / name}")
                    else:
                        rows[key] = (name, position)
        return rows


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    position = 0
    with reading(path, _HOLDS), path.open("rb") as file:
        for line in file:
            yield position, line
            position += len(line)


def _decode(line: bytes) -> tuple[tuple[int, int], np.ndarray, np.ndarray]:
    """Decodes a row to the size of its image, its boxes and its features.

    Raises:
        ValueError: If it is broken.
    """
    columns = line.rstrip(b"\r\n").split(b"\t")
    if len(columns) != len(_COLUMNS):
        raise ValueError(f"{len(columns)} columns, not {len(_COLUMNS)} ({', '.join(_COLUMNS)})")
    width, height, count = (int(column) for column in columns[1:4])
    if min(width, height, count) < 1 or max(width, height, count) > 1e6:
        raise ValueError(f"an image of {width} x {height} with {count} boxes")
    boxes, features = (_floats(column) for column in columns[4:])
    if boxes.size != 4 * count:
        raise ValueError(f"{boxes.size} numbers for {count} boxes")
    if not features.size or features.size % count:
        raise ValueError(f"{features.size} numbers for the features of {count} boxes")
    return (width, height), boxes.reshape(count, 4), features.reshape(count, -1)


def _floats(column: bytes) -> np.ndarray:
    try:
        return np.frombuffer(base64.b64decode(column, validate=True), "<f4")
    except binascii.Error as error:
        raise ValueError(f"it is not base64 ({error})") from None
