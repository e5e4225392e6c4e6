"""Index of a split: metadata and captions of its images, as memory-mapped columns.

Five million captions take about 0.4 GB of a file, which is opened in the time of its checksum, and
of which only the used part is in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
