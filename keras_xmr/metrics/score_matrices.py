"""The scores of all images with all captions, in memory or in tiles."""

from __future__ import annotations

import abc
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from keras_xmr.utils.directions import DIRECTIONS
from keras_xmr.utils.errors import ArgumentError
from keras_xmr.utils.foreign_arrays import as_array

Place = tuple[int, int]
"""The row and the column of a tile among the tiles."""

TileWork = Callable[[int, int, np.ndarray], None]
"""A function of the row, the column and the scores of a tile."""

# Maximum number of tiles that are scored ahead of the work on the first of them.
_AHEAD = 4


class ScoreTiles(abc.ABC):
    """Scores (images, captions), larger is better, of which one tile after another is computed.

    `np.asarray` computes them all.

    Attributes:
        images: The numbers of the images of each row of tiles; each image is in one.
        captions: The numbers of the captions of each column of tiles.
    """

    def __init__(self, images: Sequence[np.ndarray], captions: Sequence[np.ndarray]) -> None:
        self.images, self.captions = images, captions

    @abc.abstractmethod
    def tile(self, row: int, column: int) -> Any:
        """Returns scores (images, captions) of one tile, always the same, for `np.asarray`."""

    @abc.abstractmethod
    def select(self, images: np.ndarray, captions: np.ndarray) -> ScoreTiles:
        """Returns the scores of some images with some captions, in their order."""

    @property
    def shape(self) -> tuple[int, int]:
        """Images, captions."""
        return sum(map(len, self.images)), sum(map(len, self.captions))

    @property
    def count(self) -> int:
        """Number of tiles."""
        return len(self.images) * len(self.captions)

    def places(self) -> Iterator[Place]:
        """Returns the places of all tiles, row after row."""
        return product(range(len(self.images)), range(len(self.captions)))

    def for_each(self, work: TileWork, places: Iterable[Place], description: str) -> None:
        """Computes tiles, and calls `work` with the row, the column and the scores of each.

        The work is done in a separate thread, so that the device which scores does not wait for it;
        a few tiles are in memory at a time.

        Args:
            work: Called with each tile, one call after another.
            places: The tiles.
            description: The label of the progress bar.
        """
        from keras_xmr.utils.progress import Progress  # Metrics import without tqdm.

        places = list(places)
        pairs = sum(len(self.images[row]) * len(self.captions[column]) for row, column in places)
        waiting: deque[Future[None]] = deque()

        def take(row: int, column: int, scores: object) -> None:
            work(row, column, np.asarray(scores))

        with (
            Progress(f"  {description}", pairs, "pairs", unit_scale=True) as bar,
            ThreadPoolExecutor(1) as pool,
        ):
            for row, column in places:
                waiting.append(pool.submit(take, row, column, self.tile(row, column)))
                if len(waiting) == _AHEAD:
                    waiting.popleft().result()
                bar.update(len(self.images[row]) * len(self.captions[column]))
            for future in waiting:
                future.result()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        scores = np.empty(self.shape, dtype or np.float32)

        def put(row: int, column: int, tile: np.ndarray) -> None:
            scores[np.ix_(self.images[row], self.captions[column])] = tile

        self.for_each(put, self.places(), "scoring")
        return scores


