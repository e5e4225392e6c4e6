"""The losses of PCME."""

from __future__ import annotations

import keras
import numpy as np
import oracles
import pytest
import scipy.optimize
import tensorflow as tf

from keras_xmr.losses import KLDivergence, SoftContrastive, Uniformity
from keras_xmr.matchers import MatchProbability, MeanOnly
from keras_xmr.model.objective import Objective


@pytest.fixture
def samples(random):
    return tuple(random.normal(scale=0.4, size=(5, 3, 4)).astype(np.float32) for _ in range(2))


def test_soft_contrastive_equals_the_formula_with_sibling_captions(samples):
    # Captions 0 and 1 belong to one image, which stands in the batch twice.
    ids = np.array([3, 3, 5, 8, 9])
    positives = ids[:, None] == ids[None]
    matcher = MatchProbability(scale=4.0, shift=3.0)
    scores = matcher({"samples": samples[0]}, {"samples": samples[1]})
    probability = oracles.match_probability(*samples, 4.0, 3.0)
    np.testing.assert_allclose(matcher.probability(scores), probability, rtol=1e-4)
    expected = oracles.soft_contrastive(probability, positives)
    for reduction, divisor in (("sum", 1), ("mean", 25)):
        terms = SoftContrastive(reduction=reduction).terms(scores, {}, {}, {"positives": positives})
        np.testing.assert_allclose(sum(terms.values()), expected / divisor, rtol=1e-4)


def test_regularizers_equal_the_formulas(random, samples):
    mean, log_variance = random.normal(size=(2, 5, 4)).astype(np.float32)
    embedding = {"mean": mean, "log_variance": log_variance}
    expected = oracles.kl_to_standard_normal(mean, log_variance)
    for reduction, value in (("sum", expected.sum()), ("mean", expected.mean())):
        terms = KLDivergence(reduction=reduction).terms(None, embedding, embedding, {})
        np.testing.assert_allclose(terms["image"], value, rtol=1e-4)
    vectors = np.concatenate([s.reshape(-1, 4) for s in samples]).astype(np.float64)
    image, caption = ({"samples": s} for s in samples)
    terms = Uniformity(temperature=1.5).terms(None, image, caption, {})
    np.testing.assert_allclose(terms["uniformity"], oracles.uniformity(vectors, 1.5), rtol=1e-4)
    some = Uniformity(temperature=1.5, max_vectors=10).terms(None, image, caption, {})
    expected = oracles.uniformity(vectors[::3], 1.5)
    np.testing.assert_allclose(some["uniformity"], expected, rtol=1e-4)
    points = Uniformity(temperature=1.5).terms(None, {"mean": mean}, {"mean": log_variance}, {})
    both = np.concatenate([mean, log_variance]).astype(np.float64)
    np.testing.assert_allclose(points["uniformity"], oracles.uniformity(both, 1.5), rtol=1e-4)


@pytest.mark.parametrize("distance", [0.0, 1.0, 50.0, 5000.0])
def test_extreme_distances_give_finite_losses_and_gradients(distance):
    image = tf.constant(np.zeros((3, 2, 4), np.float32))
    caption = tf.constant(np.full((3, 2, 4), distance / 2, np.float32))
    matcher = MatchProbability(scale=30.0, shift=30.0)
    with tf.GradientTape() as tape:
        tape.watch([image, caption])
        scores = matcher({"samples": image}, {"samples": caption})
        loss = sum(
            SoftContrastive().terms(scores, {}, {}, {"positives": np.eye(3, dtype=bool)}).values()
        )
    gradients = tape.gradient(loss, [image, caption, matcher.scale.value, matcher.shift.value])
    assert np.isfinite(loss)
    assert all(np.isfinite(gradient).all() for gradient in gradients)


def test_scores_still_rank_where_probabilities_are_rounded():
    matcher = MatchProbability(scale=30.0, shift=600.0)
    image = {"samples": np.zeros((1, 2, 1), np.float32)}
    caption = {"samples": np.array([[[0.1]] * 2, [[0.2]] * 2, [[0.3]] * 2], np.float32)}
    scores = np.asarray(matcher(image, caption))[0]
    assert (matcher.probability(scores).numpy() == 1).all()
    assert (np.diff(scores) < 0).all()


@pytest.mark.slow
def test_trivial_value_is_what_a_constant_score_reaches():
    positives = np.eye(16, dtype=bool)
    loss = SoftContrastive()
    found = loss.trivial_value(tf.zeros((16, 16)), {"positives": positives})

    def constant(score):
        terms = loss.terms(tf.fill((16, 16), np.float32(score)), {}, {}, {"positives": positives})
        return float(sum(terms.values()))

    lowest = scipy.optimize.minimize_scalar(constant, bounds=(-8, 8), method="bounded")
    np.testing.assert_allclose(found, lowest.fun, rtol=1e-4)


def test_objective_is_the_weighted_sum_and_names_its_parts(random, samples):
    mean, log_variance = random.normal(size=(2, 5, 4)).astype(np.float32)
    image, caption = ({"mean": mean, "log_variance": log_variance, "samples": s} for s in samples)
    losses = [SoftContrastive(), KLDivergence(), KLDivergence(reduction="mean")]
    objective = Objective(losses, [1.0, 0.5, 0.25])
    scores = MeanOnly()(image, caption)
    relations = {"positives": np.eye(5, dtype=bool)}
    total, log = objective(scores, image, caption, relations)
    assert list(log) == objective.names
    assert {"soft_contrastive/positive", "kl_divergence_1", "kl_divergence_2/caption"} <= set(log)
    expected = (
        log["soft_contrastive"] + 0.5 * log["kl_divergence_1"] + 0.25 * log["kl_divergence_2"]
    )
    np.testing.assert_allclose(total, expected, rtol=1e-6)
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(objective))
    np.testing.assert_array_equal(copy(scores, image, caption, relations)[0], total)
