"""The long table of an evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from keras_xmr.experiments.config.paper_section import ReportedResults
from keras_xmr.experiments.evaluation.split_evaluation import Evaluation
from keras_xmr.experiments.evaluation.uncertainty.assessment import correlation_interval
from keras_xmr.judgements import GroundTruth
from keras_xmr.metrics import METRICS, RSUM, Measured, RetrievalMetrics, chance
from keras_xmr.metrics.bootstrap import difference
from keras_xmr.metrics.estimates import interval_ends, resample_summaries
from keras_xmr.metrics.measure import PositivesBin, by_positives
from keras_xmr.metrics.names import Metric, in_percent, metric_unit
from keras_xmr.metrics.results import (
    ALL,
    ANNOTATED,
    CHANCE,
    FOLDS,
    MODEL,
    Result,
    Results,
    rows_of,
)
from keras_xmr.utils.directions import DIRECTIONS, full_name
from keras_xmr.utils.sides import SIDES

REPORTED = "reported: "
"""Begins the method of the figures that a paper prints: its source, and there its row."""

FACTS = {
    metric.name: metric
    for metric in (
        Metric("images", "images", "count"),
        Metric("captions", "captions", "count"),
        Metric("trained", "trained here", "count"),
        Metric("tied", "tied pairs"),
        Metric("set_cosine", "cosine within sets", "correlation"),
        Metric("uncertainty_correlation", "rank corr. of sigma and R@1", "correlation"),
        Metric("scoring_seconds", "seconds of scoring", "seconds"),
        Metric("reranking_seconds", "seconds of re-ranking", "seconds"),
        Metric("uncertainty_of_truth", "rank corr. of sigma and truth", "correlation"),
    )
}
"""Figures of an evaluation that no judgements decide; their `judgements` are empty."""

_OF_QUERIES: dict[str, str] = dict(zip(SIDES, DIRECTIONS, strict=True))


class _System(NamedTuple):
    method: str
    matcher: str
    reranker: str


def results_of(evaluation: Evaluation) -> Results:
    """Computes the long table of an evaluation, with 95 % intervals over its queries.

    Args:
        evaluation: The evaluation of a split.
    """
    systems = _systems(evaluation)
    metrics = {
        (system, judgements): by_judgements
        for system, measured in systems.items()
        for judgements, by_judgements in _by_judgements(measured).items()
    }
    resampled = resample_summaries(metrics, evaluation.ground_truth.caption_image)
    further = chosen_metrics(evaluation.ground_truth)
    rows: list[Result] = []
    for system, measured in systems.items():
        key: dict[str, Any] = system._asdict()
        for judgements, of_kind in _by_judgements(measured).items():
            drawn = resampled[system, judgements]
            rows += _rows(of_kind, drawn, further, judgements=judgements, **key)
        rows += rows_of(measured.folds, further=further, **_ANNOTATED, queries=FOLDS, **key)
    model, first = next(iter(systems.items()))
    for judgements, of_kind in _by_judgements(first).items():
        rows += _chance_rows(of_kind, judgements)
    for system in systems:
        if system.method != MODEL:
            both = [resampled[each, ANNOTATED][RSUM] for each in (model, system)]
            values = [systems[each].metrics.summary[RSUM] for each in (model, system)]
            gap = difference(values[0] - values[1], both[0] - both[1])
            key = model._asdict() | {"minus": system.method, "p": gap.p_value}
            rows += rows_of({RSUM: gap.value}, {RSUM: (gap.low, gap.high)}, **_ANNOTATED, **key)
    rows += _facts(evaluation)
    rows += _reported(evaluation.paper, evaluation)
    return Results(rows).replace(split=evaluation.split)


_ANNOTATED: dict[str, Any] = {"split": "", "judgements": ANNOTATED}


def _systems(evaluation: Evaluation) -> dict[_System, Measured]:
    """Returns what was measured: matchers, baselines, and matchers after re-ranking."""
    systems = {_System(MODEL, m.name, ""): m.measured for m in evaluation.matchers}
    systems |= {_System(name, "", ""): found for name, found in evaluation.baselines.items()}
    for reranker, by_matcher in evaluation.reranked.items():
        systems |= {_System(MODEL, name, reranker): found for name, found in by_matcher.items()}
    return systems


def _by_judgements(measured: Measured) -> dict[str, RetrievalMetrics]:
    return {ANNOTATED: measured.metrics} | measured.extra


def chosen_metrics(truth: GroundTruth) -> dict[str, Metric]:
    """Describes the metrics that a config has chosen, by name."""
    chosen: dict[str, Any] = {n: m for n, m in truth.measures.items() if n not in METRICS}
    return {name: Metric(name, metric.TITLE, metric.UNIT) for name, metric in chosen.items()}


def _rows(
    metrics: RetrievalMetrics,
    resampled: Mapping[str, np.ndarray],
    further: Mapping[str, Metric],
    **key: Any,
) -> Iterator[Result]:
    """Yields the rows of metrics by one kind of judgements."""
    summary = metrics.summary
    ends = {n: interval_ends(v, resampled[n]) for n, v in summary.items() if n in resampled}
    counts = {
        direction: int((queries.positives > 0).sum())
        for direction, queries in metrics.directions.items()
    }
    counts[""] = len(metrics.image_to_text.positives)
    key = {"split": ""} | key
    yield from rows_of(summary, ends, counts, further, **key)
    for direction, queries in metrics.directions.items():
        for group in by_positives(queries):
            means = {full_name(direction, name): mean for name, mean in group.means.items()}
            counts = {direction: group.queries}
            yield from rows_of(means, counts=counts, queries=range_of(group), **key)


def range_of(group: PositivesBin) -> str:
    """Returns the numbers of relevant items of a bin, such as `3 to 4`."""
    return f"{group.least} to {group.most}" if group.least < group.most else str(group.most)


def _chance_rows(metrics: RetrievalMetrics, judgements: str) -> Iterator[Result]:
    key: dict[str, Any] = {"split": "", "method": CHANCE, "judgements": judgements}
    yield from rows_of(chance(metrics), **key)
    if not metrics.fully_judged:
        return
    both = metrics.directions
    for direction, others in zip(DIRECTIONS, reversed(DIRECTIONS), strict=True):
        candidates = len(both[others].positives)
        for group in by_positives(both[direction]):
            share = {full_name(direction, "recall_1"): group.positives / candidates}
            yield from rows_of(share, queries=range_of(group), **key)


def _facts(evaluation: Evaluation) -> Iterator[Result]:
    key: dict[str, Any] = {"split": "", "judgements": "", "further": FACTS}
    sizes = {"images": evaluation.images, "captions": evaluation.captions}
    yield from rows_of(sizes | {"trained": int(evaluation.is_trained)}, **key)
    for matcher in evaluation.matchers:
        yield from rows_of({"tied": matcher.tied}, matcher=matcher.name, **key)
    # Next to plain figures seconds would be all that differs between two evaluations.
    scoring = {matcher.name: matcher.seconds for matcher in evaluation.matchers}
    for reranker, by_matcher in evaluation.reranked.items():
        for name, measured in by_matcher.items():
            seconds = {
                "scoring_seconds": scoring[name],
                "reranking_seconds": measured.seconds,
            }
            known = {metric: value for metric, value in seconds.items() if value is not None}
            yield from rows_of(known, matcher=name, reranker=reranker, **key)
    for side, similarity in evaluation.set_similarity.items():
        yield from rows_of({full_name(_OF_QUERIES[side], "set_cosine"): similarity}, **key)
    for side, bins in evaluation.uncertainty_bins.items():
        name = full_name(_OF_QUERIES[side], "uncertainty_correlation")
        yield from rows_of({name: bins.correlation}, {name: bins.interval}, **key)
    if (correlation := evaluation.uncertainty_of_truth) is not None:
        interval = correlation_interval(correlation, evaluation.images)
        name = full_name(_OF_QUERIES["text"], "uncertainty_of_truth")
        yield from rows_of({name: correlation}, {name: interval}, **key)


def _reported(paper: ReportedResults | None, evaluation: Evaluation) -> Iterator[Result]:
    """Yields the figures that a paper prints for the split."""
    if paper is None:
        return
    key: dict[str, Any] = {"split": "", "method": f"{REPORTED}{paper.source}"}
    # 0 where it is not known.
    yield from rows_of({"images": paper.images or 0}, further=FACTS, judgements="", **key)
    for figures in (each for each in paper.figures if each.split == evaluation.split):
        yield from rows_of(
            {name: _fraction(name, value) for name, value in figures.values.items()},
            method=f"{REPORTED}{paper.source}: {figures.row or paper.row}",
            matcher=figures.matcher or evaluation.matchers[0].name,
            reranker=figures.reranker or "",
            queries=FOLDS if figures.folds else ALL,
            **_ANNOTATED,
        )


def _fraction(name: str, value: float) -> float:
    """Converts a printed figure to the unit of our metrics."""
    return value / in_percent(metric_unit(name), 1.0)
