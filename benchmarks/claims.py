"""What the papers claim, held against runs on the scenes and on real photos.

A claim says that one method has more of a metric than another, or not more by anything that counts.
Runs on the scenes are those of `main.py compare` (a folder that holds them, `--scenes`), real
photos the results of benchmarks/real_features.py (`--real`). A difference has a 95 % interval, over
queries and, where trainings differ, seeds, and the smallest difference that would have been found
in four cases of five, at the level of the first test of its family. What another seed changes is
estimated from methods of a family that have several; where a family has none, nothing is said of
the claim. Of the same trainings, scored otherwise, the interval is over queries alone. On real
photos it is over photos, and over seeds where training begins at random. A claim is decided where
Holm's correction for all claims of its paper in its column leaves a p-value below 0.05. "Not
observed" is said only where the paper's own effect could have been found.

Claims of one's own are a YAML file (`--claims`); docs/how_to/compare.md says what stands in it.

What PCME's sigma is said to tell is held against the reports of finished runs (sigma_claims.py),
on real photos against those of a folder of runs of csv_pretrained (`--real-runs`).

    python benchmarks/claims.py --scenes saved_models --real data/real_features/results.jsonl
    python benchmarks/claims.py --claims mine.yaml --runs saved_models
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import sigma_claims
from claims_file import read_claims
from paper_claims import (
    ALPHA,
    BY,
    CLAIMS,
    FROM_SCRATCH,
    OF_SIGMA,
    R_PRECISION,
    RERANKERS,
    Claim,
    config_on_photos,
    config_on_scenes,
    title_of,
)
from real_tables import Result, Sides, mean_of_runs, read_results, resampled_photos

from keras_xmr.config.loader import find_config, load_config
from keras_xmr.evaluation.comparison.figures import Resampled, resample
from keras_xmr.evaluation.comparison.results import RunResult, read_runs
from keras_xmr.evaluation.reporting.table import Table
from keras_xmr.metrics.bootstrap import RESAMPLES, Difference, Estimate, Seeds, holm
from keras_xmr.utils.errors import UserError

Found = dict[tuple[Claim, str], tuple[Estimate | None, str]]
"""Of a claim and a metric the difference in percent, and of what runs it is.

None where nothing tells what another seed changes, or where both count other negatives.
"""

ALL = (*CLAIMS, *OF_SIGMA)
HINGES = "triplet", "variance_aware_weighting"
MINING = "mining: "
"""Begins the reason why configs that count other negatives say nothing of a claim."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints tables in Markdown, or in LaTeX."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scenes", type=Path, help="a folder that holds finished runs")
    parser.add_argument("--real", type=Path, action="append", default=[], help="finished results")
    parser.add_argument(
        "--real-runs", type=Path, help="a folder that holds finished runs of photos"
    )
    parser.add_argument("--size", type=int, default=500, help="how many real photos trained")
    parser.add_argument("--claims", type=Path, help="a YAML file of claims, about --runs")
    parser.add_argument("--runs", type=Path, help="a folder that holds finished runs")
    parser.add_argument("--latex", action="store_true", help="prints LaTeX in place of Markdown")
    options = parser.parse_args(arguments)
    if bool(options.claims) != bool(options.runs):
        parser.error("--claims and --runs go together: claims are held against runs")
    # Of what stands in several files the first one counts.
    results = {r.name: r for r in reversed(read_results(options.real)) if r.size == options.size}
    found: dict[str, Found] = {}
    claims: Sequence[Claim] = ALL
    if options.claims:
        try:
            claims = read_claims(options.claims)
            found["--runs"] = of_scenes(options.runs, claims, str, "*-seed*")
        except UserError as error:
            parser.error(str(error))
    if options.scenes:
        found["--scenes"] = of_scenes(options.scenes) | of_sigma(options.scenes, config_on_scenes)
    if options.real:
        found["--real"] = of_real(list(results.values()))
    if options.real_runs:
        found["--real-runs"] = of_sigma(options.real_runs, config_on_photos)
    if not found:
        parser.error("name finished runs: --scenes, --real or --real-runs")
    for option, own in found.items():
        if not own:
            parser.error(f"{option}: there are no finished runs that a claim is about")
    if options.claims:
        columns = {"runs": found["--runs"]}
    else:
        photos = [own for name, own in found.items() if name != "--scenes"]
        merged = {key: values for own in photos for key, values in own.items()}
        columns = {"scenes": found.get("--scenes", {}), "real photos": merged}
    if options.latex:
        print("\n\n".join(own.latex() for own in tables(columns, claims)))
    else:
        print("\n".join(table(columns, claims)))


