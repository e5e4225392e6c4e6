"""Human judgements of training pairs."""

from __future__ import annotations

import logging
from dataclasses import replace

from data_pipelines.records import Records, SplitRecords
from keras_xmr.experiments.config.schema import Config
from keras_xmr.experiments.runs.folder import RunFolder
from keras_xmr.judgements.judgement_files import BatchGrades, Pair, read_training_judgements
from keras_xmr.utils.files import checksum

_LOGGER = logging.getLogger(__name__)


def judged_training(
    config: Config, folder: RunFolder, records: Records
) -> tuple[Records, BatchGrades | None, str]:
    """Reads `data.training_judgements`, or the copy of it that a training has begun with.

    Args:
        config: The config.
        folder: The run.
        records: The records.

    Returns:
        The records, with the captions that the file adds; the grades within batches, None without
        a file; and the checksum of the file, empty without one.

    Raises:
        JudgementsError: If the file cannot be read, or has ids that the data set does not have.
    """
    path = config.data.training_judgements
    if path is None:
        return records, None, ""
    if folder.has_judgements:
        path = folder.training_judgements
    others = [records.split(s) for s in records.splits if s != "train"]
    split = records.split("train")
    judgements = read_training_judgements(
        path,
        split.image_keys,
        _named(split),
        [key for other in others for key in other.image_keys],
        [key for other in others for key in other.caption_keys],
    )
    new = sum(map(len, judgements.new_captions.values()))
    _LOGGER.info(
        "judgements: %d pairs of %s, %d new captions, %d pairs of other splits left out",
        *(len(judgements.grades), path, new, judgements.left_out),
    )
    records = replace(records, more_captions=judgements.new_captions)
    split = records.split("train")
    grades = BatchGrades(judgements.grades, split.image_keys, _named(split))
    if config.train.start == "cca":
        _LOGGER.info(
            "judgements: %d pairs for the closed form, %d wrong pairs for losses alone",
            *grades.count(split.caption_image),
        )
    return records, grades, checksum(path)


def _named(split: SplitRecords) -> list[Pair]:
    return list(zip(split.caption_keys, split.texts, strict=True))
