"""Features of frozen encoders: computed once for each image and caption, and kept by content.

A store has one file of tokens, to which new ones are appended, and an index of them, which is
replaced as a whole. What a killed writer has appended without an index is written over.
"""

from __future__ import annotations

import hashlib
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from data_pipelines.shards import RecordsError
from keras_xmr.utils.disk_errors import disk_message
from keras_xmr.utils.files import NO_ARRAY, locked, replace_atomically, sync

TOKENS, INDEX = "tokens.f2", "index.npz"
_SAVE_EVERY = 30.0
"""Seconds of computing that a killed process loses."""


def text_keys(texts: Iterable[str]) -> np.ndarray:
    """Returns the keys of captions: hashes of their texts, uint64 (M,)."""
    hashes = (hashlib.sha256(text.encode()).digest()[:8] for text in texts)
    return np.frombuffer(b"".join(hashes), ">u8").astype(np.uint64)


class FeatureStore:
    """Features of items by key, which is a hash of the content of an item; read-only.

    Args:
        folder: The folder of the store; without files, it is empty.

    Attributes:
        folder: The folder of the store.
        width: F of the features; 0 if the store is empty.

    Raises:
        RecordsError: If a file is damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            with np.load(folder / INDEX, allow_pickle=False) as file:
                self._keys, self._first, self._crc = (file[n] for n in ("keys", "first", "crc"))
                self.width = int(file["width"])
            shape = int(self._first[-1]), self.width
            self._tokens = np.memmap(folder / TOKENS, np.dtype("<f2"), mode="r", shape=shape)
            if not len(self._keys) == len(self._first) - 1 == len(self._crc):
                raise ValueError("its arrays have different lengths")
        except FileNotFoundError as error:
            if (folder / INDEX).exists():
                raise self._damage(error) from None
            self._keys, self._first = np.empty(0, np.uint64), np.zeros(1, np.int64)
            self._crc, self.width = np.empty(0, np.uint32), 0
        except (*NO_ARRAY, TypeError, KeyError) as error:
            raise self._damage(error) from None
        self._order = np.argsort(self._keys)
        self._ordered = self._keys[self._order]

    def __len__(self) -> int:
        return len(self._keys)

    def rows(self, keys: np.ndarray) -> np.ndarray:
        """Returns the rows of some items, int64 (N,); -1 for items that are not in the store."""
        if not len(self):
            return np.full(len(keys), -1)
        places = np.minimum(np.searchsorted(self._ordered, keys), len(self) - 1)
        return np.where(self._ordered[places] == keys, self._order[places], -1)

    def missing(self, keys: np.ndarray) -> np.ndarray:
        """Returns the positions of the first items with keys that are not in the store."""
        first = np.sort(np.unique(keys, return_index=True)[1])
        return first[self.rows(keys[first]) < 0]

    def lengths(self, rows: np.ndarray) -> np.ndarray:
        """Returns the numbers of tokens of some items."""
        return self._first[rows + 1] - self._first[rows]

    def read(self, row: int) -> np.ndarray:
        """Returns the features of an item, float16 (L, F).

        Raises:
            RecordsError: If they are damaged.
        """
        tokens = self._tokens[self._first[row] : self._first[row + 1]]
        if zlib.crc32(tokens.tobytes()) != self._crc[row]:
            raise self._damage("a checksum differs")
        return tokens

    @contextmanager
    def writing(self, item: str, option: str) -> Iterator[Writer]:
        """Locks the store, and keeps what the writer has added.

        Args:
            item: What has the features, for messages.
            option: The option without which they are not stored, likewise.

        Raises:
            LockedError: If another process writes to it.
            RecordsError: If the disk is full.
        """
        with locked(self.folder):
            writer = Writer(FeatureStore(self.folder), item, option)
            try:
                yield writer
            finally:
                writer.save()

    def _damage(self, reason: object) -> RecordsError:
        return RecordsError(
            f"the features in {self.folder} are damaged ({reason}); delete that folder, and they "
            "are computed again"
        )


class Writer:
    """Adds items to a store; see `FeatureStore.writing`."""

    def __init__(self, store: FeatureStore, item: str, option: str) -> None:
        self._store, self._item, self._option = store, item, option
        self._keys, self._lengths, self._crc = [store._keys], [np.diff(store._first)], [store._crc]
        self._width, self._saved, self._is_new = store.width, time.monotonic(), False
        self._end = int(store._first[-1])

    def add(self, keys: np.ndarray, features: np.ndarray, mask: np.ndarray | None = None) -> None:
        """Appends the features of a batch of items.

        Args:
            keys: Of the items, uint64 (B,).
            features: Of any float type (B, L, F).
            mask: Bool (B, L), of the tokens that an item has; None for all.

        Raises:
            RecordsError: If a feature overflows half precision, all features of a token with a
                mask are 0, or the disk is full.
        """
        folder, lengths = self._store.folder, np.full(len(keys), features.shape[1])
        if mask is not None:
            features, lengths = features[mask], mask.sum(axis=1)
        with np.errstate(over="ignore"):
            half = features.astype("<f2").reshape(-1, features.shape[-1])
        if not np.isfinite(half).all():  # The maximum of half precision is 65,504.
            raise RecordsError(
                f"{folder}: a feature of {self._item} is {np.abs(features).max():g}, which half "
                f"precision cannot hold; train without {self._option}"
            )
        if mask is not None and not half.any(axis=1).all():
            raise RecordsError(
                f"{folder}: all features of a word are 0, as behind the last word of a caption; "
                f"train without {self._option}"
            )
        pieces = np.split(half, np.cumsum(lengths)[:-1])
        try:
            path = folder / TOKENS
            with path.open("r+b" if path.exists() else "wb") as file:
                file.truncate(2 * self._end * half.shape[1])
                file.seek(0, 2)
                file.write(half.tobytes())
        except OSError as error:
            raise RecordsError(disk_message(folder, error)) from error
        self._keys.append(keys)
        self._lengths.append(lengths)
        self._crc.append(np.array([zlib.crc32(p.tobytes()) for p in pieces], np.uint32))
        self._width, self._end, self._is_new = half.shape[1], self._end + len(half), True
        if time.monotonic() - self._saved > _SAVE_EVERY:
            self.save()

    def save(self) -> None:
        """Writes the index, after which others read what was added.

        Raises:
            RecordsError: If the disk is full.
        """
        if not self._is_new:
            return
        keys, lengths, crc = map(np.concatenate, (self._keys, self._lengths, self._crc))
        first = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        try:
            sync(self._store.folder / TOKENS)
            with replace_atomically(self._store.folder / INDEX, ".npz") as temporary:
                np.savez(temporary, keys=keys, first=first, crc=crc, width=self._width)
        except OSError as error:
            raise RecordsError(disk_message(self._store.folder, error)) from error
        self._saved, self._is_new = time.monotonic(), False


@dataclass(frozen=True, eq=False)
class Features:
    """Features of the items of a split, in their order.

    Attributes:
        store: Store of the features.
        rows: The row of each item there, int64 (N,).
        more: Further features of the only token of each item, which are cheap, (N, G); or None.
    """

    store: FeatureStore
    rows: np.ndarray
    more: csr_matrix | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def width(self) -> int:
        """F."""
        return self.store.width + (0 if self.more is None else self.more.shape[1])

    @property
    def lengths(self) -> np.ndarray:
        """L of each item (N,)."""
        return self.store.lengths(self.rows)

    @cached_property
    def length(self) -> int | None:
        """L of every item; None if it varies."""
        lengths = np.unique(self.lengths)
        return int(lengths[0]) if len(lengths) == 1 else None

    def read(self, items: np.ndarray) -> np.ndarray:
        """Reads features of items, float32 (B, L, F), padded with zeros.

        For a single item, indexed by a scalar, they are (L, F).

        Raises:
            RecordsError: If they are damaged.
        """
        if not np.ndim(items):
            return self.read(np.array([items]))[0]
        rows = self.rows[items]
        longest = self.store.lengths(rows).max(initial=1)
        padded = np.zeros((len(rows), longest, self.store.width), np.float32)
        for row, target in zip(rows, padded, strict=True):
            tokens = self.store.read(row)
            target[: len(tokens)] = tokens
        if self.more is None:
            return padded
        more = self.more[items].toarray().astype(np.float32)
        return np.concatenate([padded, more[:, None]], axis=-1)
