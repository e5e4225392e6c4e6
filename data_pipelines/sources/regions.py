"""Precomputed region features, in the layout of SCAN, VSRN and SGRAF, and boxes of regions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from data_pipelines.documentation import page
from data_pipelines.files import NO_ARRAY, bytes_after
from data_pipelines.sources.base import (
    Caption,
    Entry,
    MissingFileError,
    Problems,
    Regions,
    Source,
    SourceError,
    Split,
    UnreadableError,
    check_file,
)
from data_pipelines.sources.text_files import read_lines

if TYPE_CHECKING:
    import numpy as np


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
    import numpy as np

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


_FILES: dict[Split, str] = {"train": "train", "val": "dev"}


class RegionsSource(Source):
    """Region features `{train,dev,test}_ims.npy` of shape (n, R, F), and captions `_caps.txt`.

    Optional boxes of regions are read from `{train,dev,test}_boxes.npy` of shape (n, R, 4): left,
    top, right and bottom, relative to the image, or in pixels if there is a
    `{train,dev,test}_sizes.npy` of shape (n, 2) with widths and heights.

    Both kinds of releases are supported: those that repeat every image for each caption, and those
    that hold it once.
    """

    holds: ClassVar[Literal["images", "regions"]] = "regions"
    origin: ClassVar[str] = (
        f"{page('results/reproduce.md')} says where to get regions of COCO and Flickr30K, and "
        "where to put them: https://github.com/kuanghuei/SCAN"
    )

    name: Literal["regions"] = "regions"

    root: Path
    """Folder that holds the files."""

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
        if self.boxes:
            self._boxes  # noqa: B018  # Checks the files before reading.
        for split, name in self._names.items():
            if not (self.root / f"{name}_ims.npy").exists() and split != "train":
                if (self.root / f"{name}_caps.txt").exists():
                    problems.add("split without features", f"{name}_ims.npy does not exist")
                continue
            texts = self._captions(split)
            stride = self._stride(split, len(texts))
            per_image = self.captions_per_image
            for image in range(len(texts) // per_image):
                numbers = range(image * per_image, (image + 1) * per_image)
                captions = tuple(Caption(f"{name}/{i}", texts[i]) for i in numbers)
                yield Entry(f"{name}/{image}", split, captions, position=image * stride)

    def read(self, entry: Entry) -> Regions:
        """Copies the features of one image out of the memory-mapped array."""
        import numpy as np

        features = np.array(self._arrays[entry.split][entry.position], dtype=np.float32)
        if not np.isfinite(features).all():
            raise UnreadableError(f"{entry.key} has features that are not finite")
        if self.boxes:
            boxes, sizes = self._boxes[entry.split]
            size = (1.0, 1.0) if sizes is None else tuple(sizes[entry.position].tolist())
            try:
                features = with_boxes(features, boxes[entry.position], size)
            except ValueError as error:
                raise UnreadableError(f"{entry.key}: {error}") from None
        return Regions(features)

    @property
    def _names(self) -> dict[Split, str]:
        return {**_FILES, "test": self.test}

    def _stride(self, split: Split, num_captions: int) -> int:
        """Returns the number of rows of the array per image: 1, or one per caption."""
        rows = len(self._arrays[split])
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

    def _captions(self, split: Split) -> list[str]:
        return read_lines(self.root / f"{self._names[split]}_caps.txt", "one caption per line")

    @cached_property
    def _arrays(self) -> dict[Split, np.ndarray]:
        return {
            split: _memory_map(self.root / f"{name}_ims.npy")
            for split, name in self._names.items()
            if split == "train" or (self.root / f"{name}_ims.npy").exists()
        }

    @cached_property
    def _boxes(self) -> dict[Split, tuple[np.ndarray, np.ndarray | None]]:
        """Boxes of each split, and the sizes of its images if boxes are in pixels."""
        all_boxes: dict[Split, tuple[np.ndarray, np.ndarray | None]] = {}
        for split, features in self._arrays.items():
            path = self.root / f"{self._names[split]}_boxes.npy"
            sizes = self.root / f"{self._names[split]}_sizes.npy"
            boxes = _load(path, f"boxes {(*features.shape[:2], 4)}")
            if boxes.shape != (*features.shape[:2], 4):
                raise SourceError(
                    f"{path} is of shape {boxes.shape}, but the features have "
                    f"{features.shape[0]} images of {features.shape[1]} regions"
                )
            in_pixels = _load(sizes, "widths and heights (n, 2)") if sizes.exists() else None
            if in_pixels is not None and in_pixels.shape != (len(features), 2):
                raise SourceError(
                    f"{sizes} is of shape {in_pixels.shape}, not {(len(features), 2)}"
                )
            all_boxes[split] = boxes, in_pixels
        return all_boxes


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
    import numpy as np

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
