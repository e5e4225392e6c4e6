"""Whether answer sets hold on another split what was promised on the validation split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from data_pipelines.records import Records
from keras_xmr.evaluation.results import EmbeddedSplit
from keras_xmr.index.answer_sets import AnswerSets, calibrate, standardise
from keras_xmr.index.calibration import SplitQueries, embed_reference
from keras_xmr.index.embedding_arrays import Arrays
from keras_xmr.index.run_model import RunModel


@dataclass(frozen=True, eq=False)
class ScoredSplit:
    """Captions of a split that have a right photo there, scored with all of its photos.

    Attributes:
        scores: Standardised scores (captions, photos).
        right: Bool (captions, photos).
        groups: The photo that each caption was written for (captions,).
    """

    scores: np.ndarray
    right: np.ndarray
    groups: np.ndarray

    @classmethod
    def embed(
        cls,
        model: RunModel,
        records: Records,
        split: Any,
        reference: Arrays | None = None,
        embedded: EmbeddedSplit | None = None,
    ) -> ScoredSplit:
        """Embeds and scores a split.

        Args:
            model: The model.
            records: The records.
            split: Which split.
            reference: Of `embed_reference`, if it is there.
            embedded: The embeddings of the whole split, if they are there.
        """
        reference = embed_reference(model, records) if reference is None else reference
        asked = SplitQueries.embed(model, records, split, embedded)
        scores = standardise(asked.scores(model), model.score(reference, asked.captions).T)
        return cls.of(scores, asked.right, asked.groups)

    @classmethod
    def of(cls, scores: np.ndarray, right: np.ndarray, groups: np.ndarray) -> ScoredSplit:
        """Leaves out captions without a right photo."""
        answered = right.any(axis=1)
        return cls(scores[answered], right[answered], groups[answered])

    def calibrated(self) -> AnswerSets:
        """The cut-offs by this split."""
        return calibrate(self.scores, self.right, self.groups)

    def by_photo(self, happened: np.ndarray) -> np.ndarray:
        """Of the captions of each photo, the part for which something happened (photos,).

        Captions of one photo are not independent; what is said of them is a mean over photos.
        """
        return np.array([happened[self.groups == g].mean() for g in np.unique(self.groups)])


@dataclass(frozen=True, eq=False)
class Coverage:
    """What answer sets hold.

    Attributes:
        promised: The part of the captions whose set should hold `share` of their right photos.
        kept_by_photo: The part of those whose set does, of the captions of each photo (photos,).
        share: The part of the right photos that is promised.
        found: Of each caption, the part of its right photos in its set (captions,).
        sizes: How many photos its set has (captions,).
        gallery: Of how many.
    """

    promised: float
    kept_by_photo: np.ndarray
    share: float
    found: np.ndarray
    sizes: np.ndarray
    gallery: int

    @property
    def kept(self) -> float:
        """The part of the captions whose set holds what it should, as a mean over photos."""
        return float(self.kept_by_photo.mean())


def measure_coverage(
    model: RunModel, records: Records, split: Any, embedded: EmbeddedSplit | None = None
) -> Coverage:
    """Calibrates on val, and looks at the answer sets of a split.

    Args:
        model: The model.
        records: The records that it was trained on.
        split: Which split's captions ask.
        embedded: The embeddings of that split, if they are there.
    """
    reference = embed_reference(model, records)
    sets = ScoredSplit.embed(model, records, "val", reference).calibrated()
    return coverage(sets, ScoredSplit.embed(model, records, split, reference, embedded))


def coverage(sets: AnswerSets, asked: ScoredSplit) -> Coverage:
    """What answer sets hold of the captions of a split."""
    within = asked.scores >= sets.cutoff
    found = (within & asked.right).sum(axis=1) / asked.right.sum(axis=1)
    kept = asked.by_photo(found >= sets.share - 1e-9)
    gallery = asked.scores.shape[1]
    return Coverage(sets.confidence, kept, sets.share, found, within.sum(axis=1), gallery)
