"""What a backend is: it keeps vectors by id, and finds those with the largest inner products."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from data_pipelines.errors import UserError


class BackendError(UserError):
    """Vectors cannot be read or kept; the message says what to do."""


@dataclass(frozen=True, eq=False)
class Found:
    """What a search has found, the best first.

    Attributes:
        ids: Int64 (queries, k); -1 where there are no more.
        scores: Inner products float32 (queries, k); -inf where there are no more.
    """

    ids: np.ndarray
    scores: np.ndarray


class Backend(abc.ABC):
    """Vectors by id, and a search for the largest inner products.

    An item is K rows of D numbers, and a query K' rows; the score of both is the largest of their
    K K' inner products. Most have one row. What is added or removed is found or missed at once by
    this object, and by others once it was saved.

    A subclass sets `NAME`, and `DEFAULTS` with the names and defaults of its options.

    Args:
        folder: The folder of its files.
        shape: K rows of D numbers of an item.
        **options: Options of the subclass.

    Attributes:
        is_exact: Whether a search never misses an item.
    """

    NAME: ClassVar[str]
    DEFAULTS: ClassVar[Mapping[str, Any]] = {}
    is_exact: ClassVar[bool] = False

    def __init__(self, folder: Path, shape: tuple[int, ...], **options: Any) -> None:
        if unknown := sorted(options.keys() - self.DEFAULTS.keys()):
            known = ", ".join(self.DEFAULTS) or "none"
            raise BackendError(f"{self.NAME} has no option {unknown[0]!r}; its options: {known}")
        self.folder, self.shape = folder, tuple(shape)
        self.options: dict[str, Any] = {**self.DEFAULTS, **options}

    @classmethod
    @abc.abstractmethod
    def open(cls, folder: Path, writing: bool = False) -> Backend:
        """Opens what was saved in a folder.

        Args:
            folder: The folder.
            writing: Whether it will be added to; of several readers all may be open, and one
                writer beside them.

        Raises:
            BackendError: If there is nothing, or what there is was damaged: files are compared
                with their checksums.
        """

    @property
    @abc.abstractmethod
    def ids(self) -> np.ndarray:
        """The ids of all items, int64 (items,), ascending."""

    @abc.abstractmethod
    def add(self, ids: np.ndarray, vectors: np.ndarray) -> None:
        """Adds items.

        Args:
            ids: Int64 (N,), none of them there already.
            vectors: Float32 (N, K, D).

        Raises:
            BackendError: If the shape differs from that of the others, an id is taken, or a
                number is not finite.
        """

    def begin(self, count: int, sample: Callable[[int], np.ndarray]) -> None:
        """Learns what has to be known of all items before the first of them is added.

        A backend that has to know nothing does nothing, which is the default.

        Args:
            count: How many items will be added.
            sample: Gives vectors float32 (size, K, D) of so many of them, from all over.
        """
        del count, sample

    @abc.abstractmethod
    def remove(self, ids: np.ndarray) -> None:
        """Removes items; ids that are not there are passed over."""

    @abc.abstractmethod
    def search(self, queries: np.ndarray, k: int, allowed: np.ndarray | None = None) -> Found:
        """The items with the largest scores.

        Args:
            queries: Float32 (M, K', D).
            k: How many.
            allowed: Only these ids are looked at, int64 ascending; None allows all.
        """

    @abc.abstractmethod
    def batches(self, size: int = 4096) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """All items in the order of their ids: ids (N,) and vectors float32 (N, K, D)."""

    @abc.abstractmethod
    def save(self) -> None:
        """Makes all that was added and removed last: whole or, if it is killed, not at all."""

    @abc.abstractmethod
    def close(self) -> None:
        """Lets go of files. What was not saved is lost."""

    def __len__(self) -> int:
        return len(self.ids)

    def check_new(self, ids: np.ndarray, vectors: np.ndarray, shape: tuple[int, ...]) -> None:
        """Refuses what cannot be added; `shape` is (K, D) of the items that are there."""
        if vectors.shape[1:] != shape:
            raise BackendError(f"an item of shape {vectors.shape[1:]} among those of {shape}")
        if not np.isfinite(vectors).all():
            raise BackendError("a vector holds a number that is not finite")
        if len(np.unique(ids)) != len(ids) or np.isin(ids, self.ids).any():
            raise BackendError("an id is there already")


def best(ids: np.ndarray, scores: np.ndarray, k: int) -> Found:
    """The k best of some candidates of each query, the best first; of equals the smallest id.

    Args:
        ids: Int64 (M, candidates), -1 for none.
        scores: Float32 (M, candidates), -inf where there is none.
        k: How many.
    """
    order = np.lexsort((ids, -scores), axis=1)[:, :k]
    found_ids = np.take_along_axis(ids, order, axis=1)
    found = np.take_along_axis(scores, order, axis=1)
    found_ids = np.where(np.isneginf(found), -1, found_ids)
    missing = ((0, 0), (0, k - order.shape[1]))
    return Found(
        np.pad(found_ids, missing, constant_values=-1),
        np.pad(found, missing, constant_values=-np.inf),
    )


def one_an_item(ids: np.ndarray, scores: np.ndarray, k: int) -> Found:
    """The k best items of rows that may be of the same item; see `best`."""
    order = np.lexsort((ids, -scores), axis=1)
    ids, scores = (np.take_along_axis(a, order, axis=1) for a in (ids, scores))
    for row, its_scores in zip(ids, scores, strict=True):
        first = np.zeros(len(row), bool)
        first[np.unique(row, return_index=True)[1]] = True
        its_scores[~first] = -np.inf
    return best(ids, scores, k)


class DamagedError(BackendError):
    """A file of vectors is missing or damaged.

    Args:
        path: The file.
        reason: What is wrong with it.
    """

    def __init__(self, path: Path, reason: object) -> None:
        super().__init__(
            f"{path} is missing or damaged ({reason}); run `index` again, which makes it again"
        )
