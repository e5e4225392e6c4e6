"""Index of a split: metadata and captions of its images, as memory-mapped columns.

Five million captions take about 0.4 GB of a file, which is opened in the time of its checksum, and
of which only the used part is in memory. The layout is that of safetensors; that library writes
whole arrays and reads copies; these columns are written part by part and mapped.
"""

from __future__ import annotations

import hashlib
import json
import operator
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

import numpy as np

from data_pipelines.sources import Caption
from keras_xmr.utils.files import replace_atomically

T = TypeVar("T")

_TYPES = {"I64": "<i8", "U64": "<u8", "I32": "<i4", "U32": "<u4", "U8": "|u1"}
_ALIGNED = 8
_CHUNK = 4096


def write_columns(
    path: Path, columns: Mapping[str, str], parts: Iterable[Mapping[str, np.ndarray]]
) -> None:
    """Writes columns part by part; only one part is in memory.

    The file appears whole, or not at all.

    Args:
        path: The file.
        columns: The safetensors type of each column by name: the widest first, so that all are
            aligned.
        parts: Parts of some or all columns, by name.

    Raises:
        OSError: If the disk is full or cannot be written.
    """
    with ExitStack() as stack:
        folder = path.parent
        files = {name: stack.enter_context(tempfile.TemporaryFile(dir=folder)) for name in columns}
        for part in parts:
            for name, values in part.items():
                files[name].write(np.ascontiguousarray(values, _TYPES[columns[name]]).data)
        header, end = {}, 0
        for name, file in files.items():
            begin, end = end, end + file.tell()
            dtype = columns[name]
            shape = [(end - begin) // np.dtype(_TYPES[dtype]).itemsize]
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % _ALIGNED)
        with replace_atomically(path) as temporary, temporary.open("wb") as whole:
            whole.write(len(text).to_bytes(8, "little") + text)
            for file in files.values():
                file.seek(0)
                shutil.copyfileobj(file, whole, 1 << 20)


def map_columns(path: Path) -> dict[str, np.ndarray]:
    """Maps the columns of a file of `write_columns` that was verified before.

    Args:
        path: The file.
    """
    mapped = np.asarray(np.memmap(path, np.uint8, mode="r"))
    start = 8 + int.from_bytes(mapped[:8].tobytes(), "little")
    header = json.loads(mapped[8:start].tobytes())
    columns = {}
    for name, column in header.items():
        begin, end = (start + offset for offset in column["data_offsets"])
        columns[name] = mapped[begin:end].view(_TYPES[column["dtype"]])
    return columns


