"""WebDataset: tar files in which the files of an image are consecutive."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import IO, Any, Literal

from data_pipelines.sources.base import (
    EncodedImage,
    Entry,
    Problems,
    Split,
    UnreadableError,
    check_file,
    inside,
)
from data_pipelines.sources.sharded import ShardedSource, parse_captions, unreadable
from data_pipelines.sources.text_files import decode

_IMAGES = ("jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff")


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
            try:
                with tarfile.open(check_file(path), "r:") as tar:
                    for key, members in groupby(filter(tarfile.TarInfo.isreg, tar), _key):
                        entry = self._entry(tar, split, path, key, members, problems)
                        if entry is not None:
                            yield entry
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

    def _entry(
        self,
        tar: tarfile.TarFile,
        split: Split,
        path: Path,
        key: str,
        members: Iterable[tarfile.TarInfo],
        problems: Problems,
    ) -> Entry | None:
        by_kind = {member.name.rpartition(".")[2].lower(): member for member in members}
        image = next((by_kind[kind] for kind in _IMAGES if kind in by_kind), None)
        if image is None:
            problems.add("item without an image", f"{key} in {path}")
            return None
        try:
            captions = parse_captions(key, self._caption(tar, by_kind), problems)
            file = str(path.relative_to(self.root))
            return Entry(key, self.split_of(key, split), captions, (), file, image.offset_data)
        except (ValueError, KeyError, RecursionError) as error:
            problems.add("malformed caption", f"{key} in {path}: {error}")
            return None

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
                "and what follows is not read. Download or copy it again"
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
    """Reads the file of a tar archive whose content begins at an offset, after its header."""
    file.seek(offset - tarfile.BLOCKSIZE)
    header = file.read(tarfile.BLOCKSIZE)
    size = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape").size
    content = file.read(size)
    if len(content) < size:
        raise UnreadableError(f"{file.name} ends within an image")
    return content
