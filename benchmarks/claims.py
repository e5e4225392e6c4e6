"""What the papers claim, held against runs on the scenes and on real photos.

A claim says that one method has more of a metric than another, or not more by anything that counts.
Runs on the scenes are those of `main.py compare` (a folder that holds them, `--scenes`), real
photos the results of benchmarks/real_features.py (`--real`). A difference has a 95 % interval. On
the scenes it is over queries and seeds: what another seed changes is estimated over methods of a
family that have several, so that it counts where a method has one. Of the same trainings, as they
are and scored otherwise, it is over queries alone. On real photos it is over photos, and over
seeds where training begins at random. A claim is decided where Holm's correction for all of its
column leaves a p-value below 0.05.

What PCME's sigma is said to tell is held against the reports of finished runs (sigma_claims.py),
on real photos against those of a folder of runs of csv_pretrained (`--real-runs`).

    python benchmarks/claims.py --scenes saved_models --real data/real_features/results.jsonl
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import sigma_claims
from paper_claims import (
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

from keras_xmr.comparison.resampling import Resampled, resample
from keras_xmr.comparison.results import RunResult, read_runs
from keras_xmr.metrics.bootstrap import RESAMPLES, Difference, difference, holm

Found = dict[tuple[Claim, str], tuple[np.ndarray, str]]
"""Of a claim and a metric the difference in percent, then draws of it, and of what runs it is."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints tables in Markdown."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scenes", type=Path, help="a folder that holds finished runs")
    parser.add_argument("--real", type=Path, action="append", default=[], help="finished results")
    parser.add_argument(
        "--real-runs", type=Path, help="a folder that holds finished runs of photos"
    )
    parser.add_argument("--size", type=int, default=500, help="how many real photos trained")
    options = parser.parse_args(arguments)
    # Of what stands in several files the first one counts.
    results = {r.name: r for r in reversed(read_results(options.real)) if r.size == options.size}
    found: dict[str, Found] = {}
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
    scenes = found.pop("--scenes", {})
    photos = {key: values for own in found.values() for key, values in own.items()}
    print("\n".join(table({"scenes": scenes, "real photos": photos})))


def table(columns: dict[str, Found]) -> Iterable[str]:
    """Lines of a table for each paper: a row for each claim and metric that was run."""
    cells: dict[str, dict[tuple[Claim, str], str]] = {}
    for name, found in columns.items():
        tested = {key: _tested(*key, values) for key, (values, _) in found.items()}
        corrected = holm([p_value for _, p_value in tested.values()])
        cells[name] = {
            key: f"{key[0].verdict(key[1], apart, p)} | {_text(apart)} ({found[key][1]})"
            for (key, (apart, _)), p in zip(tested.items(), corrected, strict=True)
        }
    heads = " | ".join(f"{name} | difference" for name in columns)
    claims = (*CLAIMS, *OF_SIGMA)
    for paper in dict.fromkeys(claim.paper for claim in claims):
        yield from ("", f"**{paper}**", "", f"| claim | metric | {heads} |")
        yield "| --- | --- |" + " --- | ---: |" * len(columns)
        for claim in (claim for claim in claims if claim.paper == paper):
            for metric in claim.metrics:
                if any((claim, metric) in own for own in cells.values()):
                    row = [own.get((claim, metric), "not run | ") for own in cells.values()]
                    yield f"| {claim.text} | {title_of(metric)} | {' | '.join(row)} |"


def _tested(claim: Claim, metric: str, values: np.ndarray) -> tuple[Difference, float]:
    """A difference, and the p-value of the claim."""
    bound = claim.bound(metric)
    tested = difference(float(values[0]) - bound, values[1:] - bound)
    return difference(float(values[0]), values[1:]), tested.p_value


def of_scenes(folder: Path) -> Found:
    """What the finished runs of a folder have; R-Precision is that by the truth."""
    scenes = Scenes(folder)
    found: Found = {}
    for claim in CLAIMS:
        left, right = scenes.runs(claim.left), scenes.runs(claim.right)
        same = claim.left.partition(BY)[0] == claim.right.partition(BY)[0]
        if same:
            shared = {run.folder for run in left} & {run.folder for run in right}
            left, right = ([run for run in own if run.folder in shared] for own in (left, right))
        if not left or not right:
            continue
        count = f"{len(left)}" if len(left) == len(right) else f"{len(left)} and {len(right)}"
        for metric in claim.metrics:
            values = scenes.means(left, metric) - scenes.means(right, metric)
            if not same:
                values[1:] += scenes.of_seeds(left, metric, 1) - scenes.of_seeds(right, metric, 2)
            found[claim, metric] = values, f"seeds: {count}{', queries alone' if same else ''}"
    return found


