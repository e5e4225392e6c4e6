"""The losses over any model's scores: triplet, Smooth-AP, InfoNCE, supervised contrastive."""

from __future__ import annotations

import numpy as np
import pytest
import ranking_oracles as oracles
import tensorflow as tf

from keras_xmr.layers import Temperature
from keras_xmr.losses import InfoNCE, SmoothAP, SupervisedContrastive, Triplet
from keras_xmr.model.objective import Objective

LOSSES = {
    "triplet_sum": (
        Triplet(mining="sum", margin=0.3),
        oracles.triplet(0.3, mining="sum", mean=False),
    ),
    "triplet_sum_mean": (
        Triplet(mining="sum", margin=0.3, reduction="mean"),
        oracles.triplet(0.3, mining="sum", mean=True),
    ),
    "triplet_mean": (
        Triplet(mining="mean", margin=0.3),
        oracles.triplet(0.3, mining="mean", mean=False),
    ),
    "triplet_mean_mean": (
        Triplet(mining="mean", margin=0.3, reduction="mean"),
        oracles.triplet(0.3, mining="mean", mean=True),
    ),
    "triplet_hardest": (Triplet(margin=0.3), oracles.triplet(0.3, mining="hardest", mean=False)),
    "triplet_hardest_mean": (
        Triplet(margin=0.3, reduction="mean"),
        oracles.triplet(0.3, mining="hardest", mean=True),
    ),
    "smooth_ap": (SmoothAP(temperature=0.2), oracles.smooth_ap(0.2)),
    "info_nce": (InfoNCE(temperature=0.3), oracles.contrastive(0.3, others=False)),
    "supervised_contrastive": (
        SupervisedContrastive(temperature=0.3),
        oracles.contrastive(0.3, others=True),
    ),
}

RELATIONS = {
    "pairs": np.eye(6, dtype=bool),
    "siblings": np.equal.outer([0, 0, 1, 2, 2, 2], [0, 0, 1, 2, 2, 2]),
    "not_square": np.equal.outer(np.arange(4), [0, 0, 0, 1, 2, 3, 3, 1]),
    "queries_without_positives": np.equal.outer([0, 1, 2, 9], [0, 1, 1, 2, 8]),
}


def value(loss, scores, positives):
    return sum(loss.terms(scores, {}, {}, {"positives": positives}).values())


