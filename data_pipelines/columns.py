"""Columns of numbers and bytes in one memory-mapped file, in the layout of safetensors.

The library `safetensors` writes whole arrays from memory and reads copies; these columns are
written part by part and mapped.
"""

from __future__ import annotations

import hashlib
import json
import operator
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Generic, TypeVar, overload

import numpy as np

from data_pipelines.files import replace_atomically

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
    def __init__(self, content: np.ndarray, first: np.ndarray) -> None:
        self._content = content
        self._first = first

    def __len__(self) -> int:
        return len(self._first) - 1


class Strings(_Concatenated[str]):
    """Concatenated texts.

    Args:
        content: All texts in UTF-8, uint8 (bytes,).
        first: Offset of each text, and the end of the last: int64 (texts + 1,).
    """

    def digest(self) -> str:
        """Returns a digest of all texts in order: 16 hexadecimal digits."""
        digest = hashlib.sha256(self._first.astype("<i8").tobytes())
        digest.update(self._content.tobytes())
        return digest.hexdigest()[:16]

    def part(self, begin: int, end: int) -> list[str]:
        """Returns the texts from one index up to another."""
        places = self._first[begin : end + 1].tolist()
        start = places[0]
        content = self._content[start : places[-1]].tobytes()
        return [content[a - start : b - start].decode() for a, b in pairwise(places)]


class Tuples(_Concatenated[tuple[int, ...]]):
    """Concatenated tuples of numbers.

    Args:
        content: All numbers, int (numbers,).
        first: Offset of each tuple, and the end of the last: int64 (tuples + 1,).
    """

    @property
    def longest(self) -> int:
        """Length of the longest tuple."""
        return int(np.diff(self._first).max(initial=0))

    def part(self, begin: int, end: int) -> list[tuple[int, ...]]:
        """Returns the tuples from one index up to another."""
        places = self._first[begin : end + 1].tolist()
        numbers = self._content[places[0] : places[-1]].tolist()
        return [tuple(numbers[a - places[0] : b - places[0]]) for a, b in pairwise(places)]

    def padded(self, which: np.ndarray, width: int) -> np.ndarray:
        """Returns some of the tuples, int64 (N, width), padded with -1."""
        first, end = self._first[which, None], self._first[which + 1, None]
        places = first + np.arange(width)
        if not len(self._content):
            return np.full(places.shape, -1, np.int64)
        return np.where(places < end, self._content.take(places, mode="clip"), -1).astype(np.int64)