def table(columns: dict[str, Found], claims: Sequence[Claim] = ALL) -> Iterable[str]:
    """Lines in Markdown of a table for each paper."""
    for own in tables(columns, claims):
        yield from ("", f"**{own.title}**", "", f"| {' | '.join(own.header)} |")
        rule = ["---" if "difference" not in name else "---:" for name in own.header]
        yield f"| {' | '.join(rule)} |"
        yield from (f"| {' | '.join(row)} |" for row in own.rows)


def tables(columns: dict[str, Found], claims: Sequence[Claim] = ALL) -> Iterable[Table]:
    """A table for each paper: a row for each claim and metric that was run."""
    cells = {name: _cells(found) for name, found in columns.items()}
    header = ["claim", "metric"]
    for name in columns:
        header += [name, "difference", "detectable difference"]
    for paper in dict.fromkeys(claim.paper for claim in claims):
        rows = []
        for claim in (claim for claim in claims if claim.paper == paper):
            for metric in claim.metrics:
                if any((claim, metric) in own for own in cells.values()):
                    told = [own.get((claim, metric), _NOT_RUN) for own in cells.values()]
                    rows.append([claim.text, title_of(metric), *itertools.chain(*told)])
        if rows or claims is ALL:
            yield Table(paper, header, rows)


_NOT_RUN = ("not run", "", "")


def _cells(found: Found) -> dict[tuple[Claim, str], tuple[str, str, str]]:
    """Verdict, difference and power of each claim; the claims of a paper are one family of tests.

    What cannot be tested is not one of them: models that answer alike, and single trainings of
    which nothing tells what another seed changes.
    """
    cells = {
        key: ("not testable" if MINING in runs else "seeds unknown", f"({runs})", "")
        for key, (_, runs) in found.items()
    }
    known = {key: (own, runs) for key, (own, runs) in found.items() if own is not None}
    for paper in dict.fromkeys(claim.paper for claim, _ in known):
        family = {key: values for key, values in known.items() if key[0].paper == paper}
        apart = {key: estimate.difference() for key, (estimate, _) in family.items()}
        bounds = [
            (key, bound)
            for key, d in apart.items()
            if key[0].testable(d)
            for bound in key[0].bounds(key[1])
        ]
        raw = [family[key][0].above(bound).difference().p_value for key, bound in bounds]
        p_values: dict[tuple[Claim, str], tuple[float, ...]] = {}
        for (key, _), p_value in zip(bounds, holm(raw), strict=True):
            p_values[key] = (*p_values.get(key, ()), float(p_value))
        for key, (estimate, runs) in family.items():
            claim, metric = key
            smallest = estimate.smallest_effect(ALPHA / max(len(bounds), 1))
            verdict = claim.verdict(metric, apart[key], p_values.get(key, ()), smallest)
            cells[key] = verdict, f"{difference_text(apart[key])} ({runs})", number_text(smallest)
    return cells


def of_scenes(
    folder: Path,
    claims: Sequence[Claim] = CLAIMS,
    config_of: Callable[[str], str] = config_on_scenes,
    pattern: str = "scenes_*-seed*",
) -> Found:
    """Metrics of the finished runs of a folder; R-Precision is that by the truth, if known.

    Args:
        folder: The folder.
        claims: The claims.
        config_of: The config of a method that a claim names.
        pattern: Names of the folders of runs.
    """
    scenes = Scenes(folder, claims, config_of, pattern)
    found: Found = {}
    for claim in claims:
        left, right = scenes.runs(claim.left), scenes.runs(claim.right)
        same = claim.left.partition(BY)[0] == claim.right.partition(BY)[0]
        if same:
            shared = {run.folder for run in left} & {run.folder for run in right}
            left, right = ([run for run in own if run.folder in shared] for own in (left, right))
        if not left or not right:
            continue
        known = set.intersection(*(scenes.kinds(run) for run in (*left, *right)))
        count = f"{len(left)}" if len(left) == len(right) else f"{len(left)} and {len(right)}"
        if claim.same_mining:
            first, second = (mining_of(config_of(name)) for name in (claim.left, claim.right))
            if first != second:
                reason = None, f"{MINING}{first} and {second}"
                found |= {(claim, metric): reason for metric in claim.metrics}
                continue
        for metric in claim.metrics:
            if metric.startswith("truth_") and "truth" not in known:
                continue
            apart = scenes.mean(left, metric) - scenes.mean(right, metric)
            told = f"seeds: {count}{', queries alone' if same else ''}"
            found[claim, metric] = (
                apart if same else scenes.with_seeds(apart, left, right, metric),
                told,
            )
    return found


def mining_of(config: str) -> str:
    """The negatives of the hinge losses of a packaged config, such as `hardest`."""
    losses = load_config(find_config(config)).objective
    found = [loss.options().get("mining", "hardest") for loss in losses if loss.name in HINGES]
    return " and ".join(found) or "none"


