"""What an evaluation finds; it needs no TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from keras_xmr.config.reported_results import ReportedResults
from keras_xmr.judgements import TRUTH, GroundTruth, Judgements
from keras_xmr.metrics import Measured, RetrievalMetrics, ScoreMatrices
from keras_xmr.uncertainty.occlusion import Probes
from keras_xmr.uncertainty.sigma import Bins

Arrays = Mapping[str, Any]
"""An embedding of many items: arrays, or, for tokens, `Ragged` without their padding."""


@dataclass(frozen=True, eq=False)
class EmbeddedSplit:
    """Embeddings of a split, in the order of its records.

    Attributes:
        images: The embedding of all images, as arrays.
        captions: The embedding of all captions.
    """

    images: Arrays
    captions: Arrays


@dataclass(frozen=True, eq=False)
class Attention:
    """Where a model looks, on a few photos of a split.

    Attributes:
        keys: The names of the photos.
        pixels: What the model sees of them, uint8 (N, size, size, 3).
        maps: By name, maps (N, K, n, n).
    """

    keys: Sequence[str]
    pixels: np.ndarray
    maps: dict[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class GradientCounts:
    """How many negatives of a query have a gradient.

    Attributes:
        batch_size: Pairs of a batch.
        counts: By the name of a loss, int (2, queries): of images, and of captions.
    """

    batch_size: int
    counts: dict[str, np.ndarray]


class _Result:
    """Something that was measured."""

    measured: Measured

    @property
    def metrics(self) -> RetrievalMetrics:
        """Metrics against the judgements of the data set."""
        return self.measured.metrics

    @property
    def folds(self) -> dict[str, float]:
        """Their means over folds; empty without folds."""
        return self.measured.folds

    @property
    def truth(self) -> RetrievalMetrics | None:
        """Metrics against the exhaustive truth, where the data set knows it."""
        return self.measured.extra.get(TRUTH)


@dataclass
class MatcherEvaluation(_Result):
    """What one matcher reaches on a split.

    Attributes:
        name: Its name in the config.
        scores: Its scores.
        measured: What was measured of them.
        tied: Share of the pairs that it ties; see `tied_share`.
    """

    name: str
    scores: ScoreMatrices
    measured: Measured
    tied: float = 0.0


@dataclass
class RerankedEvaluation(_Result):
    """What a matcher reaches on a split once its scores are re-ranked.

    The re-ranker uses all queries at once (transductive), so these figures are not to be
    compared with plain ones.

    Attributes:
        matcher: The name of the matcher.
        reranker: The name of the re-ranker.
        measured: What was measured; each fold was re-ranked on its own.
    """

    matcher: str
    reranker: str
    measured: Measured

    @property
    def name(self) -> str:
        """The names of both."""
        return f"{self.matcher} + {self.reranker}"


@dataclass(eq=False)
class Evaluation:
    """What a model reaches on a split.

    Attributes:
        split: The split.
        images: How many images it has.
        captions: How many captions.
        matchers: For each matcher; the one that the model was trained with comes first.
        embedded: The embeddings; empty where scores are not those of one model.
        ground_truth: What is known of the split.
        uncertainty_bins: For "image" and "caption" queries, recall at 1 in bins of uncertainty.
        uncertainty_of_truth: Rank correlation between the uncertainty of a caption and how many
            images it is true of; None where one of them is not known.
        fewness_of_truth: The same of how few words it has, which takes no model.
        set_similarity: For "image" and "caption", where they are sets: how alike the embeddings
            of one item are, as a mean cosine.
        reranked: What re-rankers make of it.
        paper: The row of a paper that the config aims at.
        probes: What was found of uncertainty by embedding again; None if there is no report card.
        attention: Where the model looks, on a few photos; None where it attends to no places.
        gradients: How many negatives its losses still push away; None where that is not known.
        baselines: What simpler models reach, by name; they have the same features.
        unknown: The embedding of a caption of unknown words alone, of a model of the plane.
    """

    split: str
    images: int
    captions: int
    matchers: list[MatcherEvaluation]
    embedded: EmbeddedSplit
    ground_truth: GroundTruth
    uncertainty_bins: dict[str, Bins] = field(default_factory=dict)
    uncertainty_of_truth: float | None = None
    fewness_of_truth: float | None = None
    set_similarity: dict[str, float] = field(default_factory=dict)
    reranked: list[RerankedEvaluation] = field(default_factory=list)
    paper: ReportedResults | None = None
    probes: Probes | None = None
    attention: Attention | None = None
    gradients: GradientCounts | None = None
    baselines: dict[str, Measured] = field(default_factory=dict)
    unknown: Arrays | None = None

    @property
    def judgements(self) -> Judgements:
        """What was held to be right."""
        return self.ground_truth.judgements

    @property
    def truth(self) -> Judgements | None:
        """The exhaustive truth, where the data set knows it."""
        return self.ground_truth.extra.get(TRUTH)

    @property
    def measured(self) -> dict[str, Measured]:
        """What was measured with each matcher, by its name."""
        return {m.name: m.measured for m in self.matchers}

    def as_dict(self) -> dict[str, Any]:
        """The figures, as plain data for JSON. Metrics are fractions."""
        return {
            "split": self.split,
            "images": self.images,
            "captions": self.captions,
            "matchers": {m.name: m.measured.as_dict() | {"tied": m.tied} for m in self.matchers},
            "baselines": {name: result.as_dict() for name, result in self.baselines.items()},
            "reranked": {result.name: result.measured.as_dict() for result in self.reranked},
            "uncertainty": {
                side: {
                    "log_sigma": b.log_sigma,
                    "recall_1": b.value,
                    "correlation": b.correlation,
                    "interval": b.interval,
                    "informative": b.is_informative,
                }
                for side, b in self.uncertainty_bins.items()
            },
            "uncertainty_of_truth": self.uncertainty_of_truth,
            "fewness_of_truth": self.fewness_of_truth,
            "set_similarity": self.set_similarity,
        }
