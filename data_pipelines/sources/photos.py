"""Folders of photos, with captions in one file, in a file per photo, or in the photos."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Literal

from data_pipelines.photo_files import (
    PHOTO_SUFFIXES,
    RAW_SUFFIXES,
    UnreadableError,
    file_bytes,
    inside,
    visible_files,
)
from data_pipelines.sources.base import (
    SPLITS,
    Caption,
    Entry,
    FolderSource,
    MissingFileError,
    Problems,
    Share,
    SourceError,
    Split,
    composed,
    draw_split,
)
from data_pipelines.sources.text_files import csv_rows, decode, json_rows
from keras_xmr.utils.files import lines_of
from keras_xmr.utils.json_entries import parse_json, values_of

_CAPTIONS = (".txt", ".caption", ".json")
_READ = PHOTO_SUFFIXES - RAW_SUFFIXES
_JSON = (".json", ".jsonl")
_OWN_COLUMNS = (
    ", or name the columns of the file: --set data.source.image_column=... "
    "--set data.source.caption_column=..."
)
_SPLIT_NAMES: dict[str, Split] = {"valid": "val", "validation": "val", "dev": "val"}


class PhotosSource(FolderSource):
    """Base class of sources of photos as files under a folder."""

    splits: str | None = None
    """CSV file under `root` with the columns `image,split`, where split is train, val or test.
    Without one (null), the split of a photo is drawn from a hash of its name, so it does not
    change when photos are added."""

    val_share: Share = 0.1
    """Share of validation photos, without a split file."""

    test_share: Share = 0.1
    """Share of test photos, without a split file."""

    def read_splits(self, problems: Problems) -> dict[str, Split] | None:
        """Reads the split of each photo from the split file, by its `composed` name.

        Returns:
            The splits, or None without such a file.

        Raises:
            SourceError: If the file is missing or malformed.
        """
        if self.splits is None:
            return None
        path = self.root / self.splits
        splits: dict[str, Split] = {}
        for number, row in csv_rows(path, ("image", "split"), problems):
            image, written = composed(row["image"].strip()), row["split"].strip()
            split = _SPLIT_NAMES.get(written.lower(), written.lower())
            if split not in SPLITS:
                problems.add("unknown split", f"{path}:{number}: {written!r}, not {SPLITS}")
            elif splits.setdefault(image, split) != split:
                problems.add("image in two splits", f"{path}:{number}: {image}")
        return splits

    def split_of(
        self, image: str, splits: Mapping[str, Split] | None, problems: Problems
    ) -> Split | None:
        """Returns the split of a photo, or None, which is counted, if the split file lacks it."""
        if splits is None:
            return draw_split(image, self.val_share, self.test_share)
        split = splits.get(composed(image))
        if split is None:
            problems.add("image without a split", f"{image} is not in {self.splits}")
        return split


def hash_caption_id(image: str, text: str) -> str:
    """Returns an id for a caption without one: 64 bits of a hash, in hexadecimal digits."""
    content = composed(f"{image}\n{text.strip()}")
    return hashlib.sha256(content.encode(errors="replace")).hexdigest()[:16]


class PhotoFolderSource(PhotosSource):
    """Photos with caption files of the same name, `dog.jpg` and `dog.txt`, in a folder,
    recursively.

    Image generators are trained with such folders, and img2dataset writes them (`output_format:
    files`). A text file has one caption per line; a JSON file has the keys `caption` or `captions`,
    a text or a list. The text file has precedence. Without either, captions are read from the
    metadata of the photo (XMP, IPTC, EXIF).
    """

    name: Literal["photo_folder"] = "photo_folder"

    @property
    def photos_folder(self) -> Path:
        """Folder of the photos."""
        return self.root

    def entries(self, problems: Problems) -> Iterator[Entry]:
        """Yields the photos folder by folder, in the order of their names."""
        splits = self.read_splits(problems)
        missing = set(splits or ())
        for photos, captions in self._stems(problems):
            if not photos and captions is not None and self._holds_captions(captions):
                problems.add("caption file without a photo", captions)
            for photo in photos:
                missing.discard(composed(photo))
                split = self.split_of(photo, splits, problems)
                texts = self._texts(captions, photo, problems) if split else None
                if split and texts is not None:
                    named = tuple(Caption(hash_caption_id(photo, text), text) for text in texts)
                    yield Entry(photo, split, named, file=photo)
        for photo in sorted(missing):
            problems.add("missing photo of the split file", photo)

    def _stems(self, problems: Problems) -> Iterator[tuple[list[str], str | None]]:
        """Yields the photos with the same stem, and the file of their captions.

        Hidden files and folders are skipped, and links to folders are not followed.
        """
        if not os.path.isdir(self.root):
            raise SourceError(f"{self.root} is not a folder; it should hold photos with captions")

        def failed(error: OSError) -> None:
            problems.add("unreadable folder", f"{error.filename}: {error.strerror}")

        for folder, names in visible_files(self.root, failed):
            shown = list(map(folder.relative_to(self.root).joinpath, names))
            shown.sort(key=lambda path: (composed(path.stem), path.suffix))
            for files in _groups(shown):
                photos = [path.as_posix() for path in files if _suffix(path) in _READ]
                for path in files:
                    if _suffix(path) in RAW_SUFFIXES:
                        problems.add("RAW file, which is not supported", path.as_posix())
                captions: dict[str, str] = {}
                for path in files:
                    suffix, name = _suffix(path), path.as_posix()
                    if captions.setdefault(suffix, name) != name and suffix in _CAPTIONS:
                        problems.add("second caption file of a photo", name)
                named = [captions[suffix] for suffix in _CAPTIONS if suffix in captions]
                for other in named[1:] if photos else ():
                    self._count_unread(named[0], other, problems)
                yield photos, next(iter(named), None)

    def _count_unread(self, used: str, other: str, problems: Problems) -> None:
        """Counts a second file of captions with texts that the file that is read does not have."""
        with contextlib.suppress(OSError, ValueError, RecursionError, UnreadableError):
            known, texts = (set(_read(inside(self.root, name))) for name in (used, other))
            if texts - known:
                problems.add("second caption file of a photo", other)

    def _holds_captions(self, name: str) -> bool:
        """Returns whether a file without a photo holds captions: JSON files may be anything."""
        if not name.lower().endswith(".json"):
            return True
        with contextlib.suppress(OSError, ValueError, RecursionError, UnreadableError):
            return bool(_read(inside(self.root, name)))
        return False

    def _texts(self, name: str | None, photo: str, problems: Problems) -> list[str] | None:
        """Reads the captions of a photo from its file of captions, or without one from the photo.

        Returns:
            The captions, or None if the file cannot be used.
        """
        # Imports Pillow, which is not needed to check a config.
        from data_pipelines.sources.photo_captions import embedded_captions

        try:
            if name is None:
                return embedded_captions(inside(self.root, photo))
            texts = _read(inside(self.root, name))
        except (OSError, ValueError, RecursionError, UnreadableError) as error:
            problems.add("unreadable caption file", f"{name or photo}: {error}")
            return None
        if not texts:
            problems.add("empty caption file", name)
            return None
        return texts


def _groups(files: list[Path]) -> Iterator[list[Path]]:
    """Yields the files of a folder with the same stem, sorted by it.

    The stem of a photo and of its captions may be written in different forms of Unicode, but where
    photos are, each has the captions of its own form.
    """
    for _, group in groupby(files, key=lambda path: composed(path.stem)):
        alike = sorted(group, key=lambda path: path.stem)
        if len({path.stem for path in alike if _suffix(path) in _READ}) < 2:
            yield alike
        else:
            yield from (list(same) for _, same in groupby(alike, key=lambda path: path.stem))


def _suffix(path: Path) -> str:
    return path.suffix.lower()


def _read(path: Path) -> list[str]:
    """Reads the captions of a file.

    Raises:
        ValueError: If its format does not fit its name.
    """
    text = decode(file_bytes(path))
    texts = _values(parse_json(text)) if _suffix(path) == ".json" else lines_of(text)
    return [caption for caption in map(str.strip, texts) if caption]


def _values(content: object) -> list[str]:
    """Returns the captions in the content of a JSON file."""
    if not isinstance(content, dict) or not {"caption", "captions"} & content.keys():
        raise ValueError("it is not a JSON object with the key `caption` or `captions`")
    texts = values_of(content, "caption", "captions")
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(f"its captions should be a text or a list of texts: {texts!r:.80}")
    return texts


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
        first_name: dict[str, str] = {}
        id_columns = () if self.id_column is None else (self.id_column,)
        hashed: Counter[str] = Counter()
        read = json_rows if path.suffix.lower() in _JSON else partial(csv_rows, advice=_OWN_COLUMNS)
        for _, row in read(path, (self.image_column, self.caption_column, *id_columns), problems):
            image, text = row[self.image_column].strip(), row[self.caption_column]
            image = first_name.setdefault(composed(image), image)
            key = row.get(self.id_column or "caption_id", "").strip()
            if not key:
                key = hash_caption_id(image, text)
                hashed[key] += 1
                if hashed[key] > 1:  # A repetition of a caption of the same image.
                    key = f"{key}-{hashed[key]}"
            captions.setdefault(image, []).append(Caption(key, text))
        for image in splits or ():
            captions.setdefault(first_name.get(image, image), [])
        folder = os.path.normpath(self.photos_folder)
        named = {composed(os.path.normpath(os.path.join(folder, image))) for image in captions}
        for below, names in visible_files(Path(folder)):
            for photo in map(below.joinpath, names):
                if _suffix(photo) in _READ and composed(str(photo)) not in named:
                    problems.add("image without captions", os.path.relpath(photo, folder))
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
