"""Means of metrics over resampled queries, and their differences."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from keras_xmr.metrics.bootstrap import (
    LEVEL,
    RESAMPLES,
    Difference,
    Estimate,
    difference,
    holm,
    holm_factors,
    mean_of_runs,
    resampled_means,
)
from keras_xmr.metrics.names import METRICS, RSUM
from keras_xmr.metrics.ranking import RECALL_AT
from keras_xmr.metrics.retrieval import RetrievalMetrics
from keras_xmr.utils.directions import DIRECTIONS, full_name

Key = TypeVar("Key", bound=Hashable)


def estimate_means(
    per_query: Mapping[str, Mapping[str, np.ndarray]],
    sizes: Sequence[int],
    caption_image: np.ndarray | None,
    images: int,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, list[Estimate]]:
    """Estimates means of metrics per system, over its runs and over resamples of the queries.

    Args:
        per_query: For each direction the values of each metric, float (queries, runs), with the
            runs of one system after the runs of another.
        sizes: Number of runs per system.
        caption_image: The image of each caption, int (captions,), which is drawn together with
            it; None to draw captions independently.
        images: Number of images.
        resamples: Number of resamples.
        seed: Seed of the resamples.

    Returns:
        An estimate per system, by the names of metrics such as `i2t_recall_1`; metrics without
        any value are left out.
    """
    observed: dict[str, np.ndarray] = {}
    resampled: dict[str, np.ndarray] = {}
    for direction, metrics in per_query.items():
        known = {n: values for n, values in metrics.items() if not np.isnan(values).all()}
        means = _resample(known, direction, caption_image, images, resamples, seed)
        observed |= {
            full_name(direction, name): np.nanmean(values, axis=0) for name, values in known.items()
        }
        resampled |= {full_name(direction, name): of_metric for name, of_metric in means.items()}
    for whole in (observed, resampled):
        _combine(whole)

    def by_system(values: np.ndarray) -> list[np.ndarray]:
        return np.split(values, np.cumsum(sizes)[:-1], axis=-1)

    return {
        metric: list(map(mean_of_runs, by_system(of_runs), by_system(resampled[metric])))
        for metric, of_runs in observed.items()
    }


def resample_summaries(
    metrics: Mapping[Key, RetrievalMetrics],
    caption_image: np.ndarray,
    resamples: int = RESAMPLES,
) -> dict[Key, dict[str, np.ndarray]]:
    """Resamples the images with their captions, the same for all metrics.

    Args:
        metrics: Metrics of the same images and captions, by any key.
        caption_image: The image that each caption was written for, int (captions,).
        resamples: Number of resamples.

    Returns:
        By key, the summary over each resample (resamples,), by names such as `i2t_recall_1`.
        Medians, which are no means, are not in it.
    """
    summaries: dict[Key, dict[str, np.ndarray]] = {key: {} for key in metrics}
    for direction in DIRECTIONS:
        columns = {
            (key, "mean_rank" if name == "rank" else name): values[:, None]
            for key, measured in metrics.items()
            for name, values in measured.directions[direction].values.items()
            if not np.isnan(values).all()
        }
        images = len(next(iter(metrics.values())).image_to_text.positives)
        means = _resample(columns, direction, caption_image, images, resamples, 0)
        for (key, name), values in means.items():
            summaries[key][full_name(direction, name)] = values[:, 0]
    for summary in summaries.values():
        _combine(summary, replace=False)
    return summaries


def interval_ends(value: float, resampled: np.ndarray) -> tuple[float, float]:
    """Returns the ends of the 95 % interval of a value that was resampled (resamples,)."""
    interval = difference(value, resampled)
    return interval.low, interval.high


def _resample(
    columns: Mapping[Key, np.ndarray],
    direction: str,
    caption_image: np.ndarray | None,
    images: int,
    resamples: int,
    seed: int,
) -> dict[Key, np.ndarray]:
    """Resamples columns (queries, n) of one direction; returns (resamples, n) of each."""
    if not columns:
        return {}
    draws: dict[str, Any] = {"seed": seed}
    if direction == "text_to_image":
        groups = {"groups": caption_image, "num_groups": images}
        draws = {"seed": seed + 1} if caption_image is None else draws | groups
    flat = np.concatenate(list(columns.values()), axis=1)
    means = resampled_means(flat, resamples=resamples, **draws)
    widths = [values.shape[1] for values in columns.values()]
    return dict(zip(columns, np.split(means, np.cumsum(widths)[:-1], axis=1), strict=True))


def _combine(whole: dict[str, np.ndarray], replace: bool = True) -> None:
    """Adds RSUM and the means of metrics, which replace what they are the mean of, or do not."""
    recalls = [full_name(direction, f"recall_{k}") for direction in DIRECTIONS for k in RECALL_AT]
    if set(recalls) <= whole.keys():
        whole[RSUM] = 100 * np.sum([whole[name] for name in recalls], axis=0)
    for direction, metric in itertools.product(DIRECTIONS, METRICS.values()):
        names = [name for one in metric.mean_of if (name := full_name(direction, one)) in whole]
        if names:
            mean = np.mean([whole[name] for name in names], axis=0)
            whole[full_name(direction, metric.name)] = mean
            for name in names if replace else ():
                del whole[name]


def compare_estimates(minus: Sequence[Estimate]) -> list[tuple[Difference, float, float]]:
    """Tests differences.

    Args:
        minus: The differences.

    Returns:
        For each its interval and p-value, the p-value after Holm's correction for all of them, and
        the smallest effect that its test detects. The interval has the same correction.
    """
    p_values = [estimate.difference().p_value for estimate in minus]
    corrected = holm(p_values)
    levels = (1 - LEVEL) / holm_factors(p_values)
    differences = [
        estimate.difference(alpha) for estimate, alpha in zip(minus, levels, strict=True)
    ]
    effects = [estimate.smallest_effect() for estimate in minus]
    return list(zip(differences, map(float, corrected), effects, strict=True))
