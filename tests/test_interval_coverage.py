"""How often intervals of tables and reports hold the truth, by simulation.

Those of means, differences and seeds are in keras_xmr/metrics/test_coverage.py; here are the kinds
that metrics of queries without judgements, sums of both directions, correlations, gains and
proportions have.
"""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest
from benchmark_modules import benchmark
from scipy.special import expit
from scipy.stats import spearmanr

from keras_xmr.evaluation.uncertainty import assessment, probes
from keras_xmr.evaluation.uncertainty.assessment import (
    correlation_interval,
    rank_correlation,
)
from keras_xmr.metrics.bootstrap import resampled_means

answer_sets = benchmark("answer_sets")
intervals = benchmark("intervals", "studies")
metric_ranking = benchmark("metric_ranking", "studies")
real_tables = benchmark("real_tables")
sigma_claims = benchmark("sigma_claims")

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
def test_the_sum_of_both_directions(random, real_tables, monkeypatch):
    few = functools.partial(resampled_means, resamples=200)
    monkeypatch.setattr(real_tables, "resampled_means", few)
    photos, trials, hits = 60, 500, 0
    for _ in range(trials):
        hard = random.normal(size=photos)
        images = hard + random.normal(size=photos)
        captions = np.repeat(hard, 2) + random.normal(size=2 * photos)
        low, high = np.quantile(real_tables.resampled_photos(images, captions), TAILS)
        hits += low <= 0 <= high
    assert 0.92 <= hits / trials <= 0.97


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
def test_a_resampled_rank_correlation_and_a_partial_one(random, intervals, monkeypatch):
    monkeypatch.setattr(intervals, "RESAMPLES", 100)
    truth, trials = 6 / np.pi * np.arcsin(0.5 / 2), 250
    hits = np.zeros(2)
    for _ in range(trials):
        first, other, noise = random.normal(size=(3, 200))
        figures = intervals.correlations(
            {"first": first, "other": other}, 0.5 * first + np.sqrt(0.75) * noise
        )
        rest = intervals.correlations({"first": noise, "other": other}, other + first)
        figure, partial = figures["first"], rest["first, others fixed"]
        hits += [figure.low <= truth <= figure.high, partial.low <= 0 <= partial.high]
    assert all((hits / trials >= 0.92) & (hits / trials <= 0.97)), hits / trials


@pytest.mark.slow
def test_the_coverage_of_prediction_sets_has_an_interval_that_holds_at_least_its_level(
    random, answer_sets
):
    """A trial per photo is conservative where captions of a photo have shares between 0 and 1."""
    trials, hits = 300, 0
    for _ in range(trials):
        share = random.beta(9, 1, 120)
        shares = random.binomial(5, share) / 5
        low, high = map(float, re.findall(r"[\d.]+", answer_sets.interval(shares))[1:])
        hits += low <= 90 <= high
    assert hits / trials >= 0.95


def test_the_range_of_tau_is_no_interval(random, metric_ranking):
    """Of methods that are close to each other, resamples add noise to both orders."""
    trials, draws, hits = 40, 60, 0
    for _ in range(trials):
        truth = random.normal(size=12)
        left, right = truth + random.normal(size=(2, 12))
        sides = (side + random.normal(size=(draws, 12)) for side in (left, right))
        taus = metric_ranking.tau(*sides)
        low, high = np.quantile(taus, TAILS)
        hits += low <= 1 <= high
    assert hits / trials < 0.5


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
def test_a_mean_of_independent_draws(random, intervals, draws):
    """Differences between trainings with the same seed, a few seeds of each."""
    gaps = random.normal(size=(2_000, draws))
    hits = [abs(row.mean()) <= intervals.half_width(row) for row in gaps]
    assert 0.92 <= np.mean(hits) <= 0.97


@pytest.mark.parametrize("noise", [0.3, 1.0])
def test_a_mean_of_tau_over_seeds(random, intervals, metric_ranking, noise):
    """Of twelve methods and eight seeds; tau is bounded and has few values."""
    orders = random.normal(size=(600, 12))
    noisy = orders + noise * random.normal(size=orders.shape)
    taus = metric_ranking.tau(orders, noisy)
    drawn = taus[random.integers(0, len(taus), (2_000, 8))]
    hits = [abs(row.mean() - taus.mean()) <= intervals.half_width(row) for row in drawn]
    assert 0.92 <= np.mean(hits) <= 0.97


@pytest.mark.slow
def test_a_share_of_the_steps_of_a_few_chains(random, intervals):
    """24 chains of three steps each, whose chances differ."""
    trials, hits, chains = 500, 0, np.repeat(np.arange(24), 3)
    for _ in range(trials):
        chances = random.beta(3, 4, 24)[chains]
        figure = intervals.mean((random.random(72) < chances).astype(float), chains)
        hits += figure.low <= 3 / 7 <= figure.high
    assert 0.92 <= hits / trials <= 0.97


@pytest.mark.slow
def test_a_statistic_of_pairs_of_which_some_belong_together(random, intervals):
    """The share of two people who say the same, of three pairs of each caption."""
    trials, hits, captions = 400, 0, np.repeat(np.arange(40), 3)
    for _ in range(trials):
        chances = random.beta(4, 2, 40)[captions]
        same = (random.random(120) < chances).astype(float)
        figure = intervals.statistic(lambda some, s=same: s[some].mean(), captions, 100)
        hits += figure.low <= 2 / 3 <= figure.high
    assert 0.92 <= hits / trials <= 0.97


def test_the_growth_of_sigma(random):
    """A geometric mean over items, each of which grows by its own, skewed factor."""
    trials, hits = 400, 0
    for _ in range(trials):
        growth = 0.1 * random.exponential(size=100)
        steps = iter(np.array([0, *probes.SHARES[1:]])[:, None, None] * growth[:, None])
        grown = probes._occlude(lambda share, s=steps: {"log_variance": 2 * next(s)}, None)
        hits += grown.low[-1] <= np.exp(0.07) <= grown.high[-1]
    assert 0.92 <= hits / trials <= 0.97


@pytest.mark.slow
@pytest.mark.parametrize("runs", [1, 3])
def test_what_reports_of_several_runs_say_of_sigma(random, sigma_claims, monkeypatch, runs):
    """All runs have the same queries, whose standard error each report has."""
    monkeypatch.setattr(sigma_claims, "RESAMPLES", 1_000)
    trials, hits = 1_500, 0
    for _ in range(trials):
        values = iter(random.normal() + (runs > 1) * random.normal(size=runs))
        read = sigma_claims.Property("made up", 1.0, lambda folder, v=values: (next(v), 1.0))
        monkeypatch.setitem(sigma_claims.PROPERTIES, "made up", read)
        estimate = sigma_claims.over_runs("made up", [None] * runs)
        if runs > 1:
            hits += abs(estimate.value) <= estimate.half_width(0.05)
        else:
            hits += estimate.difference().low <= 0 <= estimate.difference().high
    assert 0.92 <= hits / trials <= 0.97


def _answers(random, count: int, slope: float) -> tuple[np.ndarray, np.ndarray]:
    """Uncertainties, and whether the first answer is right: less often if uncertain."""
    unsure = random.normal(size=count)
    return unsure, (random.random(count) < expit(-slope * unsure)).astype(float)
