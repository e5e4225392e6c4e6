"""The scores of several finished runs on one split."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from data_pipelines.errors import UserError
from data_pipelines.records import SplitRecords
from keras_xmr.evaluation import embed_split, score_tiles
from keras_xmr.evaluation.plan import check_time
from keras_xmr.metrics import ScoreMatrices
from keras_xmr.pipeline import Run

_LOGGER = logging.getLogger(__name__)


def scores_of_runs(
    main: Run, runs: Sequence[Run], split: SplitRecords, time_limit: float | None = None
) -> Iterator[tuple[str, ScoreMatrices]]:
    """Yields the scores of every run with its own matcher, one after another.

    Args:
        main: The run whose records the split is of.
        runs: The runs.
        split: The split.
        time_limit: The most hours that scoring with one of them may take; None for any time.

    Yields:
        The name of the run, or its folder where two have one name, and its scores.

    Raises:
        UserError: If a run is not trained or given twice, or has other images or captions.
    """
    names = [run.config.name for run in runs]
    folders = [run.folder.path.resolve() for run in runs]
    for run, folder in zip(runs, folders, strict=True):
        if folders.count(folder) > 1:
            raise UserError(f"--runs: {run.folder.path} is given twice")
    for run in runs:
        _LOGGER.info("== scores of %s", run.folder.path)
        part = split if run is main else run.records.split(split.split)
        if part.image_keys != split.image_keys or part.captions != split.captions:
            raise UserError(
                f"{run.folder.path} has other images or captions in the split {split.split!r} "
                f"than {main.folder.path}; models are asked together about the same pairs"
            )
        options = run.config.evaluation
        embedded = embed_split(
            run.model,
            run.embedded_records.split(split.split),
            run.tokenizer,
            run.config.data.image,
            options.batch_size,
        )
        unique = names.count(run.config.name) == 1
        name = run.config.name if unique else str(run.folder.path)
        scores = score_tiles(run.model.matcher, embedded.images, embedded.captions, options.tile)
        check_time(name, scores, part.caption_image, False, time_limit)
        yield name, scores.dense()
