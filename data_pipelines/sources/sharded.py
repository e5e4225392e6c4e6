"""Data sets in files of many images: WebDataset, Parquet, and folders saved by `datasets`."""

from __future__ import annotations

import abc
import importlib
import tarfile
import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, groupby
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Literal

from data_pipelines.photo_files import UnreadableError, check_file, inside
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
    draw_split,
)
from data_pipelines.sources.text_files import decode
from keras_xmr.utils.installing import install_command
from keras_xmr.utils.json_entries import Repeated, parse_json, values_of

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

    The archives are read by offset, and never unpacked. The key of an image is the common name of
    its files up to the first dot. Images without a caption are skipped. Of several files of an item
    of one kind, and of several images, all but the first are skipped and counted.
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
        """Reads the image at its offset, which is after its header."""
        path = inside(self.root, entry.file)
        try:
            with path.open("rb") as file:
                file.seek(entry.position - tarfile.BLOCKSIZE)
                header = file.read(tarfile.BLOCKSIZE)
                size = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape").size
                content = file.read(size)
        except (tarfile.TarError, OSError, ValueError) as error:
            raise unreadable(path, error) from None
        if len(content) < size:
            raise UnreadableError(f"{path} ends within an image")
        return EncodedImage(content)

    def _items(
        self, tar: tarfile.TarFile, path: Path, problems: Problems
    ) -> Iterator[tuple[str, tarfile.TarInfo, Any]]:
        """Yields the key, the image and the caption of every item; counts those without."""
        for key, members in groupby(filter(tarfile.TarInfo.isreg, tar), _key):
            by_suffix: dict[str, tarfile.TarInfo] = {}
            for member in members:
                if by_suffix.setdefault(_suffix(member), member) is not member:
                    problems.add("repeated file of an item", f"{member.name} in {path}")
            images = [by_suffix[suffix] for suffix in _IMAGES if suffix in by_suffix]
            if not images:
                problems.add("item without an image", f"{key} in {path}")
                continue
            for other in images[1:]:
                problems.add("second image of an item", f"{other.name} in {path}")
            try:
                caption = self._caption(tar, by_suffix)
            except (ValueError, KeyError, RecursionError) as error:
                problems.add("malformed caption", f"{key} in {path}: {error}")
            else:
                yield key, images[0], caption

    def _caption(self, tar: tarfile.TarFile, by_suffix: dict[str, tarfile.TarInfo]) -> Any:
        if "txt" in by_suffix:
            return decode(_bytes(tar, by_suffix["txt"])).strip()
        if "json" not in by_suffix:
            return []
        content = parse_json(_bytes(tar, by_suffix["json"]))
        if not isinstance(content, dict):
            raise ValueError("not a JSON object")
        caption = content[self.caption]
        return values_of(content, self.caption) if isinstance(caption, Repeated) else caption


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


def _suffix(member: tarfile.TarInfo) -> str:
    return member.name.rpartition(".")[2].lower()


def _key(member: tarfile.TarInfo) -> str:
    folder, slash, name = member.name.rpartition("/")
    return folder + slash + name.partition(".")[0]


