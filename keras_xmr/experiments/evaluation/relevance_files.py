"""Writes the relevance of all pairs of some captions, as a file and a table."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from data_pipelines.sources import Caption, Problems
from data_pipelines.sources.coco import read_captions_file
from keras_xmr.experiments.config.schema import RelevanceOptions
from keras_xmr.relevance.matrix import RelevanceMatrix, relevance_matrix
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.files import check_folder, replace_atomically
from keras_xmr.utils.tables import table

_LOGGER = logging.getLogger(__name__)


def write_file_relevance(
    path: Path, output: Path | None, splits: Sequence[str], options: RelevanceOptions
) -> None:
    """Writes the relevance of all pairs of a captions file, and prints counts by threshold.

    Args:
        path: See `data_pipelines.sources.coco.read_captions_file`.
        output: The file to write, `something.npz`; by default `<name>-relevance.npz` in the
            current folder.
        splits: The splits of the images, where the file has splits.
        options: The section `relevance` of a config.

    Raises:
        UserError: If the captions cannot be read, or the file cannot be written.
    """
    output = output or Path(f"{path.stem}-relevance.npz")
    if output.suffix != ".npz":
        raise UserError(f"--output: {output} should end in .npz")
    if output.is_dir():
        raise UserError(f"--output: {output} is a folder; write the name of a file in it")
    check_folder(output.parent)
    problems = Problems()
    entries = read_captions_file(path, problems)
    for reason, count in problems.counts.items():
        _LOGGER.warning("%s: %d, such as %s", reason, count, problems.examples[reason][0])
    if len(known := sorted({entry.split for entry in entries})) > 1:
        entries = [entry for entry in entries if entry.split in splits]
        if not entries:
            raise UserError(
                f"{path} has the splits {', '.join(known)}, but evaluation.splits is "
                f"{', '.join(splits)}; choose others with --set evaluation.splits=[{known[0]}]"
            )
        _LOGGER.info("splits: %s (evaluation.splits)", ", ".join(splits))
    write_caption_relevance(
        [entry.key for entry in entries],
        [caption for entry in entries for caption in entry.captions],
        np.repeat(np.arange(len(entries)), [len(entry.captions) for entry in entries]),
        output,
        options,
    )


def write_caption_relevance(
    images: Sequence[str],
    captions: Sequence[Caption],
    image_of_caption: np.ndarray,
    path: Path,
    options: RelevanceOptions,
) -> None:
    """Writes the relevance of all captions to all images.

    Args:
        images: The keys of the images.
        captions: The captions.
        image_of_caption: The image of each caption, int (captions,).
        path: The file, `something.npz`; see `write_relevance`.
        options: The section `relevance` of a config.

    Raises:
        UserError: If the tokenizer cannot be run, or the disk has too little space.
    """
    _LOGGER.info("%s of %d images and %d captions", options.measure, len(images), len(captions))
    texts = [caption.text for caption in captions]
    matrix = relevance_matrix(
        texts, image_of_caption, len(images), options.measure, options.tokenizer
    )
    highest = 10.0 if options.measure == "cider_d" else 1.0
    counts = PairCounts(image_of_caption, len(images), highest)
    keys = np.array([caption.key for caption in captions])
    arrays = {"image_of_caption": image_of_caption, "images": np.array(images), "captions": keys}
    files = write_relevance(path, matrix, counts, arrays)
    print(f"\n{counts}\n", flush=True)
    _LOGGER.info("written: %s", ", ".join(map(str, files)))


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
        columns = zip(self.thresholds, self.pairs, self.annotated, strict=True)
        rows = [
            [
                f"{threshold:g}",
                f"{pairs:,}",
                f"{pairs / max(self._num_images, 1):.2f}",
                f"{annotated:,}",
                f"{pairs - annotated:,}",
            ]
            for threshold, pairs, annotated in columns
        ]
        return table(header, rows)


def write_relevance(
    path: Path, matrix: RelevanceMatrix, counts: PairCounts, arrays: Mapping[str, Any]
) -> list[Path]:
    """Writes the relevance of all pairs, a tile at a time.

    Args:
        path: The file, `something.npz`. It holds `relevance`, float32 (images, captions), and
            the arrays. A matrix of more than `LARGE` bytes is written to `something.npy`
            instead, for `np.load(..., mmap_mode="r")`.
        matrix: The relevance.
        counts: Counts the pairs in passing.
        arrays: Further arrays of the file.

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
    files = [path]
    if size <= LARGE:
        arrays = {**arrays, "relevance": np.empty(matrix.shape, np.float32)}
        _fill(arrays["relevance"], matrix, counts)
    else:
        files.insert(0, path.with_suffix(".npy"))
        with replace_atomically(files[0]) as temporary:
            mapped = np.lib.format.open_memmap(temporary, "w+", np.float32, matrix.shape)
            _fill(mapped, matrix, counts)
            mapped.flush()
    with replace_atomically(path, ".npz") as temporary:
        np.savez(temporary, **arrays)
    return files


def _fill(relevance: np.ndarray, matrix: RelevanceMatrix, counts: PairCounts) -> None:
    for start, tile in matrix.tiles():
        relevance[start : start + len(tile)] = tile
        counts.add(start, tile)
