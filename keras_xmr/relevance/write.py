"""Writes the relevance of all pairs of some captions, as a file and a table."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from data_pipelines.errors import UserError
from data_pipelines.folders import check_folder
from data_pipelines.sources import Caption, Problems
from data_pipelines.sources.captions_file import read_captions_file
from keras_xmr.relevance.files import PairCounts, write_relevance
from keras_xmr.relevance.matrix import relevance_matrix

if TYPE_CHECKING:
    from keras_xmr.config.schema import RelevanceOptions

_LOGGER = logging.getLogger(__name__)


def write_file_relevance(
    path: Path, output: Path | None, splits: Sequence[str], options: RelevanceOptions
) -> None:
    """Writes the relevance of all pairs of a captions file, and prints counts by threshold.

    Args:
        path: See `data_pipelines.sources.captions_file`.
        output: The file to write, `something.npz`; by default `<name>-relevance.npz` in the
            current folder.
        splits: The splits whose images are taken, where the file has splits.
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
        path: The file, `something.npz`; see `keras_xmr.relevance.files.write_relevance`.
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
    files = write_relevance(
        matrix,
        path,
        counts,
        image_of_caption=image_of_caption,
        images=np.array(images),
        captions=np.array([caption.key for caption in captions]),
    )
    print(f"\n{counts}\n", flush=True)
    _LOGGER.info("written: %s", ", ".join(map(str, files)))
