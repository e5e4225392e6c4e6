"""Metadata of the images of a shard or a split, and the columns of arrays that hold them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Any

import numpy as np

from data_pipelines.sources import Entry

OF_IMAGES = {"offset": "<i8", "length": "<i8", "crc": "<u4", "digest": "<u8", "source": "<u8"}
"""Columns with a number per image, and their types: place and CRC-32 of the record in its shard,
and digests of the image as it is stored and as it was read from the source."""

_TEXTS = {"keys": "first_key", "caption_keys": "first_caption_key", "texts": "first_text"}
"""Columns of joined texts in UTF-8, and the columns of their offsets."""


@dataclass(frozen=True, eq=False)
class SplitIndex:
    """Metadata of N images with M captions, in their order.

    Attributes:
        columns: The columns `OF_IMAGES`, and the `shard` of each image of a split, int (N,).
        keys: Keys of the images.
        labels: Class or labels of each image.
        caption_keys: Keys of the captions.
        texts: Texts of the captions.
        first_caption: First caption of each image, and M: int64 (N + 1,).
    """

    columns: dict[str, np.ndarray]
    keys: list[str]
    labels: list[tuple[int, ...]]
    caption_keys: list[str]
    texts: list[str]
    first_caption: np.ndarray

    @classmethod
    def from_entries(cls, entries: Sequence[Entry], rows: Sequence[Sequence[int]]) -> SplitIndex:
        """Builds the index of the images of a shard.

        Args:
            entries: The images.
            rows: The numbers of `OF_IMAGES` of each image.
        """
        captions = [caption for entry in entries for caption in entry.captions]
        numbers = zip(*rows, strict=True) if rows else [()] * len(OF_IMAGES)
        return cls(
            {n: np.array(v, OF_IMAGES[n]) for n, v in zip(OF_IMAGES, numbers, strict=True)},
            [entry.key for entry in entries],
            [entry.labels for entry in entries],
            [caption.key for caption in captions],
            [caption.text for caption in captions],
            _starts(len(entry.captions) for entry in entries),
        )

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> SplitIndex:
        """Builds the index of a shard from its `arrays`."""
        texts = [_items_of(arrays[n].tobytes(), arrays[f], bytes.decode) for n, f in _TEXTS.items()]
        labels = _items_of(arrays["labels"].tolist(), arrays["first_label"], tuple)
        columns = {name: arrays[name] for name in OF_IMAGES}
        return cls(columns, texts[0], labels, texts[1], texts[2], arrays["first_caption"])

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns columns of numbers, of joined texts and labels, and of their offsets."""
        arrays = {**self.columns, "first_caption": self.first_caption}
        arrays["labels"] = np.array([*chain(*self.labels)], np.int64)
        arrays["first_label"] = _starts(map(len, self.labels))
        for name, first in _TEXTS.items():
            encoded = [text.encode() for text in getattr(self, name)]
            arrays[name] = np.frombuffer(b"".join(encoded), np.uint8)
            arrays[first] = _starts(map(len, encoded))
        return arrays

    @classmethod
    def join(cls, shards: Sequence[SplitIndex]) -> SplitIndex:
        """Joins the indices of the shards of a split."""
        columns = {
            name: np.concatenate([shard.columns[name] for shard in shards]) for name in OF_IMAGES
        }
        columns["shard"] = np.repeat(np.arange(len(shards)), [len(shard.keys) for shard in shards])
        lists: dict[str, Any] = {
            name: [*chain.from_iterable(getattr(shard, name) for shard in shards)]
            for name in ("keys", "labels", "caption_keys", "texts")
        }
        counts = np.concatenate([np.diff(shard.first_caption) for shard in shards])
        return cls(columns, **lists, first_caption=_starts(counts))

    def with_captions(self, more: Mapping[str, Sequence[tuple[str, str]]]) -> SplitIndex:
        """Returns the index with additional captions after the captions of their image.

        Args:
            more: Pairs of key and text, by the key of their image; unknown images are ignored.
        """
        if not more:
            return self
        keys, texts, counts = [], [], []
        for image, (begin, end) in zip(self.keys, pairwise(self.first_caption), strict=True):
            added = more.get(image, ())
            keys += self.caption_keys[begin:end] + [key for key, _ in added]
            texts += self.texts[begin:end] + [text for _, text in added]
            counts.append(end - begin + len(added))
        return replace(self, caption_keys=keys, texts=texts, first_caption=_starts(counts))


def _items_of(content: Any, first: np.ndarray, item: Callable[[Any], Any]) -> list[Any]:
    return [item(content[begin:end]) for begin, end in pairwise(first.tolist())]


def _starts(lengths: Iterable[int]) -> np.ndarray:
    """Converts lengths to offsets, followed by the end of the last."""
    return np.cumsum([0, *lengths], dtype=np.int64)
