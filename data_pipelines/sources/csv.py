"""Your own photos: a folder of images and a CSV file with one caption a row."""

from __future__ import annotations

import csv
import hashlib
import unicodedata
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from data_pipelines.sources.base import (
    SPLITS,
    Caption,
    EncodedImage,
    Entry,
    Problems,
    Source,
    SourceError,
    Split,
    read_image_file,
)
from data_pipelines.sources.sharded import Share, hashed_split

_SPLIT_NAMES: dict[str, Split] = {"valid": "val", "validation": "val", "dev": "val"}


class CsvSource(Source):
    """A folder of images and a CSV file of `image,caption` rows, as Flickr8k has on Kaggle.

    An image may have any number of captions, and a caption any number of images.
    """

    name: Literal["csv"] = "csv"

    root: Path
    """Folder that holds everything below."""

    images: str = "images"
    """Folder of the photos, under `root`."""

    captions: str = "captions.csv"
    """The CSV file, under `root`, UTF-8. Its header names the columns."""

    image_column: str = "image"
    """Column with the file name of the photo, under `images`."""

    caption_column: str = "caption"
    """Column with the caption."""

    id_column: str | None = None
    """Column with the id of the caption, by which judgements and audit labels know it. Without one
    (null), `caption_id` is taken if the file has it; else a hash of image and caption is the id, so
    it does not change when rows are added or moved."""

    splits: str | None = None
    """CSV file under `root` with the columns `image,split`, where split is train, val or test.
    Without one (null), the split of a photo is drawn from a hash of its name, so it does not
    move when photos are added."""

    val_share: Share = 0.1
    """Part of the photos that validate, without a split file."""

    test_share: Share = 0.1
    """Part of the photos that test, without a split file."""

    def entries(self, problems: Problems) -> Iterator[Entry]:
        """Yields the images in the order in which the CSV file first names them."""
        splits = None if self.splits is None else self._read_splits(self.splits, problems)
        captions: dict[str, list[Caption]] = {}
        path = self.root / self.captions
        own_id = () if self.id_column is None else (self.id_column,)
        hashed: Counter[str] = Counter()
        for _, row in _rows(path, (self.image_column, self.caption_column, *own_id), problems):
            image, text = row[self.image_column].strip(), row[self.caption_column]
            key = row.get(self.id_column or "caption_id", "").strip()
            if not key:
                key = _hashed_id(image, text)
                hashed[key] += 1
                if hashed[key] > 1:  # The same caption of the same image, once more.
                    key = f"{key}-{hashed[key]}"
            captions.setdefault(image, []).append(Caption(key, text))
        for image in splits or ():
            captions.setdefault(image, [])
        for image, its_captions in captions.items():
            split = self._hashed_split(image) if splits is None else splits.get(image)
            if split is None:
                problems.add("image without a split", f"{image} is not in {self.splits}")
            else:
                yield Entry(image, split, tuple(its_captions), file=image)

    def read(self, entry: Entry) -> EncodedImage:
        """Reads the photo."""
        return read_image_file(self.root / self.images, entry.file)

    def _read_splits(self, name: str, problems: Problems) -> dict[str, Split]:
        path = self.root / name
        splits: dict[str, Split] = {}
        for number, row in _rows(path, ("image", "split"), problems):
            image, written = row["image"].strip(), row["split"].strip()
            split = _SPLIT_NAMES.get(written.lower(), written.lower())
            if split not in SPLITS:
                problems.add("unknown split", f"{path}:{number}: {written!r}, not {SPLITS}")
            elif splits.setdefault(image, split) != split:
                problems.add("image in two splits", f"{path}:{number}: {image}")
        return splits

    def _hashed_split(self, image: str) -> Split:
        return hashed_split(image, self.val_share, self.test_share)


def _hashed_id(image: str, text: str) -> str:
    """The id of a caption of a file without ids: 64 bits of a hash, in hexadecimal digits."""
    content = unicodedata.normalize("NFC", f"{image}\n{text.strip()}")
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def _rows(
    path: Path, columns: tuple[str, ...], problems: Problems
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yields the line number and the fields, by column, of every row that is whole."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            header = next(reader, None) or []
            missing = [column for column in columns if column not in header]
            if missing:
                raise SourceError(
                    f"{path} has no column {missing[0]!r}: its first line is {','.join(header)!r}. "
                    f"Write a first line such as {','.join(columns)!r}, or name the columns of "
                    "the file in the config"
                )
            for row in reader:
                if len(row) != len(header):
                    problems.add(
                        "malformed CSV row",
                        f"{path}:{reader.line_num}: {len(row)} fields, not {len(header)}",
                    )
                else:
                    yield reader.line_num, dict(zip(header, row, strict=True))
    except FileNotFoundError:
        raise SourceError(f"{path} does not exist; it should hold {','.join(columns)}") from None
    except OSError as error:
        raise SourceError(f"{path} cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise SourceError(f"{path} is not UTF-8 ({error}); save it as UTF-8") from None
    except csv.Error as error:
        raise SourceError(
            f"{path}:{reader.line_num}: not valid CSV ({error}). A caption that holds a comma or "
            "a quote must stand in double quotes, with quotes inside it doubled"
        ) from None