def _bytes(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    return b"" if file is None else file.read()


class TableSource(ShardedSource):
    """Base class of sources of tables with an image and its captions per row."""

    FORMAT: ClassVar[str]

    image_column: str
    """The column with the image: bytes, or a pair of `bytes` and `path`."""

    caption_column: str = "caption"
    """The column with the caption, or with the list of captions."""

    key_column: str | None = None
    """The column with the key of the image, by which judgements and audit labels identify it.
    Without one (null), its file and row are its key."""

    @abc.abstractmethod
    def batches(self, path: Path) -> Iterator[Any]:
        """Yields batches of the rows of a file, with the columns of `columns`."""

    @abc.abstractmethod
    def value(self, path: Path, row: int) -> Any:
        """Returns the value of a row of a file in the column of images."""

    def entries(self, problems: Problems) -> Iterator[Entry]:
        """Yields the images file by file, row by row."""
        for split, path in self.files():
            file, row = str(path.relative_to(self.root)), 0
            try:
                for batch in self.batches(path):
                    captions = batch.column(self.caption_column).to_pylist()
                    keys: Sequence[Any] = [None] * len(captions)
                    if self.key_column is not None:
                        keys = batch.column(self.key_column).to_pylist()
                    for key, caption in zip(keys, captions, strict=True):
                        name = f"{file}/{row:09d}" if key is None else str(key)
                        texts = parse_captions(name, [] if caption is None else caption, problems)
                        yield Entry(name, self.split_of(name, split), texts, (), file, row)
                        row += 1
            except (OSError, ValueError) as error:
                problems.add(f"damaged {self.FORMAT} file", f"{path}: {error}")

    def read(self, entry: Entry) -> EncodedImage:
        """Reads the image of a row. Reading in order is fastest."""
        path = inside(self.root, entry.file)
        try:
            value = self.value(path, entry.position)
        except (OSError, ValueError, LookupError) as error:
            raise unreadable(path, error) from None
        data = value.get("bytes") if isinstance(value, dict) else value
        if not isinstance(data, bytes):
            raise UnreadableError(f"row {entry.position} of {entry.file} holds no image")
        return EncodedImage(data)

    def columns(self, schema: Any, path: Path) -> list[str]:
        """Returns the columns of the entries.

        Args:
            schema: The Arrow schema of a file.
            path: The file, for the message.

        Raises:
            SourceError: If one does not exist, or the column of images has another type.
        """
        names = schema.names
        for option in ("image_column", "caption_column", "key_column"):
            column = getattr(self, option)
            if column is not None and column not in names:
                raise SourceError(
                    f"{path} has no column {column!r}, but {', '.join(map(repr, names))}; "
                    f"name one with data.source.{option}"
                )
        column_type = str(schema.field(self.image_column).type)
        if "binary" not in column_type and "extension" not in column_type:
            raise SourceError(
                f"the column {self.image_column!r} of {path} holds {column_type}, not the bytes of "
                f"images; its columns are {', '.join(map(repr, names))}, and "
                "data.source.image_column names the one with images"
            )
        return [self.caption_column, *filter(None, [self.key_column])]


def pyarrow(module: str) -> ModuleType:
    """Imports a module of pyarrow.

    Raises:
        SourceError: If it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        raise SourceError(
            f"tables need pyarrow; install it: {install_command('parquet')}"
        ) from None


_ROWS = 64
"""Number of images in memory per thread."""


class ParquetSource(TableSource):
    """Parquet files, such as img2dataset writes with `output_format: parquet`.

    The columns are `key`, `caption` and `jpg`; on the hub of Hugging Face often `image` and
    `caption`.
    """

    FORMAT = "Parquet"

    name: Literal["parquet"] = "parquet"

    train: str = "*.parquet"
    """Pattern of the training files, under `root`."""

    image_column: str = "jpg"
    """The column with the image: bytes, or a pair of `bytes` and `path`."""

    def batches(self, path: Path) -> Iterator[Any]:
        """Yields batches of the rows of a file."""
        with pyarrow("pyarrow.parquet").ParquetFile(check_file(path)) as file:
            yield from file.iter_batches(columns=self.columns(file.schema_arrow, path))

    def value(self, path: Path, row: int) -> Any:
        """Returns the value of a row in the column of images."""
        cursor = getattr(_PER_THREAD, "cursor", None)
        if cursor is None or cursor.location != (path, self.image_column):
            cursor = _PER_THREAD.cursor = _Cursor(path, self.image_column)
        return cursor.value(row)


class _Cursor:
    """Values of a column of a file; access in order is fastest."""

    def __init__(self, path: Path, column: str) -> None:
        self.location = path, column
        self._file = pyarrow("pyarrow.parquet").ParquetFile(path)
        metadata = self._file.metadata
        counts = (metadata.row_group(i).num_rows for i in range(metadata.num_row_groups))
        self._starts = list(accumulate(counts, initial=0))
        self._group = -1
        self._first = 0
        self._batch: Any = ()
        self._rest: Iterator[Any] = iter(())

    def value(self, row: int) -> Any:
        """Returns the value of a row."""
        group = bisect_right(self._starts, row) - 1
        if group != self._group or row < self._first:
            self._group, self._first, self._batch = group, self._starts[group], ()
            columns = [self.location[1]]
            self._rest = self._file.iter_batches(_ROWS, row_groups=[group], columns=columns)
        for batch in self._rest if row >= self._first + len(self._batch) else ():
            self._first += len(self._batch)
            self._batch = batch.column(0)
            if row < self._first + len(self._batch):
                break
        return self._batch[row - self._first].as_py()


_PER_THREAD = threading.local()
"""The cursor of each thread, which keeps its last file open."""


class HuggingFaceSource(TableSource):
    """Folder saved by `datasets`: one folder of Arrow files per split.

    The files are memory-mapped; `datasets` itself is not needed. They must contain the images
    (`dataset.cast_column("image", Image())` before `save_to_disk` embeds them).
    """

    FORMAT = "Arrow"

    name: Literal["huggingface"] = "huggingface"

    train: str = "train/*.arrow"
    """Pattern of the training files, under `root`; `*.arrow` for data sets without splits."""

    image_column: str = "image"
    """The column with the image: bytes, or a pair of `bytes` and `path`."""

    def batches(self, path: Path) -> Iterator[Any]:
        """Yields batches of the rows of a file."""
        table = _table(path)
        yield from table.select(self.columns(table.schema, path)).to_batches()

    def value(self, path: Path, row: int) -> Any:
        """Returns the value of a row in the column of images."""
        return _table(path)[self.image_column][row].as_py()


@lru_cache(maxsize=64)
def _table(path: Path) -> Any:
    """Memory-maps a file."""
    arrow = pyarrow("pyarrow")
    return pyarrow("pyarrow.ipc").open_stream(arrow.memory_map(str(path))).read_all()
