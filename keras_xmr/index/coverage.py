"""Whether answer sets hold on another split what was promised on the validation split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from data_pipelines.records import Records
from keras_xmr.index.answer_sets import AnswerSets, calibrate, standardise
from keras_xmr.index.calibration import SplitQueries, embed_reference
from keras_xmr.index.model import RunModel


@dataclass(frozen=True)
class Coverage:
    """Answer sets of captions with a right photo, calibrated on val.

    Attributes:
        promised: The part of the captions whose set should hold `share` of their right photos.
        kept: The part of those whose set does.
        share: The part of the right photos that is promised.
        found: Of each caption, the part of its right photos in its set (captions,).
        sizes: How many photos its set has (captions,).
        gallery: Of how many.
    """

    promised: float
    kept: float
    share: float
    found: np.ndarray
    sizes: np.ndarray
    gallery: int


def measure_coverage(model: RunModel, records: Records, split: Any) -> Coverage:
    """Calibrates on val, and looks at the answer sets of a split.

    Args:
        model: The model.
        records: The records that it was trained on.
        split: Which split's captions ask.
    """
    reference = embed_reference(model, records)

    def standardised(asked: SplitQueries) -> np.ndarray:
        return standardise(asked.scores(model), model.score(reference, asked.captions).T)

    known = SplitQueries.embed(model, records, "val")
    sets = calibrate(standardised(known), known.right, known.groups)
    asked = SplitQueries.embed(model, records, split)
    return coverage(sets, standardised(asked), asked.right)


def coverage(sets: AnswerSets, scores: np.ndarray, right: np.ndarray) -> Coverage:
    """What answer sets hold.

    Args:
        sets: The cut-offs.
        scores: Standardised scores (captions, photos).
        right: Bool (captions, photos); captions without a right photo are left out.
    """
    asked = right.any(axis=1)
    scores, right = scores[asked], right[asked]
    within = scores >= sets.cutoff
    found = (within & right).sum(axis=1) / right.sum(axis=1)
    kept = float(np.mean(found >= sets.share - 1e-9))
    return Coverage(sets.confidence, kept, sets.share, found, within.sum(axis=1), scores.shape[1])
