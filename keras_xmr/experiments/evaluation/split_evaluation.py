"""Results of an evaluation, and their computation, without TensorFlow."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from keras_xmr.experiments.config.fidelity import Fidelity
from keras_xmr.experiments.config.paper_section import ReportedResults
from keras_xmr.experiments.config.schema import RelevanceOptions
from keras_xmr.experiments.evaluation.score_curves import set_similarity
from keras_xmr.experiments.evaluation.uncertainty.assessment import (
    Bins,
    bins,
    log_sigma,
    rank_correlation,
)
from keras_xmr.experiments.evaluation.uncertainty.probes import Probes
from keras_xmr.judgements import TRUTH, GroundTruth, Judgements
from keras_xmr.metrics import Measured, RetrievalMetrics, ScoreMatrices, measure
from keras_xmr.parts.option_types import RelevanceMeasure
from keras_xmr.relevance import reference_groups, relevance_matrix
from keras_xmr.reranking import Reranker, measure_reranked
from keras_xmr.utils.directions import DIRECTIONS

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

    @property
    def sides(self) -> dict[str, Arrays]:
        """The embeddings of "image" and "text"."""
        return {"image": self.images, "text": self.captions}

    def log_sigma(self) -> dict[str, np.ndarray]:
        """Returns the uncertainty of the items of each side; see
        `uncertainty.assessment.log_sigma`.

        Without the sides that have none.
        """
        sigmas = {side: log_sigma(arrays) for side, arrays in self.sides.items()}
        return {side: values for side, values in sigmas.items() if values is not None}


@dataclass(frozen=True, eq=False)
class Attention:
    """Attention of a model on a few photos of a split.

    Attributes:
        keys: The names of the photos.
        pixels: Photos as the model reads them, uint8 (N, size, size, 3).
        maps: By name, maps (N, K, n, n).
    """

    keys: Sequence[str]
    pixels: np.ndarray
    maps: dict[str, np.ndarray]


@dataclass
class MatcherEvaluation:
    """Results of one matcher on a split.

    Attributes:
        name: The name in the config.
        scores: The scores.
        measured: Metrics of the scores.
        tied: Share of the pairs that it ties; see `tied_share`.
        seconds: The time that all scores took; None where they were not made here, or are made
            tile by tile.
    """

    name: str
    scores: ScoreMatrices
    measured: Measured
    tied: float = 0.0
    seconds: float | None = None

    @property
    def metrics(self) -> RetrievalMetrics:
        """Metrics against the judgements of the data set."""
        return self.measured.metrics

    @property
    def truth(self) -> RetrievalMetrics | None:
        """Metrics against the exhaustive truth, if the data set has one."""
        return self.measured.extra.get(TRUTH)


@dataclass(eq=False)
class Evaluation:
    """Results of a model on a split.

    Attributes:
        split: The split.
        matchers: The results per matcher; the trained one comes first.
        embedded: The embeddings; empty if several models made the scores.
        ground_truth: The ground truth of the split.
        reranked: By re-ranker and matcher, the metrics after re-ranking, of which each fold was
            re-ranked separately. A re-ranker uses all queries at once (transductive), so these
            figures are not to be compared with plain ones.
        paper: The row of a paper that the config reproduces.
        fidelity: Whether the run follows that paper.
        is_trained: Whether the model was trained here, not taken as published.
        probes: Results of embedding changed items; None without an uncertainty report.
        attention: Attention on a few photos; None without attention over places.
        baselines: The metrics of simpler models on the same features, by name.
        unknown: The embedding of a caption of unknown words alone, for embeddings in the plane.
    """

    split: str
    matchers: list[MatcherEvaluation]
    embedded: EmbeddedSplit
    ground_truth: GroundTruth
    reranked: dict[str, dict[str, Measured]] = field(default_factory=dict)
    paper: ReportedResults | None = None
    fidelity: Fidelity | None = None
    is_trained: bool = True
    probes: Probes | None = None
    attention: Attention | None = None
    baselines: dict[str, Measured] = field(default_factory=dict)
    unknown: Arrays | None = None

    @property
    def images(self) -> int:
        """Number of images."""
        return self.ground_truth.shape[0]

    @property
    def captions(self) -> int:
        """Number of captions."""
        return self.ground_truth.shape[1]

    @cached_property
    def uncertainty_bins(self) -> dict[str, Bins]:
        """For "image" and "text" queries with a sigma, recall at 1 in bins of uncertainty."""
        sigmas = self.embedded.log_sigma()
        if not sigmas:
            return {}
        metrics = self.matchers[0].metrics
        queries = {"image": metrics.image_to_text, "text": metrics.text_to_image}
        return {
            # Captions of one image are similar.
            side: bins(sigma, queries[side].values["recall_1"], independent=self.images)
            for side, sigma in sigmas.items()
        }

    @cached_property
    def uncertainty_of_truth(self) -> float | None:
        """Rank correlation between the uncertainty of a caption and the number of images it is true
        of; None where one of them is not known.
        """
        sigma = self.embedded.log_sigma().get("text")
        if sigma is None or self.truth is None:
            return None
        return rank_correlation(sigma, self.truth.transpose().counts())

    @cached_property
    def set_similarity(self) -> dict[str, float]:
        """For "image" and "text" embeddings that are sets: the mean cosine of the members of one
        item's set.
        """
        similarities = {side: set_similarity(a) for side, a in self.embedded.sides.items()}
        return {side: value for side, value in similarities.items() if value is not None}

    @property
    def judgements(self) -> Judgements:
        """The judgements of the data set."""
        return self.ground_truth.judgements

    @property
    def truth(self) -> Judgements | None:
        """The exhaustive truth, if the data set has one."""
        return self.ground_truth.extra.get(TRUTH)

    @property
    def measured(self) -> dict[str, Measured]:
        """The metrics of each matcher, by its name."""
        return {m.name: m.measured for m in self.matchers}


_LOGGER = logging.getLogger(__name__)


def add_relevance(truth: GroundTruth, options: RelevanceOptions) -> None:
    """Adds the relevance of ASP, and the relevance of the evaluators released with it."""
    owners = reference_groups(options.references, truth.labels, len(truth.image_ids))

    def relevance(measure: RelevanceMeasure) -> np.ndarray:
        captions = truth.texts, owners[truth.caption_image], int(owners.max(initial=-1)) + 1
        matrix = relevance_matrix(*captions, measure, options.tokenizer).dense()
        return matrix if options.references == "image" else matrix[owners]

    truth.relevance = relevance(options.measure)
    if options.measure != "tf_idf":
        truth.extra_relevance["tf_idf"] = relevance("tf_idf")


def evaluate_split_scores(
    split: str,
    scores: Iterable[tuple[str, ScoreMatrices]],
    truth: GroundTruth,
    folds: int = 0,
    rerankers: Mapping[str, Reranker] | None = None,
) -> Evaluation:
    """Measures scores, and each after re-ranking. Many ties are a warning.

    Args:
        split: The split.
        scores: Names and scores; the verdict is about the first.
        truth: The ground truth.
        folds: Number of folds over which means are taken in addition; 0 for none.
        rerankers: Re-rankers by name.

    Raises:
        ValueError: As `measure` raises it.
    """
    results = [
        MatcherEvaluation(name, matrices, measure(matrices, truth, folds), tied_share(matrices))
        for name, matrices in scores
    ]
    for result in results:
        if warning := tie_warning(result.name, result.tied):
            _LOGGER.warning("%s: %s", split, warning)
    reranked = {
        name: {r.name: measure_reranked(reranker, r.scores, truth, folds) for r in results}
        for name, reranker in (rerankers or {}).items()
    }
    return Evaluation(split, results, EmbeddedSplit({}, {}), truth, reranked=reranked)


TIED_LIMIT = 0.02
"""Largest share of tied pairs without a warning."""

_QUERIES = 200
_QUERIES_OF_TILES = 6


def tied_share(scores: ScoreMatrices) -> float:
    """Returns the share of pairs with the same score as another candidate of the query, to the last
    digit.

    The smaller one of both directions: a duplicate caption or image ties its pairs in one direction
    alone, while a score that saturates ties them in both. Of many queries, 200 evenly spread ones
    count.

    Args:
        scores: Scores (images, captions).
    """
    shares = []
    for direction, queries in zip(DIRECTIONS, scores.shape, strict=True):
        count = min(_QUERIES if scores.is_dense else _QUERIES_OF_TILES, queries)
        spread = np.linspace(0, queries - 1, count).round().astype(int)
        shares.append(_tied(scores.select_queries(direction, spread)))
    return min(shares)


def tie_warning(name: str, share: float) -> str | None:
    """Returns a warning about a matcher that ties many pairs; None for few."""
    if share <= TIED_LIMIT:
        return None
    return (
        f"{name} ties {100 * share:.0f} % of the pairs with another candidate of the same query, "
        "so its ranks there are arbitrary: scores saturate, or embeddings have collapsed."
    )


def _tied(scores: np.ndarray) -> float:
    """Returns the share of the scores (queries, candidates) that occur twice in their row."""
    if not scores.size:
        return 0.0
    ordered = np.sort(scores, axis=1)
    same = np.pad(ordered[:, 1:] == ordered[:, :-1], [(0, 0), (1, 1)])
    return float((same[:, 1:] | same[:, :-1]).mean())
