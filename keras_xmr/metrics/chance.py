"""Metrics of a random ranking, and the comparison of a model with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from keras_xmr.metrics.bootstrap import RESAMPLES, Difference, difference, resampled_means
from keras_xmr.metrics.names import METRICS
from keras_xmr.metrics.ranking import RECALL_AT, RELEVANT_AT, summarize
from keras_xmr.metrics.retrieval import RetrievalMetrics, both_directions, rsum
from keras_xmr.metrics.semantic import ASP_CHANCE

_RECALLS = [f"recall_{k}" for k in RECALL_AT]
_RESAMPLES = 2_000
_FEW = 30

TOO_FEW = 10
"""Images below which a split is too small for a conclusion."""


@dataclass(frozen=True)
class Verdict:
    """A comparison of a model with chance.

    Attributes:
        rsum: The sum of the six recalls, in percent (600 is perfect).
        low: The lower end of its 95 % interval, by a bootstrap over images with their captions.
        high: The upper end.
        chance: The mean of random rankings.
        images: Number of images of the evaluation.
    """

    rsum: float
    low: float
    high: float
    chance: float
    images: int

    @property
    def is_better_than_chance(self) -> bool:
        """True if the interval is above chance."""
        return self.low > self.chance

    @property
    def conclusion(self) -> str:
        """Whether the model is better than chance, in words."""
        if self.images < TOO_FEW:
            images = "1 image is" if self.images == 1 else f"{self.images} images are"
            return f"{images} too few for a conclusion"
        return "Better than chance" if self.is_better_than_chance else "No better than chance"

    def __str__(self) -> str:
        sentence = (
            f"{self.conclusion}: RSUM {self.rsum:.1f} (95 % interval {self.low:.1f} to "
            f"{self.high:.1f}), where a random ranking has {self.chance:.1f} and a perfect one "
            "600."
        )
        if not TOO_FEW <= self.images < _FEW:
            return sentence
        return f"{sentence} Measured on {self.images} images, this is a rough estimate."


def chance(metrics: RetrievalMetrics) -> dict[str, float]:
    """Returns the expectation of metrics for a random ranking of the same queries and candidates.

    Args:
        metrics: The metrics of a model, for the number of relevant items per query.

    Returns:
        A summary with the names of `metrics.summary`; the median rank is not in it.
    """
    sides = metrics.directions.values()
    images, captions = (queries.positives for queries in sides)
    further = [dict(queries.chance) for queries in sides]
    for metrics_at_chance, queries in zip(further, sides, strict=True):
        if ASP_CHANCE in queries.values:
            metrics_at_chance["asp"] = queries.values[ASP_CHANCE]
    return chance_from_counts(images, captions, further, [queries.judged for queries in sides])


def chance_from_counts(
    images: np.ndarray,
    captions: np.ndarray,
    further: Sequence[Mapping[str, np.ndarray]] = ({}, {}),
    judged: Sequence[np.ndarray | None] = (None, None),
) -> dict[str, float]:
    """Returns the same as `chance`, from the number of relevant items per image and per caption.

    Args:
        images: Number of relevant captions per image (images,).
        captions: Number of relevant images per caption (captions,).
        further: Further metrics of a random ranking, by name, per image and per caption: those
            that the number of relevant items does not determine, such as ASP.
        judged: Number of judged candidates per image and per caption, for condensed lists; None if
            all were judged.
    """
    sides = zip((images, captions), (captions, images), further, judged, strict=True)
    i2t, t2i = (
        _expected(right, len(others), known) | summarize(values)
        for right, others, values, known in sides
    )
    summary = both_directions(*map(_with_means, (i2t, t2i)))
    return summary | {"rsum": rsum(summary)}


def _with_means(summary: dict[str, float]) -> dict[str, float]:
    """Returns a summary with the metrics that are means of others, such as `pmrp`."""
    means = {
        name: float(np.mean([summary[one] for one in metric.mean_of]))
        for name, metric in METRICS.items()
        if metric.mean_of and set(metric.mean_of) <= summary.keys()
    }
    return summary | means


def chance_recall(right: np.ndarray, candidates: int, at: np.ndarray) -> np.ndarray:
    """Computes recall at K of a random ranking, mean over the queries that have relevant items.

    Args:
        right: Number of relevant items per query (queries,).
        candidates: Number of candidates.
        at: Every K, int (n,), from 1.

    Returns:
        Fractions (n,).
    """
    known, queries = np.unique(right[right > 0], return_counts=True)
    places = np.arange(candidates)
    # The probability that each further place is wrong.
    wrong = np.maximum(candidates - known[:, None] - places, 0) / (candidates - places)
    missed = queries @ np.cumprod(wrong, axis=1) / max(queries.sum(), 1)
    recalls: np.ndarray = 1.0 - missed[np.minimum(at, candidates) - 1]
    return recalls


def verdict(metrics: RetrievalMetrics, caption_image: np.ndarray) -> Verdict:
    """Compares a model with chance.

    Args:
        metrics: The metrics.
        caption_image: The image that each caption was written for, int (captions,).
    """
    total = metrics.summary["rsum"]
    # As many resamples as comparisons have, so that both give the same interval.
    interval = difference(total, _resampled_rsum(metrics, caption_image, RESAMPLES))
    count = len(metrics.image_to_text.positives)
    return Verdict(total, interval.low, interval.high, chance(metrics)["rsum"], count)


def rsum_difference(
    metrics: RetrievalMetrics, other: RetrievalMetrics, caption_image: np.ndarray
) -> Difference:
    """Returns the RSUM of a model minus the RSUM of another on the same queries, in percent.

    Args:
        metrics: Metrics of the one.
        other: Metrics of the other.
        caption_image: The image that each caption was written for, int (captions,).
    """
    resampled = _resampled_rsum(metrics, caption_image) - _resampled_rsum(other, caption_image)
    return difference(metrics.summary["rsum"] - other.summary["rsum"], resampled)


def _resampled_rsum(
    metrics: RetrievalMetrics, caption_image: np.ndarray, resamples: int = _RESAMPLES
) -> np.ndarray:
    """Computes RSUM over resampled images and their captions, (resamples,)."""
    count = len(metrics.image_to_text.positives)
    sides = (metrics.image_to_text, None), (metrics.text_to_image, caption_image)
    resampled = np.zeros(resamples)
    for queries, groups in sides:
        values = np.stack([queries.values[name] for name in _RECALLS], axis=1)
        resampled += resampled_means(values, groups, count, resamples).sum(axis=1)
    return 100 * resampled


def _expected(right: np.ndarray, candidates: int, judged: np.ndarray | None) -> dict[str, float]:
    """Returns means over the queries that have relevant items.

    Args:
        right: Number of relevant items per query (queries,).
        candidates: Number of candidates.
        judged: Number of those that were judged per query (queries,); None if all were, so that
            bpref is not measured.
    """
    n = np.full(len(right), candidates, np.float64) if judged is None else judged.astype(np.float64)
    right, n = right[right > 0].astype(np.float64), n[right > 0]
    if not len(right):
        return {}
    harmonic = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, right.max() + 1))])
    harmonic = harmonic[right.astype(int)]
    others = (right - 1) / np.maximum(n - 1, 1)  # how often another relevant item is at a place
    expected = {
        "r_precision": right / n,
        "map_at_r": (harmonic * (1 - others) + right * others) / n,
        "mean_rank": (n + 1) / (right + 1),
    }
    if judged is not None:
        expected["bpref"] = _expected_preference(right, n - right)
    for k in RECALL_AT:
        left = n[:, None] - np.arange(k)
        # With more places than candidates, a relevant item is among them.
        missed = np.maximum(left - right[:, None], 0) / np.maximum(left, 1)
        expected[f"recall_{k}"] = 1 - missed.prod(axis=1)
    for k in RELEVANT_AT:
        among = np.minimum(k, n) * right / n
        expected |= {f"relevant_{k}": among, f"precision_{k}": among / k}
    return {name: float(values.mean()) for name, values in expected.items()}


def _expected_preference(right: np.ndarray, wrong: np.ndarray) -> np.ndarray:
    """Computes bpref of a random ranking: all numbers of wrong answers before an item are
    equally likely.
    """
    counted = np.minimum(right, wrong)  # the maximum number of wrong answers that bpref counts
    before = counted * (counted - 1) / 2 + (wrong - counted + 1) * counted
    return 1 - before / np.maximum((wrong + 1) * counted, 1)
