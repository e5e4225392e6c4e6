"""Your own photos: a folder of images and a CSV file with one caption a row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Literal

from data_pipelines.sources.base import Caption, EncodedImage, Entry, Problems, read_image_file
from data_pipelines.sources.photos import PhotosSource, hashed_id
from data_pipelines.sources.text_files import csv_rows


class CsvSource(PhotosSource):
    """A folder of images and a CSV file of `image,caption` rows, as Flickr8k has on Kaggle.

    An image may have any number of captions, and a caption any number of images.
    """

    name: Literal["csv"] = "csv"

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

    def entries(self, problems: Problems) -> Iterator[Entry]:
        """Yields the images in the order in which the CSV file first names them."""
        splits = self.read_splits(problems)
        captions: dict[str, list[Caption]] = {}
        path = self.root / self.captions
        own_id = () if self.id_column is None else (self.id_column,)
        hashed: Counter[str] = Counter()
        for _, row in csv_rows(path, (self.image_column, self.caption_column, *own_id), problems):
            image, text = row[self.image_column].strip(), row[self.caption_column]
            key = row.get(self.id_column or "caption_id", "").strip()
            if not key:
                key = hashed_id(image, text)
                hashed[key] += 1
                if hashed[key] > 1:  # The same caption of the same image, once more.
                    key = f"{key}-{hashed[key]}"
            captions.setdefault(image, []).append(Caption(key, text))
        for image in splits or ():
            captions.setdefault(image, [])
        for image, its_captions in captions.items():
            split = self.split_of(image, splits, problems)
            if split is not None:
                yield Entry(image, split, tuple(its_captions), file=image)

    def read(self, entry: Entry) -> EncodedImage:
        """Reads the photo."""
        return read_image_file(self.root / self.images, entry.file)
