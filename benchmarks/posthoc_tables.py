"""Tables of what benchmarks/posthoc_uncertainty.py has found."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

from keras_xmr.evaluation.uncertainty.assessment import BINS
from keras_xmr.metrics.bootstrap import LEVEL

SIDES = {"caption": "captions", "image": "photos"}
_RESAMPLES = 2000
_NEWTON_STEPS = 25

Sides = dict[str, np.ndarray]
"""A number of every "image" and of every "caption" of a split, as queries."""


@dataclass(frozen=True)
class Result:
    """Uncertainties of the queries of one fold by one method.

    Attributes:
        method: What it is called.
        fold: The number of the fold.
        seed: The seed.
        unsure: How unsure it is, by "dev" and "test".
        right: Whether the first answer is right, likewise.
    """

    method: str
    fold: int
    seed: int
    unsure: dict[str, Sides]
    right: dict[str, Sides]

    @property
    def key(self) -> tuple[str, int, int]:
        """Its key."""
        return self.method, self.fold, self.seed

    def as_json(self) -> str:
        """Its line in a file of results."""
        unsure = {
            s: {k: np.round(v, 7).tolist() for k, v in p.items()} for s, p in self.unsure.items()
        }
        right = {
            s: {k: v.astype(int).tolist() for k, v in p.items()} for s, p in self.right.items()
        }
        name = {"method": self.method, "fold": self.fold, "seed": self.seed}
        return json.dumps(name | {"unsure": unsure, "right": right})


def read_results(path: Path) -> list[Result]:
    """The runs of a file, which may not be there yet."""
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return [_result(json.loads(line)) for line in lines]


def _result(line: dict[str, Any]) -> Result:
    unsure, right = (
        {
            split: {k: np.asarray(v, float) for k, v in sides.items()}
            for split, sides in line[part].items()
        }
        for part in ("unsure", "right")
    )
    return Result(line["method"], line["fold"], line["seed"], unsure, right)


def table_lines(results: Sequence[Result], against: str) -> Iterator[str]:
    """Lines of a table in Markdown: a row a method, the best for captions first.

    Args:
        results: All results.
        against: The method that gains are set beside.
    """
    draws = {method: _drawn(own) for method, own in _by_method(results).items()}
    titles = ["AURC gain", f"to the {against}", "correlation with R@1", "ECE"]
    heads = [f"{side}: {title}" for side in SIDES.values() for title in titles]
    yield f"| | {' | '.join(heads)} |"
    yield "| --- |" + " ---: |" * 8
    for method in sorted(draws, key=lambda name: -draws[name][0, 0, 0]):
        others = None if method == against else draws.get(against)
        cells = [cell for side in range(2) for cell in _cells(draws[method], others, side)]
        yield f"| {_label(method)} | {' | '.join(cells)} |"


def _label(method: str) -> str:
    return f"`{method}`" if "_" in method else method


def _cells(draws: np.ndarray, others: np.ndarray | None, side: int) -> list[str]:
    """Figures of one side, each with its interval, of draws whose first is the value."""
    gain, correlation, error = draws[side]
    apart = "" if others is None else _with_interval(gain - others[side, 0])
    # Resamples of a calibration error, which is biased upwards, make no interval that covers.
    return [_with_interval(gain), apart, _with_interval(correlation), f"{error[0]:.3f}"]


def _with_interval(draws: np.ndarray) -> str:
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(draws[1:], [tail, 1 - tail])
    return f"{draws[0]:+.2f} [{low:+.2f}, {high:+.2f}]"


def _by_method(results: Sequence[Result]) -> dict[str, list[Result]]:
    found: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        found[result.method].append(result)
    return found


def _drawn(results: Sequence[Result]) -> np.ndarray:
    """Figures (2, 3, 1 + R) of all runs; the first are of the photos as they are."""
    counts = [_draws(result) for result in results]
    return np.stack([_of_side(results, counts, side) for side in SIDES])


def _draws(result: Result) -> np.ndarray:
    """The count of each photo (1 + R, photos): once, and then in resamples.

    They are the same in a fold for every method, so that differences are paired.
    """
    photos = len(result.right["test"]["image"])
    random = np.random.default_rng([7, result.fold])
    counts = random.multinomial(photos, np.full(photos, 1 / photos), _RESAMPLES)
    return np.concatenate([np.ones((1, photos)), counts])


def _of_side(results: Sequence[Result], counts: Sequence[np.ndarray], side: str) -> np.ndarray:
    """Gains and correlations are means over runs; calibration is of the queries of all runs."""
    parts = [_queries(*each, side) for each in zip(results, counts, strict=True)]
    unsure, right, logits, weights = zip(*parts, strict=True)
    gains = [gain(*each) for each in zip(unsure, right, weights, strict=True)]
    correlations = [correlation(*each) for each in zip(unsure, right, weights, strict=True)]
    whole = np.concatenate(logits), np.concatenate(right), np.concatenate(weights, axis=1)
    return np.stack([np.mean(gains, axis=0), np.mean(correlations, axis=0), error(*whole)])


def _queries(result: Result, counts: np.ndarray, side: str) -> tuple[np.ndarray, ...]:
    """Uncertainties of the test queries, who is right, log-odds of that, and draws."""
    (dev, dev_right), (test, right) = (
        (result.unsure[split][side], result.right[split][side]) for split in ("dev", "test")
    )
    slope, offset = calibrated(dev, dev_right)
    weights = np.repeat(counts, len(test) // counts.shape[1], axis=1)
    return test, right, slope * test + offset, weights


def calibrated(unsure: np.ndarray, right: np.ndarray) -> tuple[float, float]:
    """Slope and offset that make log-odds of being right of an uncertainty (Platt 1999).

    Args:
        unsure: Uncertainties (queries,).
        right: 1 for a right answer, 0 for a wrong one (queries,).
    """
    mean, scale = unsure.mean(), max(float(unsure.std()), 1e-12)
    inputs = np.stack([(unsure - mean) / scale, np.ones(len(unsure))], axis=1)
    weights = np.zeros(2)
    for _ in range(_NEWTON_STEPS):
        probability = expit(inputs @ weights)
        curvature = (inputs.T * (probability * (1 - probability))) @ inputs + 1e-3 * np.eye(2)
        weights += np.linalg.solve(curvature, inputs.T @ (right - probability) - 1e-3 * weights)
    return weights[0] / scale, weights[1] - weights[0] * mean / scale


def gain(unsure: np.ndarray, right: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The part of the way from a random order to an oracle's (R,); see the report card.

    Args:
        unsure: Uncertainties (queries,).
        right: 1 for a right answer, 0 for a wrong one (queries,).
        weights: How often each query was drawn (R, queries).
    """
    wrong = 1 - right
    random = weights @ wrong / weights.sum(axis=1)
    best = _area(wrong, wrong, weights)
    return (random - _area(unsure, wrong, weights)) / np.maximum(random - best, 1e-12)


