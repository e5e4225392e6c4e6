"""How often intervals of tables and reports hold the truth, by simulation.

Intervals of means, differences and seeds are in keras_xmr/metrics/test_coverage.py; here are the
kinds that metrics of queries without judgements, sums of both directions, correlations, gains and
proportions have.
"""

from __future__ import annotations

import numpy as np
import pytest
from benchmark_modules import benchmark
from scipy.special import expit
from scipy.stats import spearmanr

from keras_xmr.experiments.evaluation.uncertainty import assessment, probes
from keras_xmr.experiments.evaluation.uncertainty.assessment import (
    correlation_interval,
    rank_correlation,
)
from keras_xmr.metrics.bootstrap import resampled_means

hardest_negative = benchmark("hardest_negative", "studies")

TAILS = [0.025, 0.975]


def test_a_metric_of_queries_that_people_judged(random):
    """Captions without a relevant judged photo have no value, and counts differ between photos."""
    photos, trials = 80, 2_000
    owner = np.repeat(np.arange(photos), 3)
    hard = random.normal(size=(photos, trials))
    values = hard[owner] + random.normal(size=(len(owner), trials))
    values[random.random(values.shape) < 0.5] = np.nan
    drawn = resampled_means(values, owner, photos, 200)
    low, high = np.quantile(drawn, TAILS, axis=0)
    assert 0.92 <= np.mean((low <= 0) & (high >= 0)) <= 0.97


@pytest.mark.slow
@pytest.mark.parametrize("slope", [0.0, 1.0])
def test_a_rank_correlation_in_closed_form(random, slope):
    """Of sigma with R@1, of which there are but two values."""
    sigma, right = _answers(random, 100_000, slope)
    truth, trials, hits = spearmanr(sigma, right).statistic if slope else 0.0, 600, 0
    for _ in range(trials):
        low, high = correlation_interval(rank_correlation(*_answers(random, 80, slope)), 80)
        hits += low <= truth <= high
    assert 0.92 <= hits / trials <= 0.97


@pytest.mark.slow
def test_the_mean_of_a_bin_of_queries(random, monkeypatch):
    """Of the plots of metric against uncertainty; five captions of a photo are not independent."""
    monkeypatch.setattr(assessment, "_RESAMPLES", 200)
    photos, trials, groups, hits = 60, 200, np.repeat(np.arange(60), 5), []
    for _ in range(trials):
        unsure = random.normal(size=5 * photos)
        metric = random.normal(size=photos)[groups] + random.normal(size=5 * photos)
        low, high = assessment.bin_intervals(unsure, metric, groups, 3)
        hits.append((low <= 0) & (high >= 0))
    assert 0.92 <= np.mean(hits) <= 0.97


@pytest.mark.parametrize("draws", [2, 3, 8])
def test_a_mean_of_independent_draws(random, hardest_negative, draws):
    """Differences between trainings with the same seed, a few seeds of each."""
    gaps = random.normal(size=(2_000, draws))
    hits = [abs(row.mean()) <= hardest_negative.half_width(row) for row in gaps]
    assert 0.92 <= np.mean(hits) <= 0.97


def test_the_growth_of_sigma(random):
    """A geometric mean over items, each of which grows by its own, skewed factor."""
    trials, hits = 400, 0
    for _ in range(trials):
        growth = 0.1 * random.exponential(size=100)
        steps = iter(np.array([0, *probes.SHARES[1:]])[:, None, None] * growth[:, None])
        grown = probes._occlude(lambda share, s=steps: {"log_variance": 2 * next(s)}, None)
        hits += grown.low[-1] <= np.exp(0.07) <= grown.high[-1]
    assert 0.92 <= hits / trials <= 0.97


def _answers(random, count: int, slope: float) -> tuple[np.ndarray, np.ndarray]:
    """Uncertainties, and whether the first answer is right: less often if uncertain."""
    unsure = random.normal(size=count)
    return unsure, (random.random(count) < expit(-slope * unsure)).astype(float)
