"""Evaluates re-ranked scores, apart from plain ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from keras_xmr.catalogue import Choice, components
from keras_xmr.judgements import Judgements
from keras_xmr.metrics import RetrievalMetrics, evaluate_scores, fold_members
from keras_xmr.reranking import Reranked, Reranker

Scores = tuple[np.ndarray, np.ndarray | None]
"""Scores (images, captions) by which captions are ranked for images, and those by which images
are ranked for captions, or None if they are the same."""


@dataclass
class RerankedEvaluation:
    """What a matcher reaches on a split once its scores are re-ranked.

    The re-ranker uses all queries at once (transductive), so these figures are not to be
    compared with plain ones.

    Attributes:
        matcher: The name of the matcher.
        reranker: The name of the re-ranker.
        metrics: Metrics against the judgements of the data set.
        folds: Their means over folds, each of them re-ranked on its own; empty without folds.
        truth: Metrics against the exhaustive truth, where the data set knows it.
    """

    matcher: str
    reranker: str
    metrics: RetrievalMetrics
    folds: dict[str, float] = field(default_factory=dict)
    truth: RetrievalMetrics | None = None

    @property
    def name(self) -> str:
        """The names of both."""
        return f"{self.matcher} + {self.reranker}"


def build_rerankers(choices: Iterable[Choice]) -> dict[str, Reranker]:
    """The re-rankers of a config by name; the second of one name is `<name>_2`, and so on."""
    seen: Counter[str] = Counter()
    rerankers = {}
    for choice in choices:
        seen[choice.name] += 1
        number = seen[choice.name]
        name = choice.name if number == 1 else f"{choice.name}_{number}"
        rerankers[name] = components("reranker")[choice.name].load()(**choice.options())
    return rerankers


def evaluate_reranked(
    reranker: Reranker,
    names: tuple[str, str],
    scores: Scores,
    judgements: Judgements,
    truth: Judgements | None,
    precision_at: Sequence[int] = (),
) -> RerankedEvaluation:
    """Re-ranks a score matrix, and computes all metrics of both directions.

    Args:
        reranker: The re-ranker.
        names: The names of the matcher and of the re-ranker.
        scores: Scores of the matcher.
        judgements: What is right.
        truth: The exhaustive truth, where it is known.
        precision_at: The K of `precision_K`.
    """
    reranked = _rerank(reranker, *scores)

    def evaluate(right: Judgements) -> RetrievalMetrics:
        return evaluate_scores(
            reranked.image_to_text, right, precision_at, text_to_image=reranked.text_to_image
        )

    result = RerankedEvaluation(*names, evaluate(judgements))
    if truth is not None:
        result.truth = evaluate(truth)
    return result


def evaluate_reranked_folds(
    reranker: Reranker,
    scores: Scores,
    judgements: Judgements,
    image_of_caption: np.ndarray,
    folds: int,
) -> dict[str, float]:
    """Means of the metrics over consecutive folds of the images, each re-ranked on its own.

    The queries of a fold are all that its re-ranking sees.

    Args:
        reranker: The re-ranker.
        scores: Scores of the matcher.
        judgements: What is right.
        image_of_caption: The image that each caption was written for, int (captions,).
        folds: How many folds.
    """
    summaries = []
    for images, captions in fold_members(len(scores[0]), image_of_caption, folds):
        members = np.ix_(images, captions)
        back = None if scores[1] is None else scores[1][members]
        reranked = _rerank(reranker, scores[0][members], back)
        right = judgements.select(images, captions)
        metrics = evaluate_scores(
            reranked.image_to_text, right, text_to_image=reranked.text_to_image
        )
        summaries.append(metrics.summary)
    return {name: float(np.mean([s[name] for s in summaries])) for name in summaries[0]}


def _rerank(reranker: Reranker, scores: np.ndarray, text_to_image: np.ndarray | None) -> Reranked:
    """Re-ranks each direction by the scores of that direction."""
    reranked = reranker(scores)
    if text_to_image is None:
        return reranked
    return Reranked(reranked.image_to_text, reranker(text_to_image).text_to_image)