def _area(unsure: np.ndarray, wrong: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Mean share of wrong answers over all shares of queries that are answered."""
    order = np.argsort(unsure, kind="stable")
    answered = weights[:, order]
    risk = np.cumsum(answered * wrong[order], axis=1) / np.maximum(np.cumsum(answered, axis=1), 1)
    return np.sum(answered * risk, axis=1) / answered.sum(axis=1)


def correlation(unsure: np.ndarray, right: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Spearman's with being right (R,), whose ranks there are but two numbers; see `gain`."""
    order = np.argsort(unsure, kind="stable")
    drawn, right = weights[:, order], right[order]
    ranks = np.cumsum(drawn, axis=1) - 0.5 * drawn
    total = drawn.sum(axis=1, keepdims=True)
    ranks = ranks - (drawn * ranks).sum(axis=1, keepdims=True) / total
    others = right - drawn @ right[:, None] / total
    spread = np.sqrt((drawn * ranks**2).sum(axis=1) * (drawn * others**2).sum(axis=1))
    return (drawn * ranks * others).sum(axis=1) / np.maximum(spread, 1e-12)


def error(logits: np.ndarray, right: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Expected calibration error (R,) of log-odds of being right; see `gain`."""
    probability = expit(logits)
    place = np.minimum((probability * BINS).astype(int), BINS - 1)
    gaps = (place[:, None] == np.arange(BINS)) * (probability - right)[:, None]
    return np.abs(weights @ gaps).sum(axis=1) / weights.sum(axis=1)
