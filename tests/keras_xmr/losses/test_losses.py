"""The losses of PCME."""

from __future__ import annotations

import keras
import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_xmr.losses import KLDivergence, SoftContrastive, Uniformity
from keras_xmr.matchers import MatchProbability, MeanOnly
from keras_xmr.model.objective import Objective


def pcme(case, doubled: bool) -> MatchProbability:
    """The matcher of a case; the released code takes the sigmoid of twice the logit."""
    factor = 2.0 if doubled else 1.0
    return MatchProbability(
        scale=factor * float(case["param_negative_scale"]),
        shift=factor * float(case["param_shift"]),
    )


@pytest.mark.parametrize(("tag", "doubled"), [("", True), ("paper_", False)])
def test_soft_contrastive_matches_golden(golden, tag, doubled):
    case = golden("pcme_soft_contrastive")
    matcher, loss = pcme(case, doubled), SoftContrastive()
    image = tf.constant(case.f32("in_image_features"))
    caption = tf.constant(case.f32("in_caption_features"))
    positives = np.eye(8, dtype=bool)
    with tf.GradientTape() as tape:
        tape.watch([image, caption])
        scores = matcher({"samples": image}, {"samples": caption})
        parts = loss.parts(scores, {}, {}, {"positives": positives})
        total = sum(parts.values())
    variables = [image, caption, matcher.shift.value, matcher.scale.value]
    gradients = tape.gradient(total, variables)
    np.testing.assert_allclose(
        matcher.probability(scores), case[f"out_{tag}match_prob"], rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(total, case[f"out_{tag}softcon_loss"], rtol=1e-4)
    names = ["image_features", "caption_features", "shift", "negative_scale"]
    # The reference differentiates by half of our scale and shift.
    factors = [1, 1, 2, 2] if doubled else [1, 1, 1, 1]
    for name, factor, gradient in zip(names, factors, gradients, strict=True):
        expected = case[f"grad_{tag}softcon_{name}"]
        np.testing.assert_allclose(
            factor * gradient.numpy(), expected, rtol=1e-4, atol=3e-5 * np.abs(expected).max()
        )
    if doubled:
        np.testing.assert_allclose(parts["positive"] / 2, case["out_i2t_pos_loss"], rtol=1e-4)
        np.testing.assert_allclose(parts["negative"] / 2, case["out_i2t_neg_loss"], rtol=1e-4)


def test_kl_divergence_matches_golden(golden):
    case = golden("pcme_soft_contrastive")
    embeddings = {}
    for side in ("image", "caption"):
        mean = tf.constant(case.f32(f"in_{side}_mu"))
        log_variance = tf.constant(2 * case.f32(f"in_{side}_logsigma"))
        embeddings[side] = {"mean": mean, "log_variance": log_variance}
    image = embeddings["image"]
    with tf.GradientTape() as tape:
        tape.watch([image["mean"], image["log_variance"]])
        parts = KLDivergence().parts(None, image, embeddings["caption"], {})
    by_mean, by_log_variance = tape.gradient(parts["image"], [image["mean"], image["log_variance"]])
    np.testing.assert_allclose(parts["image"], case["out_paper_kl_image"], rtol=1e-4)
    np.testing.assert_allclose(parts["caption"], case["out_paper_kl_caption"], rtol=1e-4)
    np.testing.assert_allclose(by_mean, case["grad_paper_kl_image_mu"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        2 * by_log_variance, case["grad_paper_kl_image_logsigma"], rtol=1e-4, atol=1e-5
    )


def test_uniformity_matches_golden(golden):
    case = golden("pcme_soft_contrastive")
    image = tf.constant(case.f32("in_image_features"))
    caption = tf.constant(case.f32("in_caption_features"))
    with tf.GradientTape() as tape:
        tape.watch([image, caption])
        parts = Uniformity().parts(None, {"samples": image}, {"samples": caption}, {})
    gradients = tape.gradient(parts["uniformity"], [image, caption])
    np.testing.assert_allclose(parts["uniformity"], case["out_uniform_loss"], rtol=1e-4)
    for side, gradient in zip(("image", "caption"), gradients, strict=True):
        np.testing.assert_allclose(
            gradient, case[f"grad_uniform_{side}_features"], rtol=1e-4, atol=1e-5
        )


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
        parts = SoftContrastive(reduction=reduction).parts(scores, {}, {}, {"positives": positives})
        np.testing.assert_allclose(sum(parts.values()), expected / divisor, rtol=1e-4)


def test_regularizers_equal_the_formulas(random, samples):
    mean, log_variance = random.normal(size=(2, 5, 4)).astype(np.float32)
    embedding = {"mean": mean, "log_variance": log_variance}
    expected = oracles.kl_to_standard_normal(mean, log_variance)
    for reduction, value in (("sum", expected.sum()), ("mean", expected.mean())):
        parts = KLDivergence(reduction=reduction).parts(None, embedding, embedding, {})
        np.testing.assert_allclose(parts["image"], value, rtol=1e-4)
    vectors = np.concatenate([s.reshape(-1, 4) for s in samples]).astype(np.float64)
    image, caption = ({"samples": s} for s in samples)
    parts = Uniformity(temperature=1.5).parts(None, image, caption, {})
    np.testing.assert_allclose(parts["uniformity"], oracles.uniformity(vectors, 1.5), rtol=1e-4)
    some = Uniformity(temperature=1.5, max_vectors=10).parts(None, image, caption, {})
    expected = oracles.uniformity(vectors[::3], 1.5)
    np.testing.assert_allclose(some["uniformity"], expected, rtol=1e-4)
    points = Uniformity(temperature=1.5).parts(None, {"mean": mean}, {"mean": log_variance}, {})
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
            SoftContrastive().parts(scores, {}, {}, {"positives": np.eye(3, dtype=bool)}).values()
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
    constants = np.linspace(-8, 8, 801, dtype=np.float32)
    values = [
        float(sum(loss.parts(tf.fill((16, 16), c), {}, {}, {"positives": positives}).values()))
        for c in constants
    ]
    np.testing.assert_allclose(found, min(values), rtol=1e-4)


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


@pytest.mark.parametrize("loss", [SoftContrastive(), KLDivergence(), Uniformity()])
def test_gradients_equal_finite_differences(random, loss):
    mean, log_variance = random.normal(size=(2, 4, 3)).astype(np.float64)
    noise = random.normal(size=(4, 2, 3))
    matcher = MatchProbability(scale=2.0, shift=1.0)
    relations = {"positives": np.eye(4, dtype=bool)}

    def value(mean, log_variance):
        deviation = tf.exp(0.5 * tf.cast(log_variance, tf.float32))
        mean = tf.cast(mean, tf.float32)
        draws = mean[:, None] + deviation[:, None] * noise.astype(np.float32)
        embedding = {
            "mean": mean,
            "log_variance": tf.cast(log_variance, tf.float32),
            "samples": draws,
        }
        other = {**embedding, "samples": draws[::-1]}
        return sum(loss.parts(matcher(embedding, other), embedding, other, relations).values())

    inputs = [tf.constant(mean), tf.constant(log_variance)]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        total = value(*inputs)
    gradients = tape.gradient(total, inputs, unconnected_gradients="zero")
    directions = [random.normal(size=(4, 3)) for _ in inputs]
    step = 1e-2
    ahead = value(*(x + step * d for x, d in zip((mean, log_variance), directions, strict=True)))
    behind = value(*(x - step * d for x, d in zip((mean, log_variance), directions, strict=True)))
    slope = sum(float(np.sum(g * d)) for g, d in zip(gradients, directions, strict=True))
    np.testing.assert_allclose((ahead - behind) / (2 * step), slope, rtol=2e-2)
