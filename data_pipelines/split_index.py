"""Metadata of the images of a shard or a split, as columns of numbers and of joined texts."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Generic, TypeVar, overload

import numpy as np

from data_pipelines.sources import Caption, Entry

T = TypeVar("T")

_CHUNK = 4096


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


Columns = dict[str, np.ndarray]

OF_IMAGES = {"offset": "<i8", "length": "<i8", "crc": "<u4", "digest": "<u8", "source": "<u8"}
"""Columns with a number per image, and their types: place and CRC-32 of the record in its shard,
and digests of the image as it is stored and as it was read from the source."""

_TEXTS = {"keys": "first_key", "caption_keys": "first_caption_key", "texts": "first_text"}
_LISTS = {**_TEXTS, "labels": "first_label"}
"""Columns of joined texts and numbers, and the columns of their offsets."""

COLUMNS = (*OF_IMAGES, *_LISTS, *_LISTS.values(), "first_caption")
"""All columns of a shard."""


@dataclass(frozen=True, eq=False)
class SplitIndex:
    """Metadata of N images with M captions.

    Attributes:
        columns: Those of `OF_IMAGES`, and the `shard` of each image, int (N,); the properties use
            the others.
    """

    columns: Columns

    @classmethod
    def from_entries(cls, entries: Sequence[Entry], numbers: Mapping[str, list[int]]) -> SplitIndex:
        """Builds the index of the images of a shard.

        Args:
            entries: The images.
            numbers: The columns of `OF_IMAGES`.
        """
        captions = [caption for entry in entries for caption in entry.captions]
        labels = [label for entry in entries for label in entry.labels]
        return cls(
            {name: np.array(numbers[name], dtype) for name, dtype in OF_IMAGES.items()}
            | {"labels": np.array(labels, np.int64)}
            | {"first_label": _starts([len(entry.labels) for entry in entries])}
            | {"first_caption": _starts([len(entry.captions) for entry in entries])}
            | _text_column("keys", [entry.key for entry in entries])
            | _text_column("caption_keys", [caption.key for caption in captions])
            | _text_column("texts", [caption.text for caption in captions])
        )

    @classmethod
    def join(cls, parts: Sequence[SplitIndex]) -> SplitIndex:
        """Joins the indices of the shards of a split."""
        sizes = [len(part.keys) for part in parts]
        columns = {"shard": np.repeat(np.arange(len(parts), dtype=np.int32), sizes)}
        for name in COLUMNS:
            arrays = [part.columns[name] for part in parts]
            if name.startswith("first_"):
                ends = np.cumsum([0, *(array[-1] for array in arrays)])
                starts = [array[:-1] + end for array, end in zip(arrays, ends, strict=False)]
                arrays = [*starts, ends[-1:]]
            columns[name] = np.concatenate(arrays)
        return cls(columns)

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
        for name, strings in (("caption_keys", keys), ("texts", texts)):
            more_content, more_first = _text_column(name, strings).values()
            content, first = self.columns[name], self.columns[_TEXTS[name]]
            lengths = np.diff(more_first)
            columns[name] = np.insert(content, np.repeat(first[places], lengths), more_content)
            columns[_TEXTS[name]] = _starts(np.insert(np.diff(first), places, lengths))
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


def _text_column(name: str, texts: Sequence[str]) -> Columns:
    """Joins texts; returns their bytes, and the offsets of each."""
    encoded = [text.encode() for text in texts]
    content = np.frombuffer(b"".join(encoded), np.uint8)
    return {name: content, _TEXTS[name]: _starts(list(map(len, encoded)))}


def _starts(lengths: Sequence[int] | np.ndarray) -> np.ndarray:
    """Converts lengths to offsets, followed by the end of the last."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
