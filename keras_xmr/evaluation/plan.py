"""Plans an evaluation before it begins: its memory and its time."""

from __future__ import annotations

import logging
import time

import numpy as np
from pydantic import ByteSize

from data_pipelines.errors import UserError
from keras_xmr.config.schema import EvaluationOptions
from keras_xmr.metrics import ScoreMatrices, ScoreTiles
from keras_xmr.metrics.score_matrices import place_in

_LOGGER = logging.getLogger(__name__)
# With fewer tiles, an evaluation has ended before one has read how long it takes.
_FEW_TILES = 16


def score_bytes(shape: tuple[int, int], matrices: int = 1) -> int:
    """Bytes of score matrices (images, captions), float32."""
    return 4 * matrices * shape[0] * shape[1]


def fits_in_memory(
    options: EvaluationOptions, shape: tuple[int, int], matrices: int, labels: bool
) -> bool:
    """Checks if the score matrices of an evaluation fit in memory, or are ranked tile by tile.

    Args:
        options: The options of the evaluation.
        shape: Images, captions.
        matrices: Number of score matrices of all matchers.
        labels: Whether the images have label vectors.

    Raises:
        UserError: If they do not fit and an option needs whole matrices.
    """
    further, whole = _read_whole(options, labels)
    needed = score_bytes(shape, matrices + further)
    if needed <= options.memory_budget:
        return True
    if not whole:
        _LOGGER.info(
            "%s scores take %s, more than evaluation.memory_budget (%s): ranks are counted tile "
            "by tile",
            _size(shape),
            ByteSize(score_bytes(shape, matrices)).human_readable(),
            options.memory_budget.human_readable(),
        )
        return False
    raise UserError(
        f"{_size(shape)} scores and derived matrices take "
        f"{ByteSize(needed).human_readable()}, more than "
        f"evaluation.memory_budget ({options.memory_budget.human_readable()}). Ranks alone need "
        f"no whole matrix, but these do: {', '.join(whole)}. Switch them off, or raise the budget "
        "if this machine has the memory"
    )


def check_time(
    name: str,
    scores: ScoreMatrices,
    caption_image: np.ndarray,
    streamed: bool,
    hours: float | None,
    folds: int = 0,
) -> None:
    """Estimates the time of scoring with a matcher from the time of one tile.

    Args:
        name: The matcher.
        scores: Its scores.
        caption_image: The image that each caption was written for, int (captions,).
        streamed: Whether ranks are counted tile by tile.
        hours: The time limit; None for none.
        folds: Number of folds, whose tiles are scored again if streamed; 0 for none.

    Raises:
        UserError: If it takes longer.
    """
    tiles, other = scores.tiles()
    if tiles.count <= _FEW_TILES:
        return
    repeated = _share(tiles, caption_image) + (1 / folds if folds else 0)
    passes = 1 + (repeated if streamed else 0)
    seconds = _seconds(tiles) * tiles.count * passes * (1 if tiles is other else 2)
    what = f"{name}: {_size(scores.shape)} scores in {tiles.count:,} tiles take"
    if hours is None or seconds <= 3600 * hours:
        _LOGGER.info("%s about %s", what, _words(seconds))
        return
    raise UserError(
        f"{what} about {_words(seconds)}, more than evaluation.time_limit ({hours:g} h). Give "
        "--yes to go on all the same, or evaluate a smaller split (evaluation.splits), or with "
        "fewer matchers"
    )


def _read_whole(options: EvaluationOptions, labels: bool) -> tuple[int, list[str]]:
    """The number of further matrices of this size, and the options that need whole ones."""
    wanted = {
        "evaluation.semantic_precision": 2 if options.semantic_precision else None,
        "evaluation.plausible_match": 0 if options.plausible_match and labels else None,
        "evaluation.metrics": 0 if options.metrics else None,
        "evaluation.rerankers": 2 if options.rerankers else None,
        "evaluation.save_scores": 0 if options.save_scores else None,
    }
    matrices = {key: count for key, count in wanted.items() if count is not None}
    return sum(matrices.values()), list(matrices)


def _share(tiles: ScoreTiles, caption_image: np.ndarray) -> float:
    """Share of the tiles that have the scores of annotated pairs."""
    (row, _), (column, _) = place_in(tiles.images), place_in(tiles.captions)
    places = row[caption_image] * len(tiles.captions) + column
    return len(np.unique(places)) / tiles.count


def _seconds(tiles: ScoreTiles) -> float:
    """Seconds of one tile, of captions of medium length, without the tracing of the first call."""
    for _ in range(2):
        begin = time.perf_counter()
        np.asarray(tiles.tile(0, len(tiles.captions) // 2))
    return time.perf_counter() - begin


def _size(shape: tuple[int, int]) -> str:
    return f"{shape[0]:,} x {shape[1]:,}"


def _words(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes < 1:
        return f"{max(round(seconds), 1)} s"
    return f"{minutes} min" if minutes < 120 else f"{seconds / 3600:,.1f} h"
