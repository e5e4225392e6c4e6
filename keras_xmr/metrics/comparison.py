"""Compares systems by their scores, or by their values of queries."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from keras_xmr.judgements import as_judgements
from keras_xmr.metrics.bootstrap import RESAMPLES, Estimate
from keras_xmr.metrics.estimates import compare_estimates, estimate_means
from keras_xmr.metrics.measure import owners, per_query
from keras_xmr.metrics.names import METRICS, in_percent, metric_title, shown_value
from keras_xmr.metrics.ranking import RECALL_AT
from keras_xmr.metrics.results import ANNOTATED, Result, Results, rows_of
from keras_xmr.metrics.score_matrices import ScoreMatrices, ScoreTiles
from keras_xmr.utils.directions import DIRECTIONS, SHORT, full_name, split_name
from keras_xmr.utils.errors import ArgumentError
from keras_xmr.utils.foreign_arrays import as_array
from keras_xmr.utils.messages import nearest
from keras_xmr.utils.tables import Table

LEAST_GROUPS = 30
"""Number of images, or of independent captions, from which on there are intervals.

By simulation of recalls between 0.2 and 0.9, intervals of 95 % hold 28 to 89 % of 2 images, 84 to
93 % of 10, 90 to 95 % of 20, and 93 to 95 % of 30; all others of this package hold 92 % or more.
"""

_KEY: dict[str, Any] = {"split": "", "judgements": ANNOTATED}

_METRICS = (*(f"recall_{k}" for k in RECALL_AT), "r_precision", "map_at_r")


@dataclass(frozen=True)
class Comparison:
    """Systems on the same queries.

    Attributes:
        results: The mean of each metric per system, and per pair of systems their difference: the
            second, as `method`, minus the first, as `minus`.
        runs: The number of runs per system, by its name.
    """

    results: Results
    runs: Mapping[str, int]

    @cached_property
    def pairs(self) -> dict[tuple[str, str], dict[str, Result]]:
        """The differences of two systems by metric, by the names of the first and the second."""
        pairs: dict[tuple[str, str], dict[str, Result]] = {}
        for row in self.results:
            if row.minus:
                pairs.setdefault((row.minus, row.method), {})[row.name] = row
        return pairs

    @property
    def metrics(self) -> dict[str, Result]:
        """The difference of the first two systems by metric."""
        return next(iter(self.pairs.values()))

    @property
    def means(self) -> dict[str, dict[str, Result]]:
        """The metrics of each system."""
        plain = self.results.select(minus="")
        return {name: {row.name: row for row in plain.select(method=name)} for name in self.runs}

    def tables(self) -> list[Table]:
        """Returns a table per pair of systems, in percent."""
        return [self._table(*pair) for pair in self.pairs]

    def _table(self, first: str, second: str) -> Table:
        tests = ["difference", "95 % interval (Holm)", "p", "p (Holm)", "detectable"]
        rows = []
        for name, d in self.pairs[first, second].items():
            means = (self.means[system][name] for system in (first, second))
            cells = [shown_value(mean.unit, mean.value) for mean in means]
            numbers = (d.value, d.low, d.high, d.detectable)
            value, low, high, detectable = (in_percent(d.unit, number) for number in numbers)
            cells += [f"{value:+.2f}", f"{low:+.2f} to {high:+.2f}", f"{d.p:.4f}"]
            cells += [f"{d.p_holm:.4f}", f"{detectable:.2f}"]
            rows.append([metric_title(name).replace("\n", " "), *cells])
        runs = [str(self.runs[name]) for name in (first, second)]
        title = f"{second} minus {first}; runs: {' and '.join(runs)}"
        return Table(title, ["metric", first, second, *tests], rows)

    def markdown(self) -> str:
        """Returns the tables in Markdown."""
        return "\n\n".join(table.markdown() for table in self.tables())

    def latex(self) -> str:
        """Returns the tables in LaTeX."""
        return "\n\n".join(table.latex() for table in self.tables())

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.tables()))


def compare(
    scores_a: object,
    scores_b: object,
    judgements: object = None,
    *,
    image_ids: ArrayLike | None = None,
    metrics: Sequence[str] = _METRICS,
    names: tuple[str, str] = ("a", "b"),
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Comparison:
    """Tests whether the second system is better than the first; see `compare_systems`.

    Args:
        scores_a: Scores of the first system.
        scores_b: Scores of the second one.
        judgements: The relevant pairs; see `keras_xmr.metrics.recall`.
        image_ids: The row of each caption's image, int (captions,).
        metrics: The compared metrics.
        names: The names of both in tables.
        resamples: Number of resamples of the queries.
        seed: Seed of the resamples.
    """
    is_pair = isinstance(names, list | tuple) and len(names) == 2 and names[0] != names[1]
    if not is_pair or not all(isinstance(name, str) for name in names):
        raise ArgumentError(
            f"names are two, one for each system, such as ('a', 'b'), not {names!r}"
        )
    systems = dict(zip(names, (scores_a, scores_b), strict=True))
    return compare_systems(
        systems, judgements, image_ids=image_ids, metrics=metrics, resamples=resamples, seed=seed
    )


def compare_systems(
    systems: Mapping[str, object],
    judgements: object = None,
    *,
    image_ids: ArrayLike | None = None,
    metrics: Sequence[str] = _METRICS,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Comparison:
    """Tests the differences of all pairs of systems, by paired bootstrap.

    Images are resampled with their captions, and all systems are measured on the same resamples.
    For a system with several runs, the variance over seeds is included with Student's t (see
    `keras_xmr.metrics.bootstrap.Estimate`); for a single run, the intervals are about that run
    alone.

    Args:
        systems: By name, scores (images, captions), as `keras_xmr.metrics.recall` takes them, or
            values of queries by metric, as `keras_xmr.metrics.per_query` returns them; or a list
            of such, one for each run. A tuple of matrices is refused, as it may be two runs or two
            directions.
        judgements: The relevant pairs; see `keras_xmr.metrics.recall`.
        image_ids: The row of each caption's image, int (captions,): captions of one image are not
            independent, and match it alone if there are no judgements. By default as in the
            judgements if each caption has one relevant image there; otherwise captions are
            resampled independently.
        metrics: Names without the direction, such as `ndcg_10`. Of values of queries any name that
            they have. RSUM is added where the three recalls are among them.
        resamples: Number of resamples of the queries.
        seed: Seed of the resamples.

    Raises:
        ArgumentError: If shapes do not fit, no pair is relevant, a metric is not known, there are
            fewer than two systems, `resamples` is less than 1, or fewer than `LEAST_GROUPS`
            images, or independent captions, have a relevant item.
        ValueError: If a score is NaN.
    """
    for name, value, least in (("resamples", resamples, 1), ("seed", seed, 0)):
        if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
            raise ArgumentError(f"{name} is a whole number from {least} on, not {value!r}")
    if not isinstance(systems, Mapping) or len(systems) < 2:
        raise ArgumentError("systems are two or more, by name: {'a': scores, 'b': other}")
    is_list = isinstance(metrics, list | tuple) and len(metrics) > 0
    if not is_list or not all(isinstance(metric, str) for metric in metrics):
        raise ArgumentError(f"metrics are a list of names, such as ['ndcg_10'], not {metrics!r}")
    runs = {name: [_run(run) for run in _runs(system)] for name, system in systems.items()}
    shape = _common_shape([run for of_system in runs.values() for run in of_system])
    right = as_judgements(image_ids if judgements is None else judgements, shape)
    if not right.grades.nnz:
        raise ArgumentError("no pair is relevant, so nothing can be compared")
    values = [
        run if isinstance(run, Mapping) else per_query(run, right)
        for of_system in runs.values()
        for run in of_system
    ]
    by_direction = {direction: _stack(values, direction, metrics) for direction in DIRECTIONS}
    sizes, owner = [len(of_system) for of_system in runs.values()], owners(right, image_ids)
    for direction, groups in zip(DIRECTIONS, (None, owner), strict=True):
        _refuse_few(direction, by_direction[direction], groups)
    estimates = estimate_means(by_direction, sizes, owner, shape[0], resamples, seed)
    results: list[Result] = []
    for number, name in enumerate(runs):
        means = {metric: of_systems[number] for metric, of_systems in estimates.items()}
        results += mean_rows(means, method=name, **_KEY)
    results += difference_rows(estimates, list(runs), **_KEY)
    return Comparison(Results(results), dict(zip(runs, sizes, strict=True)))


def mean_rows(means: Mapping[str, Estimate], **key: Any) -> Iterator[Result]:
    """Yields the means of a system with their intervals.

    Args:
        means: The mean of each metric, by names such as `i2t_recall_1`.
        key: The other columns of the rows.
    """
    intervals = {metric: estimate.difference() for metric, estimate in means.items()}
    values = {metric: interval.value for metric, interval in intervals.items()}
    return rows_of(values, {m: (d.low, d.high) for m, d in intervals.items()}, **key)


def difference_rows(
    means: Mapping[str, Sequence[Estimate]], systems: Sequence[str], **key: Any
) -> Iterator[Result]:
    """Yields the differences of all pairs of systems: the later one minus the earlier one.

    P-values and intervals are corrected for all of them together (Holm 1979).

    Args:
        means: The mean of each metric per system, by names such as `i2t_recall_1`.
        systems: The names of the systems.
        key: The other columns of the rows.
    """
    pairs = itertools.combinations(range(len(systems)), 2)
    compared = [(*pair, metric) for pair in pairs for metric in means]
    minus = [means[metric][second] - means[metric][first] for first, second, metric in compared]
    for (first, second, metric), test in zip(compared, compare_estimates(minus), strict=True):
        difference, p_holm, detectable = test
        yield from rows_of(
            {metric: difference.value},
            {metric: (difference.low, difference.high)},
            method=systems[second],
            minus=systems[first],
            p=difference.p_value,
            p_holm=p_holm,
            detectable=detectable,
            **key,
        )


def _run(run: object) -> Mapping[str, np.ndarray] | ScoreMatrices:
    """Returns a run of a system: values of queries, or scores."""
    if not isinstance(run, Mapping):
        return ScoreMatrices.of(run)
    arrays = {name: as_array(values, str(name)) for name, values in run.items()}
    for name, values in arrays.items():
        if values.ndim != 1 or values.dtype.kind not in "biuf":
            raise ArgumentError(
                f"{name} has a number for each query, not {values.dtype} of shape {values.shape}"
            )
    return {str(name): values.astype(np.float64) for name, values in arrays.items()}


def _common_shape(runs: Sequence[Mapping[str, np.ndarray] | ScoreMatrices]) -> tuple[int, int]:
    """Returns images and captions of all runs."""
    shapes = set()
    for run in runs:
        if isinstance(run, ScoreMatrices):
            shapes.add(run.image_to_text.shape)
            continue
        sizes = {
            direction: {len(v) for n, v in run.items() if split_name(n)[0] == direction}
            for direction in DIRECTIONS
        }
        if any(len(of_side) != 1 for of_side in sizes.values()):
            raise ArgumentError(
                "values of queries have names such as i2t_recall_1 and t2i_recall_1, each an array "
                f"over all images, or all captions, not {list(run)}"
            )
        shapes.add(tuple(next(iter(sizes[direction])) for direction in DIRECTIONS))
    listed = " and ".join(map(str, sorted(shapes)))
    if any(len(shape) != 2 for shape in shapes):
        raise ArgumentError(
            f"compare takes matrices (images, captions), or a list of them, not shape {listed}; of "
            "an array of several runs, make a list: list(scores)"
        )
    if len(shapes) != 1:
        raise ArgumentError(f"compare takes scores of the same images and captions, not {listed}")
    return shapes.pop()


def _stack(
    runs: Sequence[Mapping[str, np.ndarray]], direction: str, metrics: Sequence[str]
) -> dict[str, np.ndarray]:
    """Returns the values of a direction per metric, float (queries, runs)."""
    stacked = {}
    for metric in metrics:
        for name in (METRICS[metric].mean_of if metric in METRICS else ()) or (metric,):
            full = full_name(direction, name)
            if unknown := [run for run in runs if full not in run]:
                split = map(split_name, unknown[0])
                known = sorted(metric for of, metric in split if of == direction)
                raise ArgumentError(
                    f"a system has no metric {name!r}, which per_query computes where it gets what "
                    f"it needs.{nearest(name, known)}"
                )
            stacked[name] = np.stack([run[full] for run in runs], axis=1)
    return stacked


def _runs(scores: object) -> Sequence[Any]:
    """Returns the runs of a system: a list of matrices has several; a list of rows is one
    matrix.
    """
    if isinstance(scores, list) and not scores:
        raise ArgumentError("a system has no scores: the list is empty; give a matrix for each run")
    if type(scores) is tuple and any(_rank(one) != 1 for one in scores):
        raise ArgumentError(
            "a tuple may be several runs, or the scores of both directions: give several runs as a "
            "list, and both directions as ScoreMatrices(image_to_text, text_to_image)"
        )
    if isinstance(scores, list) and _rank(scores[0]) != 1:
        return scores
    return [scores]


def _rank(scores: object) -> int | None:
    """Returns the number of dimensions of an array or of nested lists; None of the scores of a
    class.
    """
    is_pair = hasattr(scores, "_fields")  # The output of a re-ranker.
    if is_pair or isinstance(scores, ScoreMatrices | ScoreTiles | Mapping):
        return None
    return as_array(scores, "scores").ndim


def _refuse_few(
    direction: str, per_query: Mapping[str, np.ndarray], groups: np.ndarray | None
) -> None:
    """Refuses fewer groups of queries than intervals need; a direction without any is left out."""
    answered = ~np.isnan(next(iter(per_query.values()))).any(axis=1)
    numbers = np.flatnonzero(answered) if groups is None else groups[answered]
    if 0 < (count := len(np.unique(numbers))) < LEAST_GROUPS:
        unit = "images" if direction == "image_to_text" or groups is not None else "captions"
        raise ArgumentError(
            f"the {SHORT[direction]} queries with a relevant item are of {count} {unit}, and an "
            f"interval of so few does not hold what it says; compare on {LEAST_GROUPS} or more"
        )
