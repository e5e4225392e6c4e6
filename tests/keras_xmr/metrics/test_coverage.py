"""How often the printed intervals hold the truth, by simulation.

A metric of a query is that of the query, of the seed, and of both together. Every kind of interval
is held to 92 to 97 %: over photos with their captions, of one system and of a difference, and over
seeds and photos with 2, 3 and 4 seeds, where another seed changes nothing, as much as other
photos, or three times as much.
"""

from __future__ import annotations

import numpy as np
import pytest

from keras_xmr.metrics.bootstrap import Estimate, mean_of_runs, resampled_means

pytestmark = pytest.mark.slow

PHOTOS, CAPTIONS = 60, 2
TRIALS = 1_000
RESAMPLES = 200
OWNER = np.repeat(np.arange(PHOTOS), CAPTIONS)
ERROR = np.sqrt((0.5 + 0.7**2 / CAPTIONS) / PHOTOS)
"""Standard error of one run by the photos."""


def system(random, hard: np.ndarray, seeds: float, runs: int) -> np.ndarray:
    """A metric of every caption (captions, trials, runs), 0 on the average.

    Captions of a photo are alike; seeds differ by so much, and on each photo and caption too.
    """
    shape = (PHOTOS, TRIALS, runs)
    own = 0.5 * normal(random, (PHOTOS, TRIALS, 1)) + 0.5 * normal(random, shape)
    noise = 0.7 * normal(random, (len(OWNER), TRIALS, runs))
    return (hard + own)[OWNER] + noise + seeds * normal(random, (1, TRIALS, runs))


def normal(random, shape: tuple[int, ...]) -> np.ndarray:
    return random.standard_normal(shape, np.float32)


def estimates(values: np.ndarray) -> list[Estimate]:
    """The mean over the runs in each trial."""
    flat = values.reshape(len(values), -1)
    drawn = resampled_means(flat, OWNER, PHOTOS, RESAMPLES).reshape(-1, *values.shape[1:])
    means = values.mean(axis=0)
    return [mean_of_runs(means[trial], drawn[:, trial]) for trial in range(TRIALS)]


def coverage(random, runs: tuple[int, ...], share: float) -> float:
    """How often the interval of one system, or of the difference of two, holds the truth.

    Args:
        random: Random numbers.
        runs: Runs of each system.
        share: What another seed changes, in `ERROR`.
    """
    hard = normal(random, (PHOTOS, TRIALS, 1)) if len(runs) > 1 else 0.0
    first, *others = (estimates(system(random, hard, share * ERROR, count)) for count in runs)
    if others:
        first = [left - right for left, right in zip(first, others[0], strict=True)]
    if max(runs) > 1:  # As `difference` has it, without the p-value, which takes longer.
        return float(np.mean([abs(own.value) <= own.half_width(0.05) for own in first]))
    return float(np.mean([own.low <= 0 <= own.high for own in (o.difference() for o in first)]))


@pytest.mark.parametrize("runs", [(1,), (1, 1)])
def test_intervals_over_photos(random, runs):
    assert 0.92 <= coverage(random, runs, 0.0) <= 0.97


@pytest.mark.parametrize(
    ("runs", "share"), [((2,), 1.0), ((4,), 3.0), ((2, 2), 0.0), ((2, 2), 3.0), ((3, 3), 1.0)]
)
def test_intervals_over_seeds_and_photos(random, runs, share):
    assert 0.92 <= coverage(random, runs, share) <= 0.97
