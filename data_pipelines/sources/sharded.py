"""Data sets in files of many images, and WebDataset: tar files with an image's files in a row."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import IO, Any, Literal

from data_pipelines.sources.base import (
    SPLITS,
    Caption,
    EncodedImage,
    Entry,
    FolderSource,
    Problems,
    Share,
    SourceError,
    Split,
    UnreadableError,
    check_file,
    draw_split,
    inside,
)
from data_pipelines.sources.text_files import decode

_IMAGES = ("jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff")


class ShardedSource(FolderSource):
    """Base class of data sets in many files, each with many images."""

    train: str
    """Pattern of the training files, under `root`."""

    val: str | None = None
    """Pattern of the validation files. Without one (null), a share of the images of `train`
    validates, selected by a hash of their keys."""

    test: str | None = None
    """Pattern of the test files; likewise."""

    val_share: Share = 0.01
    """Share of validation images, without `val`."""

    test_share: Share = 0.01
    """Share of test images, without `test`."""

    def files(self) -> Iterator[tuple[Split, Path]]:
        """Yields all files, split by split, each in the order of their names.

        Raises:
            SourceError: If a pattern matches no files, or leads out of `root`.
        """
        for split in SPLITS:
            pattern = getattr(self, split)
            if pattern is None:
                continue
            if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
                raise SourceError(f"data.source.{split}: {pattern} leads out of {self.root}")
            paths = sorted(self.root.glob(pattern))
            if not paths:
                raise SourceError(f"no file in {self.root} matches {pattern}")
            yield from ((split, path) for path in paths)

    def split_of(self, key: str, split: Split) -> Split:
        """Returns the split of an image in a file of a split."""
        if split != "train":
            return split
        val = 0 if self.val else self.val_share
        return draw_split(key, val, 0 if self.test else self.test_share)


def parse_captions(key: str, value: Any, problems: Problems) -> tuple[Caption, ...]:
    """Parses the captions of an image: a text, or a list of texts."""
    texts = value if isinstance(value, list) else [value]
    if not all(isinstance(text, str) for text in texts):
        problems.add("caption that is not text", f"{key}: {value!r:.80}")
        return ()
    if len(texts) == 1:
        return (Caption(key, texts[0]),)
    return tuple(Caption(f"{key}/{number}", text) for number, text in enumerate(texts))


def unreadable(path: Path, error: Exception) -> UnreadableError:
    """Builds the error of an image in a file that cannot be read."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
    return UnreadableError(f"{path} cannot be read: {reason}")


class WebDatasetSource(ShardedSource):
    """Tar files of img2dataset: `000000000.jpg`, `.txt` and `.json` of each image.

    They are read by offset, and never unpacked. The key of an image is the common name of its files
    up to the first dot. Images without a caption are skipped.
    """

    name: Literal["webdataset"] = "webdataset"

    train: str = "*.tar"
    """Pattern of the training files, under `root`."""

    caption: str = "caption"
    """Key in the JSON file of the caption, or the list of captions, of an image without a text
    file."""

    def entries(self, problems: Problems) -> Iterator[Entry]:
        """Yields the images file by file."""
        for split, path in self.files():
            file = str(path.relative_to(self.root))
            try:
                with tarfile.open(check_file(path), "r:") as tar:
                    for key, image, caption in self._items(tar, path, problems):
                        texts = parse_captions(key, caption, problems)
                        image_split = self.split_of(key, split)
                        yield Entry(key, image_split, texts, (), file, image.offset_data)
                    if fault := _fault(path, tar.offset):
                        problems.add("damaged tar file", f"{path} {fault}")
            except (tarfile.TarError, OSError, EOFError) as error:
                problems.add(
                    "damaged tar file", f"{path}: {error}; compressed files are not supported"
                )

    def read(self, entry: Entry) -> EncodedImage:
        """Reads the image at its offset."""
        path = inside(self.root, entry.file)
        try:
            with path.open("rb") as file:
                return EncodedImage(_content(file, entry.position))
        except (tarfile.TarError, OSError, ValueError) as error:
            raise unreadable(path, error) from None

    def _items(
        self, tar: tarfile.TarFile, path: Path, problems: Problems
    ) -> Iterator[tuple[str, tarfile.TarInfo, Any]]:
        """Yields the key, the image and the caption of every item; counts those without."""
        for key, members in groupby(filter(tarfile.TarInfo.isreg, tar), _key):
            by_kind = {member.name.rpartition(".")[2].lower(): member for member in members}
            image = next((by_kind[kind] for kind in _IMAGES if kind in by_kind), None)
            if image is None:
                problems.add("item without an image", f"{key} in {path}")
                continue
            try:
                caption = self._caption(tar, by_kind)
            except (ValueError, KeyError, RecursionError) as error:
                problems.add("malformed caption", f"{key} in {path}: {error}")
            else:
                yield key, image, caption

    def _caption(self, tar: tarfile.TarFile, by_kind: dict[str, tarfile.TarInfo]) -> Any:
        if "txt" in by_kind:
            return decode(_bytes(tar, by_kind["txt"])).strip()
        if "json" not in by_kind:
            return []
        content = json.loads(_bytes(tar, by_kind["json"]))
        if not isinstance(content, dict):
            raise ValueError("not a JSON object")
        return content[self.caption]


def _fault(path: Path, offset: int) -> str | None:
    """Describes damage of a tar file that `tarfile` has read up to an offset; None if it is intact.

    `tarfile` stops at damaged or truncated headers, and after the first of several archives,
    without an error; and a file of zeros is an empty archive to it.
    """
    with path.open("rb") as file:
        file.seek(offset)
        if file.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
            return (
                f"ends without an end-of-archive block: it was cut or damaged at byte {offset:,}, "
                "and the rest is not read. Download or copy it again"
            )
        if offset == 0:
            return "begins with the end of an archive, so it holds no files. Download it again"
        while block := file.read(1 << 20):
            if block.strip(b"\0"):
                return (
                    f"goes on after the end of its archive at byte {offset:,}, and that is not "
                    "read. Write every archive to a separate file, or copy it again if it is one"
                )
    return None


def _key(member: tarfile.TarInfo) -> str:
    folder, slash, name = member.name.rpartition("/")
    return folder + slash + name.partition(".")[0]


def _bytes(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    return b"" if file is None else file.read()


def _content(file: IO[bytes], offset: int) -> bytes:
    """Reads the file of a tar archive with its content at an offset, after its header."""
    file.seek(offset - tarfile.BLOCKSIZE)
    header = file.read(tarfile.BLOCKSIZE)
    size = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape").size
    content = file.read(size)
    if len(content) < size:
        raise UnreadableError(f"{file.name} ends within an image")
    return content