def of_sigma(folder: Path, config_of: Callable[[str], str]) -> Found:
    """Properties of sigma in the reports of finished runs.

    Args:
        folder: The folder that holds the runs.
        config_of: The config of a method.
    """
    found: Found = {}
    for claim in OF_SIGMA:
        reports = sorted(folder.glob(f"{config_of(claim.left)}-seed*/evaluation/test"))
        for metric in claim.metrics if reports else ():
            values = sigma_claims.over_runs(metric, reports)
            found[claim, metric] = values, f"seeds: {len(reports)}"
    return found


class Scenes:
    """Finished runs.

    Args:
        folder: The folder that holds them.
        claims: The claims that are about them.
        config_of: The config of a method that a claim names.
        pattern: Names of the folders of runs.
    """

    def __init__(
        self,
        folder: Path,
        claims: Sequence[Claim] = CLAIMS,
        config_of: Callable[[str], str] = config_on_scenes,
        pattern: str = "scenes_*-seed*",
    ) -> None:
        files = folder.glob(f"{pattern}/evaluation/test/metrics.json")
        self._config_of = config_of
        sides = {side.partition(BY)[0] for claim in claims for side in (claim.left, claim.right)}
        self._claimed = {config_of(method) for method in sides}
        runs = sorted(path.parents[2] for path in files)
        self._methods = read_runs(runs)["test"] if runs else {}
        self._resampled: dict[tuple[Path, str], dict[str, Resampled]] = {}

    def runs(self, name: str) -> list[RunResult]:
        """The runs of a method, as they are or by another matcher, which comes first then."""
        method, _, other = name.partition(BY)
        runs = self._methods.get(self._config_of(method), [])
        if not other:
            return runs
        found = []
        for run in runs:
            matcher = f"{run.matcher} + {other}" if other in RERANKERS else other
            found.append(replace(run, figures={"matchers": {matcher: {}}}))
        return [run for run in found if run.queries.values]

    def kinds(self, run: RunResult) -> set[str]:
        """The kinds of judgements that a run was measured against."""
        return set(run.queries.values)

    def mean(self, runs: Sequence[RunResult], metric: str) -> Estimate:
        """The mean over runs of a metric in percent, over the queries."""
        name = metric.removeprefix("truth_")
        by_truth = metric == "truth_rsum" or metric in R_PRECISION
        value, resampled = 0.0, np.zeros(RESAMPLES)
        for run in runs:
            key = run.folder, run.matcher
            if key not in self._resampled:
                self._resampled[key] = resample({run.method: [run]})
            known = self._resampled[key]
            kind = known["truth" if by_truth and "truth" in known else "metrics"]
            (estimate,) = kind[name].values()
            value += 100 * estimate.value / len(runs)
            resampled += 100 * estimate.resampled / len(runs)
        return Estimate(value, resampled)

    def with_seeds(
        self, apart: Estimate, left: Sequence[RunResult], right: Sequence[RunResult], metric: str
    ) -> Estimate | None:
        """A difference with what other seeds change; None where nothing is known of that.

        Their variance is that of the methods of a family, whose names begin alike. It is not
        borrowed from other families, as some vary more than others. Methods that no claim names do
        not count.
        """
        seeds: list[Seeds] = []
        for family in dict.fromkeys(family_of(runs[0].method) for runs in (left, right)):
            squares, freedom = self._deviations(metric, family)
            if not freedom:
                return None
            counts = [len(own) for own in (left, right) if family_of(own[0].method) == family]
            # Both sides of one family share one estimate of the variance.
            seeds.append(pooled_seeds(squares, freedom, sum(1 / count for count in counts)))
        return replace(apart, seeds=tuple(seeds))

    def _deviations(self, metric: str, family: str) -> tuple[float, int]:
        """The squares of deviations from the mean of each method, and degrees of freedom."""
        squares, freedom = 0.0, 0
        for method, runs in self._methods.items():
            if method in self._claimed and family == family_of(method):
                each = np.array([self.mean([run], metric).value for run in runs])
                squares += float(((each - each.mean()) ** 2).sum())
                freedom += len(runs) - 1
        return squares, freedom


def pooled_seeds(squares: float, freedom: int, share: float) -> Seeds:
    """The variance over seeds.

    Args:
        squares: The squares of deviations that were seen.
        freedom: Their degrees of freedom.
        share: The part of the variance of one run that is left in what is tested.
    """
    return Seeds(squares / freedom * share, 0.0, float(freedom))


def family_of(method: str) -> str:
    """The methods with which a config shares its variance over seeds, such as `pcme`."""
    return method.removeprefix("scenes_").partition("_")[0].removesuffix("pp")


