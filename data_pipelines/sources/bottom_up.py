"""Region features of bottom-up attention, in the TSV files of their authors."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from data_pipelines.progress import Progress
from data_pipelines.sources.base import (
    SPLITS,
    Entry,
    FolderSource,
    MissingFileError,
    Problems,
    Regions,
    SourceError,
    Split,
    UnreadableError,
    inside,
)
from data_pipelines.sources.captions_file import is_split_file, read_captions_file
from data_pipelines.sources.flickr30k import karpathy_entries
from data_pipelines.sources.regions import with_boxes

if TYPE_CHECKING:
    import numpy as np

_COLUMNS = ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features")


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

    def read(self, entry: Entry) -> Regions:
        """Decodes the row of one image."""
        import numpy as np

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
        return Regions(features)

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
        paths = {name: self.root / name for name in self.features}
        for path in paths.values():
            if not path.is_file():
                raise MissingFileError(
                    f"{path} does not exist; it should hold features of bottom-up attention (TSV "
                    f"with {', '.join(_COLUMNS)})"
                )
        rows: dict[str, tuple[str, int]] = {}
        total = sum(path.stat().st_size for path in paths.values())
        with Progress("scanning rows", total, "B", unit_scale=True, unit_divisor=1000) as bar:
            for name, path in paths.items():
                for position, line in _lines(path):
                    key = line[:256].partition(b"\t")[0].decode("utf-8", "replace").strip()
                    bar.update(len(line))
                    if not line.strip():
                        continue
                    if key in rows:
                        problems.add("duplicate row of an image", f"{key} in {path}")
                    else:
                        rows[key] = (name, position)
        return rows


def _lines(path: Path) -> Iterable[tuple[int, bytes]]:
    position = 0
    try:
        with path.open("rb") as file:
            for line in file:
                yield position, line
                position += len(line)
    except OSError as error:
        raise SourceError(f"{path} cannot be read ({error.strerror})") from None


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
    import numpy as np

    try:
        return np.frombuffer(base64.b64decode(column, validate=True), "<f4")
    except binascii.Error as error:
        raise ValueError(f"it is not base64 ({error})") from None
