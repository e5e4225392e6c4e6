"""Index of a split: metadata and captions of its images, as memory-mapped columns.

Five million captions take about 0.4 GB of a file, which is opened in the time of its checksum, and
of which only the used part is in memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from data_pipelines.columns import Lazy, Strings, Tuples, map_columns, write_columns
from data_pipelines.sources import Caption

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
        parts = [_part(number, sidecar) for number, sidecar in enumerate(sidecars)]
        columns = {name: np.concatenate([part[name] for part in parts]) for name in _COLUMNS}
        for name in _STARTS:
            columns[name] = _starts(columns[name])
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


@contextmanager
def write_index(path: Path) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Yields a function that appends a shard, by its sidecar, to the index of a split.

    The file appears whole at the end of the block, or not at all.

    Args:
        path: The file.
    """
    ends, shards = dict.fromkeys(_STARTS, 0), itertools.count()
    with write_columns(path, _COLUMNS) as append_columns:
        append_columns({name: np.zeros(1, np.int64) for name in _STARTS})

        def append(sidecar: Mapping[str, Any]) -> None:
            part = _part(next(shards), sidecar)
            for name, end in ends.items():
                part[name] = end + np.cumsum(part[name], dtype=np.int64)
                ends[name] = int(part[name][-1]) if len(part[name]) else end
            append_columns(part)

        yield append


def open_index(path: Path) -> SplitIndex:
    """Opens the index in a file."""
    return SplitIndex(map_columns(path))


def _part(number: int, sidecar: Mapping[str, Any]) -> Columns:
    """Builds the columns of one shard; columns of offsets hold lengths."""
    items = sidecar["items"]
    captions = [caption for item in items for caption in item["captions"]]
    keys = [item["key"].encode() for item in items]
    caption_keys = [key.encode() for key, _ in captions]
    texts = [text.encode() for _, text in captions]
    return {
        **{name: _numbers(item[name] for item in items) for name in ("offset", "length", "crc")},
        "digest": np.array([int(item["digest"], 16) for item in items], np.uint64),
        "shard": np.full(len(items), number),
        "labels": _numbers(label for item in items for label in item["labels"]),
        "first_label": _numbers(len(item["labels"]) for item in items),
        "first_caption": _numbers(len(item["captions"]) for item in items),
        "first_key": _numbers(map(len, keys)),
        "first_caption_key": _numbers(map(len, caption_keys)),
        "first_text": _numbers(map(len, texts)),
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
