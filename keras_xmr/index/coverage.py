"""Coverage of answer sets, calibrated on the validation split, on another split."""

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
            split: The split.
            reference: The result of `embed_reference`, if known.
            embedded: The embeddings of the whole split, if known.
        """
        reference = embed_reference(model, records) if reference is None else reference
        queries = SplitQueries.embed(model, records, split, embedded)
        scores = standardise(queries.scores(model), model.score(reference, queries.captions).T)
        return cls.answerable(scores, queries.right, queries.groups)

    @classmethod
    def answerable(cls, scores: np.ndarray, right: np.ndarray, groups: np.ndarray) -> ScoredSplit:
        """Selects the captions with a right photo."""
        answered = right.any(axis=1)
        return cls(scores[answered], right[answered], groups[answered])

    def calibrated(self) -> AnswerSets:
        """The cut-offs by this split."""
        return calibrate(self.scores, self.right, self.groups)

    def mean_per_photo(self, happened: np.ndarray) -> np.ndarray:
        """The share of the captions of each photo for which something happened (photos,).

        Captions of one photo are not independent; statistics are means over photos.
        """
        return np.array([happened[self.groups == g].mean() for g in np.unique(self.groups)])


@dataclass(frozen=True, eq=False)
class Coverage:
    """Coverage of answer sets on a split.

    Attributes:
        confidence: The guaranteed share of captions whose set has `share` of their right photos.
        kept_by_photo: The share of captions whose set has it, per photo (photos,).
        share: The guaranteed share of the right photos.
        recalls: The share of the right photos of each caption in its set (captions,).
        sizes: The number of photos in the set of each caption (captions,).
        gallery: The number of photos of the split.
    """

    confidence: float
    kept_by_photo: np.ndarray
    share: float
    recalls: np.ndarray
    sizes: np.ndarray
    gallery: int

    @property
    def kept(self) -> float:
        """The share of captions whose set has the guaranteed share, as a mean over photos."""
        return float(self.kept_by_photo.mean())


def measure_coverage(
    model: RunModel, records: Records, split: Any, embedded: EmbeddedSplit | None = None
) -> Coverage:
    """Calibrates on val, and measures the coverage on a split.

    Args:
        model: The model.
        records: The records that it was trained on.
        split: The split of the queries.
        embedded: The embeddings of that split, if known.
    """
    reference = embed_reference(model, records)
    sets = ScoredSplit.embed(model, records, "val", reference).calibrated()
    return coverage(sets, ScoredSplit.embed(model, records, split, reference, embedded))


def coverage(sets: AnswerSets, queries: ScoredSplit) -> Coverage:
    """Measures the coverage of answer sets on the captions of a split."""
    within = queries.scores >= sets.cutoff
    recalls = (within & queries.right).sum(axis=1) / queries.right.sum(axis=1)
    kept = queries.mean_per_photo(recalls >= sets.share - 1e-9)
    gallery = queries.scores.shape[1]
    return Coverage(sets.confidence, kept, sets.share, recalls, within.sum(axis=1), gallery)