def of_real(results: Sequence[Result]) -> Found:
    """Metrics of the results on real photos, by the annotated pairs."""
    found: Found = {}
    for claim in CLAIMS:
        for metric in claim.metrics:
            if metric.startswith("truth_"):
                continue
            left = _queries(results, claim.left, metric)
            right = _queries(results, claim.right, metric)
            if folds := sorted(left.keys() & right.keys()):
                values = _apart([left[fold] for fold in folds], [right[fold] for fold in folds])
                seeds = _of_real_seeds(results, (claim.left, claim.right), metric, folds)
                apart = None if seeds is None else Estimate(float(values[0]), values[1:], seeds)
                found[claim, metric] = apart, f"folds: {len(folds)}"
    return found


def _of_real_seeds(
    results: Sequence[Result], sides: tuple[str, str], metric: str, folds: Sequence[int]
) -> tuple[Seeds, ...] | None:
    """The variance over seeds of the means of two methods with random starts; None if unknown.

    Their variance is that within the folds of the methods of a family. What begins at CCA hardly
    leaves it, whatever the seed.
    """
    random = [side for side in sides if side in FROM_SCRATCH]
    seeds: list[Seeds] = []
    for family in dict.fromkeys(map(family_of, random)):
        squares, freedom, share = 0.0, 0, 0.0
        for other in (name for name in FROM_SCRATCH if family_of(name) == family):
            count = 0
            for fold, runs in _runs_of_folds(results, other, metric).items():
                if fold in folds:
                    each = np.array([np.nanmean(i) + np.nanmean(c) for i, c in runs])
                    squares += float(((each - each.mean()) ** 2).sum())
                    freedom += len(runs) - 1
                    count += len(runs)
            share += sides.count(other) / count if count else 0.0
        if not freedom:
            return None
        seeds.append(pooled_seeds(squares, freedom, share))
    return tuple(seeds)


def _apart(left: list[Sides], right: list[Sides]) -> np.ndarray:
    """The difference over all folds, then draws of photos, each with its captions."""
    images, captions = (
        np.concatenate([a[side] - b[side] for a, b in zip(left, right, strict=True)])
        for side in (0, 1)
    )
    value = np.nanmean(images) + np.nanmean(captions)
    return np.concatenate([[value], resampled_photos(images, captions)])


def _queries(results: Sequence[Result], name: str, metric: str) -> dict[int, Sides]:
    """Contributions of every image and caption to a metric per fold, in percent, mean of seeds."""
    of_folds = _runs_of_folds(results, name, metric)
    return {fold: mean_of_runs(runs) for fold, runs in of_folds.items()}


def _runs_of_folds(results: Sequence[Result], name: str, metric: str) -> dict[int, list[Sides]]:
    """Contributions of every image and caption to a metric, per fold and run."""
    method, _, other = name.partition(BY)
    config = config_on_photos(method)
    of_folds: dict[int, list[Sides]] = {}
    for result in results:
        if result.method != config:
            continue
        if (own := _of_result(result, metric, other)) is not None:
            of_folds.setdefault(result.fold, []).append(own)
    return of_folds


def _of_result(result: Result, metric: str, other: str) -> Sides | None:
    """None where a result does not have it: those of an older version have recalls alone."""
    side, _, name = metric.partition("_")
    names = [f"recall_{k}" for k in (1, 5, 10)] if metric == "rsum" else [name]
    several = [found for each in names if (found := _measure(result, each, other)) is not None]
    if len(several) < len(names):
        return None
    images, captions = (
        100.0 * np.sum(values, axis=0, dtype=np.float64) for values in zip(*several, strict=True)
    )
    if side == "i2t":
        return images, np.zeros_like(captions)
    return (np.zeros_like(images), captions) if side == "t2i" else (images, captions)


def _measure(result: Result, name: str, other: str) -> Sides | None:
    if other:
        return result.measures.get(f"{other}_{name}")
    if name.startswith("recall_"):
        images, captions = (side <= int(name.removeprefix("recall_")) for side in result.ranks)
        return images, captions
    return result.measures.get(name)


def difference_text(apart: Difference) -> str:
    """A difference with its interval, such as `+1.5 [+0.2, +2.8]`."""
    digits = 1 if max(abs(apart.low), abs(apart.high)) >= 1 else 2
    return f"{apart.value:+.{digits}f} [{apart.low:+.{digits}f}, {apart.high:+.{digits}f}]"


def number_text(value: float) -> str:
    """A number with one digit after the point, or two below 1."""
    return f"{value:.1f}" if value >= 1 else f"{value:.2f}"


if __name__ == "__main__":
    main()
