"""Folders of images with a file of captions, as CSV or JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Literal

from data_pipelines.sources.base import (
    Caption,
    Entry,
    MissingFileError,
    Problems,
)
from data_pipelines.sources.photo_folder import PhotoFolderSource, PhotosSource, hash_caption_id
from data_pipelines.sources.text_files import csv_rows, json_rows

_JSON = (".json", ".jsonl")

_OWN_COLUMNS = (
    ", or name the columns of the file: --set data.source.image_column=... "
    "--set data.source.caption_column=..."
)


class CsvSource(PhotosSource):
    """A folder of images and a CSV file of `image,caption` rows, as Flickr8k has on Kaggle.

    An image may have any number of captions, and a caption any number of images. Without
    `captions.csv`, `captions.json` or `captions.jsonl` is read: objects with the columns as keys,
    in a list or one per line, or one object of captions by image. Without these, captions are read
    from a file per photo or from the photos, as by the source `photo_folder`.
    """

    name: Literal["csv"] = "csv"

    images: str = "images"
    """Folder of the photos, under `root`. If `images` does not exist, it is `root`."""

    captions: str = "captions.csv"
    """The file of captions, under `root`, UTF-8. The header of a CSV file names the columns."""

    image_column: str = "image"
    """Column with the file name of the photo, under `images`."""

    caption_column: str = "caption"
    """Column with the caption."""

    id_column: str | None = None
    """Column with the id of the caption, by which judgements and audit labels identify it. Without
    one (null), `caption_id` is used if the file has it; otherwise a hash of image and caption,
    which does not change when rows are added or moved."""

    def entries(self, problems: Problems) -> Iterator[Entry]:
        """Yields the images in the order in which the CSV file first names them."""
        if (path := self._table) is None:
            yield from self._without_table(problems)
            return
        splits = self.read_splits(problems)
        captions: dict[str, list[Caption]] = {}
        id_columns = () if self.id_column is None else (self.id_column,)
        hashed: Counter[str] = Counter()
        read = json_rows if path.suffix.lower() in _JSON else partial(csv_rows, advice=_OWN_COLUMNS)
        for _, row in read(path, (self.image_column, self.caption_column, *id_columns), problems):
            image, text = row[self.image_column].strip(), row[self.caption_column]
            key = row.get(self.id_column or "caption_id", "").strip()
            if not key:
                key = hash_caption_id(image, text)
                hashed[key] += 1
                if hashed[key] > 1:  # A repetition of a caption of the same image.
                    key = f"{key}-{hashed[key]}"
            captions.setdefault(image, []).append(Caption(key, text))
        for image in splits or ():
            captions.setdefault(image, [])
        for image, its_captions in captions.items():
            split = self.split_of(image, splits, problems)
            if split is not None:
                yield Entry(image, split, tuple(its_captions), file=image)

    @property
    def photos_folder(self) -> Path:
        """Folder of the photos."""
        folder = self.root / self.images
        is_named = self.images != type(self).model_fields["images"].default
        return folder if is_named or folder.is_dir() or not self.root.is_dir() else self.root

    @property
    def captions_in_photos(self) -> bool:
        """Whether captions are read from photos, without a file of captions."""
        return self._table is None

    @property
    def _table(self) -> Path | None:
        """File of captions, or None."""
        path = self.root / self.captions
        if self.captions != type(self).model_fields["captions"].default:
            return path
        paths = (path, *map(path.with_suffix, _JSON))
        return next((path for path in paths if path.exists()), None)

    def _without_table(self, problems: Problems) -> Iterator[Entry]:
        """Yields the photos with captions from a file per photo or from the photos.

        Raises:
            MissingFileError: If no photo has a caption.
        """
        splits = self.splits and str((self.root / self.splits).absolute())
        folder = PhotoFolderSource(
            root=self.photos_folder,
            splits=splits,
            val_share=self.val_share,
            test_share=self.test_share,
        )
        has_captions = False
        for entry in folder.entries(problems) if self.photos_folder.is_dir() else ():
            has_captions = has_captions or bool(entry.captions)
            yield entry
        if not has_captions:
            near = (self.root.parent / self.captions, self.root / self.captions.capitalize())
            others = "".join(f". There is {path}" for path in near if path.is_file())
            raise MissingFileError(
                f"{self.root / self.captions} does not exist; it should hold "
                f"{self.image_column},{self.caption_column}{others}. Neither has a photo in "
                f"{self.photos_folder} a caption in a text file (photo.txt), or in its metadata"
            )