def of_sigma(folder: Path, config_of: Callable[[str], str]) -> Found:
    """What the reports of finished runs say of sigma.

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
    """Finished runs on the scenes.

    Args:
        folder: The folder that holds them.
    """

    def __init__(self, folder: Path) -> None:
        files = folder.glob("scenes_*-seed*/evaluation/test/metrics.json")
        runs = sorted(path.parents[2] for path in files)
        self._methods = read_runs(runs)["test"] if runs else {}
        self._resampled: dict[tuple[Path, str], dict[str, Resampled]] = {}
        sides = {side.partition(BY)[0] for claim in CLAIMS for side in (claim.left, claim.right)}
        self._claimed = {config_on_scenes(method) for method in sides}

    def runs(self, name: str) -> list[RunResult]:
        """The runs of a method, as they are or by another matcher, which comes first then."""
        method, _, other = name.partition(BY)
        runs = self._methods.get(config_on_scenes(method), [])
        if not other:
            return runs
        found = []
        for run in runs:
            matcher = f"{run.matcher} + {other}" if other in RERANKERS else other
            found.append(replace(run, figures={"matchers": {matcher: {}}}))
        return [run for run in found if "truth" in run.queries.values]

    def means(self, runs: Sequence[RunResult], metric: str) -> np.ndarray:
        """The mean over runs of a metric in percent, then of draws of the queries."""
        name = metric.removeprefix("truth_")
        by_truth = metric == "truth_rsum" or metric in R_PRECISION
        total = np.zeros(1 + RESAMPLES)
        for run in runs:
            key = run.folder, run.matcher
            if key not in self._resampled:
                kinds = resample({run.method: [run]})
                self._resampled[key] = {kind.judgements: kind for kind in kinds}
            kind = self._resampled[key]["truth" if by_truth else "metrics"]
            total[0] += 100 * kind.observed[name][0] / len(runs)
            total[1:] += 100 * kind.resampled[name][0] / len(runs)
        return total

    def of_seeds(self, runs: Sequence[RunResult], metric: str, seed: int) -> np.ndarray:
        """Draws of what other seeds change in the mean of runs of one method.

        Their standard deviation is that of methods of its family, whose names begin alike, or of
        all methods where these have too few seeds: some families vary more than others. Methods
        that no claim names do not count.
        """
        family = _family(runs[0].method)
        squares, freedom = self._deviations(metric, family)
        if freedom < _LEAST_FREEDOM:
            squares, freedom = self._deviations(metric, "")
        return _drawn(squares, freedom, len(runs), seed)

    def _deviations(self, metric: str, family: str) -> tuple[float, int]:
        """The squares of deviations from the mean of each method, and degrees of freedom."""
        squares, freedom = 0.0, 0
        for method, runs in self._methods.items():
            if method in self._claimed and family in ("", _family(method)):
                each = np.array([self.means([run], metric)[0] for run in runs])
                squares += float(((each - each.mean()) ** 2).sum())
                freedom += len(runs) - 1
        return squares, freedom


def _drawn(squares: float, freedom: int, runs: int, seed: int) -> np.ndarray:
    """Draws of what other seeds change in the mean of some runs.

    Args:
        squares: The squares of deviations that were seen.
        freedom: Their degrees of freedom; of none nothing is known, and nothing changes.
        runs: How many runs the mean is of.
        seed: Seed of the draws.
    """
    if not freedom:
        return np.zeros(RESAMPLES)
    drawn = np.random.default_rng(seed).standard_t(freedom, RESAMPLES)
    found: np.ndarray = drawn * np.sqrt(squares / freedom / runs)
    return found


_LEAST_FREEDOM = 3


def _family(method: str) -> str:
    return method.removeprefix("scenes_").partition("_")[0].removesuffix("pp")


def of_real(results: Sequence[Result]) -> Found:
    """What the results on real photos have, by the annotated pairs."""
    found: Found = {}
    for claim in CLAIMS:
        for metric in claim.metrics:
            if metric.startswith("truth_"):
                continue
            left = _queries(results, claim.left, metric)
            right = _queries(results, claim.right, metric)
            if folds := sorted(left.keys() & right.keys()):
                values = _apart([left[fold] for fold in folds], [right[fold] for fold in folds])
                values[1:] += _of_real_seeds(results, claim.left, metric, folds, 1)
                values[1:] -= _of_real_seeds(results, claim.right, metric, folds, 2)
                found[claim, metric] = values, f"folds: {len(folds)}"
    return found


def _of_real_seeds(
    results: Sequence[Result], method: str, metric: str, folds: Sequence[int], seed: int
) -> np.ndarray:
    """Draws of what other seeds change in the mean of the runs of a method that begins at random.

    Their standard deviation is that within the folds of all such methods. What begins at CCA hardly
    leaves it, whatever the seed.
    """
    if method not in FROM_SCRATCH:
        return np.zeros(RESAMPLES)
    squares, freedom, count = 0.0, 0, 0
    for other in FROM_SCRATCH:
        for fold, runs in _runs_of_folds(results, other, metric).items():
            if fold in folds:
                each = np.array([np.nanmean(images) + np.nanmean(caps) for images, caps in runs])
                squares += float(((each - each.mean()) ** 2).sum())
                freedom += len(runs) - 1
                count += len(runs) if other == method else 0
    return _drawn(squares, freedom, count, seed)


def _apart(left: list[Sides], right: list[Sides]) -> np.ndarray:
    """The difference over all folds, then draws of photos, each with its captions."""
    images, captions = (
        np.concatenate([a[side] - b[side] for a, b in zip(left, right, strict=True)])
        for side in (0, 1)
    )
    value = np.nanmean(images) + np.nanmean(captions)
    return np.concatenate([[value], resampled_photos(images, captions)])


def _queries(results: Sequence[Result], name: str, metric: str) -> dict[int, Sides]:
    """Of each fold what every image and caption adds to a metric, in percent, mean of seeds."""
    of_folds = _runs_of_folds(results, name, metric)
    return {fold: mean_of_runs(runs) for fold, runs in of_folds.items()}


def _runs_of_folds(results: Sequence[Result], name: str, metric: str) -> dict[int, list[Sides]]:
    """Of each fold, and each run there, what every image and caption adds to a metric."""
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


def _text(apart: Difference) -> str:
    digits = 1 if max(abs(apart.low), abs(apart.high)) >= 1 else 2
    return f"{apart.value:+.{digits}f} [{apart.low:+.{digits}f}, {apart.high:+.{digits}f}]"


if __name__ == "__main__":
    main()