class Lazy(Sequence[T], Generic[T]):
    """Read-only sequence that computes its items on access."""

    def part(self, begin: int, end: int) -> list[T]:
        """Returns the items from one valid index up to another."""
        raise NotImplementedError

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if not isinstance(index, slice):
            number = range(len(self))[index]
            return self.part(number, number + 1)[0]
        begin, end, step = index.indices(len(self))
        if step == 1:
            return self.part(begin, max(begin, end))
        return [self[number] for number in range(begin, end, step)]

    def __iter__(self) -> Iterator[T]:
        for begin in range(0, len(self), _CHUNK):
            yield from self.part(begin, min(begin + _CHUNK, len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(map(operator.eq, self, other))


class _Concatenated(Lazy[T]):
    """Items one after another in an array."""

    _plain: Callable[[np.ndarray], Any]
    _item: Callable[[Any], T]

    def __init__(self, content: np.ndarray, first: np.ndarray) -> None:
        self._content = content
        self._first = first

    def __len__(self) -> int:
        return len(self._first) - 1

    def part(self, begin: int, end: int) -> list[T]:
        """Returns the items from one index up to another."""
        places = self._first[begin : end + 1]
        content = self._plain(self._content[places[0] : places[-1]])
        return [self._item(content[a:b]) for a, b in pairwise((places - places[0]).tolist())]


class Strings(_Concatenated[str]):
    """Concatenated texts.

    Args:
        content: All texts in UTF-8, uint8 (bytes,).
        first: Offset of each text, and the end of the last: int64 (texts + 1,).
    """

    _plain, _item = staticmethod(np.ndarray.tobytes), staticmethod(bytes.decode)

    def digest(self) -> str:
        """Returns a digest of all texts in order: 16 hexadecimal digits."""
        digest = hashlib.sha256(self._first.astype("<i8").tobytes())
        digest.update(self._content.tobytes())
        return digest.hexdigest()[:16]


class Tuples(_Concatenated[tuple[int, ...]]):
    """Concatenated tuples of numbers.

    Args:
        content: All numbers, int (numbers,).
        first: Offset of each tuple, and the end of the last: int64 (tuples + 1,).
    """

    _plain, _item = staticmethod(np.ndarray.tolist), tuple

    @property
    def longest(self) -> int:
        """Length of the longest tuple."""
        return int(np.diff(self._first).max(initial=0))

    def padded(self, which: np.ndarray, width: int) -> np.ndarray:
        """Returns some of the tuples, int64 (N, width), padded with -1."""
        first, end = self._first[which, None], self._first[which + 1, None]
        places = first + np.arange(width)
        if not len(self._content):
            return np.full(places.shape, -1, np.int64)
        return np.where(places < end, self._content.take(places, mode="clip"), -1).astype(np.int64)


_COLUMNS = {
    "offset": "I64",
    "length": "I64",
    "digest": "U64",
    "first_key": "I64",
    "first_label": "I64",
    "first_caption": "I64",
    "first_caption_key": "I64",
    "first_text": "I64",
    "labels": "I64",
    "shard": "I32",
    "crc": "U32",
    "keys": "U8",
    "caption_keys": "U8",
    "texts": "U8",
}
_STARTS = tuple(name for name in _COLUMNS if name.startswith("first_"))

Columns = dict[str, np.ndarray]


def index_file(split: str) -> str:
    """Returns the file name of the index of a split."""
    return f"{split}-index.safetensors"


class Captions(Lazy[Caption]):
    """Captions with their keys.

    Args:
        keys: Keys of the captions.
        texts: Texts of the captions.
    """

    def __init__(self, keys: Strings, texts: Strings) -> None:
        self._keys = keys
        self._texts = texts

    def __len__(self) -> int:
        return len(self._texts)

    def part(self, begin: int, end: int) -> list[Caption]:
        """Returns the captions from one index up to another."""
        keys, texts = self._keys.part(begin, end), self._texts.part(begin, end)
        return [Caption(*pair) for pair in zip(keys, texts, strict=True)]


@dataclass(frozen=True, eq=False)
class SplitIndex:
    """Metadata of the N images of a split with M captions.

    Attributes:
        columns: `offset` and `length` of the record of each image in its `shard`, its `crc`, and
            the `digest` of the image: int (N,); the properties use the others.
    """

    columns: Columns

    @classmethod
    def from_sidecars(cls, sidecars: Iterable[Mapping[str, Any]]) -> SplitIndex:
        """Builds the index of some shards in memory, from their sidecars."""
        parts = list(_parts(sidecars))
        return cls(
            {
                name: np.concatenate([part[name] for part in parts if name in part])
                for name in _COLUMNS
            }
        )

    def with_captions(self, more: Mapping[str, Sequence[tuple[str, str]]]) -> SplitIndex:
        """Returns the index with additional captions after those of their image.

        Args:
            more: Pairs of key and text, by the key of their image; unknown images are ignored.
        """
        added = [
            (number, *caption)
            for number, key in enumerate(self.keys if more else ())
            for caption in more.get(key, ())
        ]
        if not added:
            return self
        images, keys, texts = zip(*added, strict=True)
        first, counts = self.columns["first_caption"], np.bincount(images, minlength=len(self.keys))
        places = first[np.array(images) + 1]
        columns = {**self.columns, "first_caption": _starts(np.diff(first) + counts)}
        for name, start, strings in (
            ("caption_keys", "first_caption_key", keys),
            ("texts", "first_text", texts),
        ):
            columns |= _inserted(self.columns, name, start, places, strings)
        return SplitIndex(columns)

    @cached_property
    def keys(self) -> Strings:
        """Keys of the images."""
        return Strings(self.columns["keys"], self.columns["first_key"])

    @cached_property
    def labels(self) -> Tuples:
        """Class or labels of each image."""
        return Tuples(self.columns["labels"], self.columns["first_label"])

    @cached_property
    def texts(self) -> Strings:
        """Texts of the captions."""
        return Strings(self.columns["texts"], self.columns["first_text"])

    @cached_property
    def captions(self) -> Captions:
        """Captions with their keys."""
        keys = Strings(self.columns["caption_keys"], self.columns["first_caption_key"])
        return Captions(keys, self.texts)


def write_index(path: Path, sidecars: Iterable[Mapping[str, Any]]) -> None:
    """Writes the index of a split, whole or not at all; only one sidecar is in memory.

    Args:
        path: The file.
        sidecars: The sidecars of its shards, in order.
    """
    write_columns(path, _COLUMNS, _parts(sidecars))


def open_index(path: Path) -> SplitIndex:
    """Opens the index in a file."""
    return SplitIndex(map_columns(path))


def _parts(sidecars: Iterable[Mapping[str, Any]]) -> Iterator[Columns]:
    """Yields the parts of the columns: first the offsets 0, then a part per shard."""
    ends = dict.fromkeys(_STARTS, 0)
    yield {name: np.zeros(1, np.int64) for name in _STARTS}
    for number, sidecar in enumerate(sidecars):
        items = sidecar["items"]
        captions = [caption for item in items for caption in item["captions"]]
        keys = [item["key"].encode() for item in items]
        caption_keys = [key.encode() for key, _ in captions]
        texts = [text.encode() for _, text in captions]
        lengths = {
            "first_label": (len(item["labels"]) for item in items),
            "first_caption": (len(item["captions"]) for item in items),
            "first_key": map(len, keys),
            "first_caption_key": map(len, caption_keys),
            "first_text": map(len, texts),
        }
        offsets = {name: ends[name] + np.cumsum(_numbers(lengths[name])) for name in _STARTS}
        ends |= {name: int(offset[-1]) for name, offset in offsets.items() if len(offset)}
        yield {
            **{
                name: _numbers(item[name] for item in items) for name in ("offset", "length", "crc")
            },
            **offsets,
            "digest": np.array([int(item["digest"], 16) for item in items], np.uint64),
            "shard": np.full(len(items), number),
            "labels": _numbers(label for item in items for label in item["labels"]),
            "keys": _bytes(keys),
            "caption_keys": _bytes(caption_keys),
            "texts": _bytes(texts),
        }


def _inserted(
    columns: Columns, name: str, start: str, places: np.ndarray, strings: Sequence[str]
) -> Columns:
    """Inserts strings at some positions of a column; returns it with its offsets."""
    content, first = columns[name], columns[start]
    encoded = [text.encode() for text in strings]
    lengths = [len(text) for text in encoded]
    return {
        name: np.insert(content, np.repeat(first[places], lengths), _bytes(encoded)),
        start: _starts(np.insert(np.diff(first), places, lengths)),
    }


def _starts(lengths: np.ndarray) -> np.ndarray:
    """Converts lengths to offsets, followed by the end of the last."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def _numbers(values: Iterable[int]) -> np.ndarray:
    return np.fromiter(values, np.int64)


def _bytes(texts: list[bytes]) -> np.ndarray:
    return np.frombuffer(b"".join(texts), np.uint8)
