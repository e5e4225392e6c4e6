"""Files of relevance, and counts of relevant pairs that were not annotated."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from data_pipelines.errors import UserError
from data_pipelines.files import replace_atomically
from data_pipelines.tables import table
from keras_xmr.relevance.matrix import RelevanceMatrix

LARGE = 1 << 28
"""A matrix of more bytes gets a separate file, which can be mapped into memory."""

THRESHOLDS = tuple(step / 10 for step in range(1, 10))
"""Thresholds of the counts, as shares of the highest possible relevance."""


class PairCounts:
    """Counts of all pairs and of annotated pairs above each threshold (Li et al. 2022, Fig. 1 b).

    Args:
        image_of_caption: The image of each caption, int (captions,).
        num_images: Number of images.
        highest: The highest value of the measure.
    """

    def __init__(self, image_of_caption: np.ndarray, num_images: int, highest: float) -> None:
        self.thresholds = np.float32(highest) * np.array(THRESHOLDS, np.float32)
        self.pairs = np.zeros(len(THRESHOLDS), np.int64)
        self.annotated = np.zeros(len(THRESHOLDS), np.int64)
        self._image_of_caption = image_of_caption
        self._num_images = num_images

    def add(self, start: int, tile: np.ndarray) -> None:
        """Counts the pairs of some images, from image `start` on."""
        rows = self._image_of_caption - start
        captions = np.flatnonzero((rows >= 0) & (rows < len(tile)))
        annotated = tile[rows[captions], captions]
        for number, threshold in enumerate(self.thresholds):
            self.pairs[number] += np.count_nonzero(tile > threshold)
            self.annotated[number] += np.count_nonzero(annotated > threshold)

    def __str__(self) -> str:
        header = ["relevance\nabove", "pairs\n", "captions\nper image", "annotated\n", "others\n"]
        rows = [
            [
                f"{threshold:g}",
                f"{pairs:,}",
                f"{pairs / max(self._num_images, 1):.2f}",
                f"{annotated:,}",
                f"{pairs - annotated:,}",
            ]
            for threshold, pairs, annotated in zip(
                self.thresholds, self.pairs, self.annotated, strict=True
            )
        ]
        return table(header, rows)


def write_relevance(
    matrix: RelevanceMatrix,
    path: Path,
    counts: PairCounts,
    **arrays: np.ndarray | Sequence[str],
) -> list[Path]:
    """Writes the relevance of all pairs, a tile at a time.

    Args:
        matrix: The relevance.
        path: The file, `something.npz`. It holds `relevance`, float32 (images, captions), and
            the arrays. A matrix of more than `LARGE` bytes is written to `something.npy`
            instead, for `np.load(..., mmap_mode="r")`.
        counts: Counts the pairs in passing.
        **arrays: Further arrays of the file.

    Returns:
        The files.

    Raises:
        UserError: If the disk has too little space.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    size = 4 * matrix.shape[0] * matrix.shape[1]
    free = shutil.disk_usage(path.parent).free
    if size > free:
        raise UserError(
            f"{path}: the relevance of {matrix.shape[0]:,} images and {matrix.shape[1]:,} captions "
            f"takes {size / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free"
        )
    if size <= LARGE:
        relevance = np.empty(matrix.shape, np.float32)
        _fill(relevance, matrix, counts)
        return [_write_arrays(path, {"relevance": relevance, **arrays})]
    large = path.with_suffix(".npy")
    with replace_atomically(large) as temporary:
        mapped = np.lib.format.open_memmap(temporary, "w+", np.float32, matrix.shape)
        _fill(mapped, matrix, counts)
        mapped.flush()
    return [large, _write_arrays(path, arrays)]


def _fill(relevance: np.ndarray, matrix: RelevanceMatrix, counts: PairCounts) -> None:
    for start, tile in matrix.tiles():
        relevance[start : start + len(tile)] = tile
        counts.add(start, tile)


def _write_arrays(path: Path, arrays: dict[str, Any]) -> Path:
    with replace_atomically(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)
    return path