def place_in(tiles: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the number of the tile of each item, and its place in there, int64 (items,)."""
    number, place = np.empty((2, sum(map(len, tiles))), np.int64)
    for tile, items in enumerate(tiles):
        number[items], place[items] = tile, np.arange(len(items))
    return number, place


Matrix = np.ndarray | ScoreTiles
"""Scores (images, captions), in memory or not."""


# Float64 holds every whole number up to this one.
_WHOLE = 1 << 53


def real_numbers(given: object, name: str) -> np.ndarray:
    """Returns an array of real numbers that float64 holds exactly; longdouble becomes float64.

    Args:
        given: The array, or a tensor of any framework; see `as_array`.
        name: Name of the array in errors.

    Raises:
        ArgumentError: If they are other numbers, or ranks could be of rounded ones.
    """
    array = as_array(given, name)
    kind, size = array.dtype.kind, array.dtype.itemsize
    if kind not in "biuf":
        raise ArgumentError(f"{name} must be numbers, got {array.dtype}")
    is_wide = kind in "iu" and size == 8 and array.size
    if is_wide and not -_WHOLE <= int(array.min()) <= int(array.max()) <= _WHOLE:
        raise ArgumentError(
            f"{name} are whole numbers beyond 2^53, of which float64 makes equal ones; subtract "
            "a constant, which keeps all rankings"
        )
    if kind == "f" and size > 8:
        with np.errstate(over="ignore", under="ignore"):
            rounded = array.astype(np.float64)
        if not np.array_equal(rounded, array, equal_nan=True):
            raise ArgumentError(
                f"{name} are {array.dtype} with digits or sizes that float64 does not have; round "
                "them yourself: scores.astype(np.float64)"
            )
        return rounded
    return array


@dataclass(frozen=True, eq=False)
class ScoreMatrices:
    """Scores (images, captions), larger is better, for both directions.

    Scores are arrays, or tiles that are computed on demand: then `is_dense` is false, and code that
    needs a whole matrix computes it. Ranks need the tiles alone.

    Attributes:
        image_to_text: Scores (images, captions); the rows rank captions for an image.
        other: Scores (images, captions); the columns rank images for a caption, if these differ,
            as with a matcher that scores by direction, or after re-ranking.
    """

    image_to_text: Matrix
    other: Matrix | None = None

    @classmethod
    def of(cls, scores: object) -> ScoreMatrices:
        """Returns score matrices of one matrix that ranks both, or of the output of a re-ranker.

        A tuple may be two matrices, or the rows of one.

        Raises:
            ArgumentError: If they are not real numbers, or float64 cannot hold them.
        """
        if isinstance(scores, ScoreMatrices):
            return scores
        if isinstance(scores, ScoreTiles):
            return cls(scores)
        arrays = (
            [as_array(array, "scores") for array in scores] if isinstance(scores, tuple) else []
        )
        is_pair = [array.ndim for array in arrays] == [2, 2]
        matrices = arrays if is_pair else [scores]
        return cls(*(real_numbers(matrix, "scores") for matrix in matrices))

    @property
    def text_to_image(self) -> Matrix:
        """Scores (images, captions); the columns rank images for a caption."""
        return self.image_to_text if self.other is None else self.other

    @property
    def by_query(self) -> tuple[np.ndarray, np.ndarray]:
        """Scores (queries, candidates), as arrays: of images as queries, and of captions."""
        dense = self.dense()
        return np.asarray(dense.image_to_text), np.asarray(dense.text_to_image).T

    @property
    def shape(self) -> tuple[int, int]:
        """Images, captions."""
        images, captions = self.image_to_text.shape
        return images, captions

    @property
    def is_dense(self) -> bool:
        """True if they are arrays."""
        return not isinstance(self.image_to_text, ScoreTiles)

    def dense(self) -> ScoreMatrices:
        """Returns the same as arrays."""
        return self if self.is_dense else self._map(np.asarray)

    def tiles(self) -> tuple[ScoreTiles, ScoreTiles]:
        """Returns the tiles that rank captions, and those that rank images."""
        rows, columns = self.image_to_text, self.text_to_image
        if not isinstance(rows, ScoreTiles) or not isinstance(columns, ScoreTiles):
            raise TypeError("these scores are arrays")
        return rows, columns

    def select(self, images: np.ndarray, captions: np.ndarray) -> ScoreMatrices:
        """Returns the scores of some images with some captions, in their order."""
        members = np.ix_(images, captions)

        def choose(scores: Matrix) -> Matrix:
            if isinstance(scores, ScoreTiles):
                return scores.select(images, captions)
            return scores[members]

        return self._map(choose)

    def select_queries(self, direction: str, queries: np.ndarray) -> np.ndarray:
        """Returns the scores (queries, candidates) of some queries of a direction, as an array."""
        images, captions = map(np.arange, self.shape)
        members = (queries, captions) if direction == "image_to_text" else (images, queries)
        return self.select(*members).by_query[DIRECTIONS.index(direction)]

    def _map(self, change: Callable[[Matrix], Matrix]) -> ScoreMatrices:
        return ScoreMatrices(
            change(self.image_to_text), None if self.other is None else change(self.other)
        )


Scores = Matrix | tuple[np.ndarray, np.ndarray] | ScoreMatrices
"""One matrix (images, captions), the two of a re-ranker, or `ScoreMatrices`."""


def _checked(scores: Scores) -> ScoreMatrices:
    matrices = ScoreMatrices.of(scores)
    for matrix in (matrices.image_to_text, matrices.text_to_image):
        if len(matrix.shape) != 2:
            raise ArgumentError(
                f"scores of a model are of the shape (images, captions), not {matrix.shape}"
            )
    return matrices


def mean_scores(scores: Iterable[Scores]) -> ScoreMatrices:
    """Returns the mean of scores of the same pairs, which are read one after another.

    The fusion of SAF and SGR to SGRAF (Diao et al. 2021), and of models in an ensemble. Scores of
    different scales are standardised first by the caller.

    Args:
        scores: Scores, as `recall` takes them, of one model or more.

    Raises:
        ArgumentError: If there are none, or their shapes differ.
    """
    if not isinstance(scores, Iterable):
        raise ArgumentError(f"scores must be a list, one per model, not a {type(scores).__name__}")
    remaining = map(_checked, scores)
    first = next(remaining, None)
    if first is None:
        raise ArgumentError("there are no scores to take the mean of")
    first = first.dense()
    known = (matrix for matrix in (first.image_to_text, first.other) if matrix is not None)
    sums = [np.array(matrix, np.result_type(matrix, np.float32)) for matrix in known]
    count = 1
    for matrices in remaining:
        count += 1
        if matrices.other is not None and len(sums) == 1:
            sums.append(sums[0].copy())
        if matrices.shape != first.shape:
            raise ArgumentError(f"scores of shapes {first.shape} and {matrices.shape} have no mean")
        matrices = matrices.dense()
        directions = matrices.image_to_text, matrices.text_to_image
        for total, matrix in zip(sums, directions, strict=False):
            total += matrix
    for total in sums:
        total /= count
    return ScoreMatrices(*sums)