def gradient(loss, scores, positives):
    scores = tf.cast(scores, tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        total = value(loss, scores, positives)
    return total, tape.gradient(total, scores)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("name", LOSSES)
def test_loss_and_gradients_equal_the_formula(random, name, relation):
    loss, direction = LOSSES[name]
    positives = RELATIONS[relation]
    scores = random.uniform(-1, 1, positives.shape)

    def oracle(scores):
        return oracles.both(direction, scores, positives)

    total, by_scores = gradient(loss, scores, positives)
    np.testing.assert_allclose(total, oracle(scores), rtol=1e-5)
    for _ in range(3):
        along = random.normal(size=scores.shape)
        expected = oracles.slope(oracle, [scores], [along])
        np.testing.assert_allclose(np.sum(by_scores * along), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("relation", ["not_square", "queries_without_positives", "all_match"])
@pytest.mark.parametrize("size", [0.0, -1e4])
@pytest.mark.parametrize("name", LOSSES)
def test_ties_give_finite_losses_and_gradients(name, size, relation):
    loss, _ = LOSSES[name]
    positives = RELATIONS.get(relation, np.ones((5, 5), bool))
    total, by_scores = gradient(loss, np.full(positives.shape, size), positives)
    assert np.isfinite(total)
    assert np.isfinite(by_scores).all()
    np.testing.assert_allclose(
        total, loss.trivial_value(np.ones(positives.shape), {"positives": positives}), rtol=1e-5
    )


@pytest.mark.parametrize("name", LOSSES)
def test_extreme_scores_give_finite_losses_and_gradients(random, name):
    loss, _ = LOSSES[name]
    total, by_scores = gradient(loss, 1e5 * random.normal(size=(6, 6)), RELATIONS["siblings"])
    assert np.isfinite(total)
    assert np.isfinite(by_scores).all()


def test_siblings_are_never_negatives_of_a_triplet():
    positives = RELATIONS["siblings"]
    scores = np.where(positives, [[0.9, 0.1, 0.9, 0.1, 0.5, 0.9]], -1.0)
    for mining in ("sum", "mean", "hardest"):
        assert float(value(Triplet(mining=mining), scores, positives)) == 0


def test_trivial_value_of_vsepp_is_twice_batch_times_margin():
    # Where training sticks, as fartashf/vsepp#27 reports it.
    relations = {"positives": np.eye(128, dtype=bool)}
    found = Triplet(margin=0.2).trivial_value(tf.zeros((128, 128)), relations)
    np.testing.assert_allclose(found, 2 * 128 * 0.2, rtol=1e-5)
    mean = Triplet(margin=0.2, reduction="mean").trivial_value(tf.zeros((128, 128)), relations)
    np.testing.assert_allclose(mean, 0.4, rtol=1e-5)


@pytest.mark.slow
def test_warm_up_takes_all_negatives_until_its_last_step(random):
    scores = random.normal(size=(6, 6)).astype(np.float32)
    relations = {"positives": RELATIONS["siblings"]}
    objective = Objective([Triplet(warmup_steps=3)], [1.0])
    everything, hardest = (
        float(value(Triplet(mining=mining), scores, relations["positives"]))
        for mining in ("sum", "hardest")
    )
    assert everything > hardest

    @tf.function(autograph=False)
    def total(step):
        return objective(scores, {}, {}, relations, step=step)[0]

    found = [float(total(tf.constant(step, tf.int64))) for step in range(5)]
    np.testing.assert_allclose(found, [everything] * 3 + [hardest] * 2, rtol=1e-6)
    for mining in ("sum", "mean"):
        with pytest.raises(ValueError, match=f"no effect with mining '{mining}'"):
            Triplet(mining=mining, warmup_steps=3)


def test_learned_temperature_has_a_floor_from_which_it_rises_again():
    temperature = Temperature(0.07, learnable=True)
    np.testing.assert_allclose(temperature.value(), 0.07, rtol=1e-6)
    temperature.log_temperature.assign(np.log(0.0001))
    with tf.GradientTape() as tape:
        found = temperature.value()
    np.testing.assert_allclose(found, 0.01, rtol=1e-5)
    np.testing.assert_allclose(
        tape.gradient(found, temperature.log_temperature.value), 0.01, rtol=1e-5
    )


def test_temperature_is_learned(random):
    loss = InfoNCE(temperature=0.5, learnable=True)
    scores = tf.constant(random.normal(size=(6, 6)), tf.float32)
    positives = RELATIONS["siblings"]
    with tf.GradientTape() as tape:
        total = value(loss, scores, positives)
    variable = loss.trainable_variables[0]
    by_logarithm = tape.gradient(total, variable.value)
    step = 1e-3
    ahead, behind = (
        float(value(InfoNCE(temperature=0.5 * np.exp(s)), scores, positives)) for s in (step, -step)
    )
    np.testing.assert_allclose(by_logarithm, (ahead - behind) / (2 * step), rtol=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize("loss", [Triplet(mining="sum"), Triplet(), SmoothAP()])
def test_large_batches_hold_no_cube(loss):
    # A cube of all triplets of 2048 pairs would be 34 gigabytes.
    scores = tf.random.stateless_normal((2048, 2048), seed=(1, 2))
    _, by_scores = gradient(loss, scores, np.eye(2048, dtype=bool))
    assert np.isfinite(by_scores).all()


@pytest.mark.slow
@pytest.mark.heavy  # tests/backends compiles every loss with XLA, for JAX.
def test_losses_compile_with_xla(random):
    scores = tf.constant(random.normal(size=(6, 6)), tf.float32)
    positives = tf.constant(RELATIONS["siblings"])

    # One graph of all is compiled sooner than many.
    @tf.function(jit_compile=True)
    def compiled(scores):
        return {name: gradient(loss, scores, positives) for name, (loss, _) in LOSSES.items()}

    for name, (total, by_scores) in compiled(scores).items():
        expected, slopes = gradient(LOSSES[name][0], scores, positives)
        np.testing.assert_allclose(total, expected, rtol=1e-4, err_msg=name)
        np.testing.assert_allclose(by_scores, slopes, rtol=1e-3, atol=1e-4, err_msg=name)
