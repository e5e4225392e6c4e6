"""The loss of DAA."""

from __future__ import annotations

import gradients
import keras
import models
import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_xmr.losses import DAA
from keras_xmr.matchers import Cosine


def scored(temperature: float, **options) -> DAA:
    return DAA(
        similarity="scores", temperature=temperature, relevance_temperature=temperature, **options
    )


@pytest.mark.slow
@pytest.mark.parametrize("case_number", range(3))
def test_matches_golden(golden, case_number):
    case = golden("daa")
    temperature = float(case["in_temperatures"][case_number])
    loss = scored(temperature, directions="image_to_text")
    scores = tf.constant(case.f32("in_S"))
    with tf.GradientTape() as tape:
        tape.watch(scores)
        parts = loss.parts(scores, {}, {}, {"relevance": case.f32("in_C")})
        total = sum(parts.values())
    np.testing.assert_allclose(total, case["out_nodiag_loss"][case_number], rtol=1e-4)
    expected = case["grad_nodiag_loss_S"][case_number]
    np.testing.assert_allclose(
        tape.gradient(total, scores), expected, rtol=1e-4, atol=3e-5 * np.abs(expected).max()
    )


@pytest.mark.slow
@pytest.mark.parametrize("similarity", ["dot", "cosine"])
@pytest.mark.parametrize("case_number", range(2))
def test_over_samples_matches_golden(golden, similarity, case_number):
    case = golden("daa_sampled")
    temperature = float(case["in_temperatures"][case_number])
    loss = DAA(similarity=similarity, temperature=temperature, relevance_temperature=temperature)
    samples = [tf.constant(case.f32(f"in_{side}_features")) for side in ("image", "caption")]
    with tf.GradientTape() as tape:
        tape.watch(samples)
        image, caption = ({"samples": s} for s in samples)
        parts = loss.parts(None, image, caption, {"relevance": case.f32("in_C")})
        total = sum(parts.values())
    for part, tag in (("image_to_text", "i2t"), ("text_to_image", "t2i")):
        expected = case[f"out_{similarity}_{tag}_loss"][case_number]
        np.testing.assert_allclose(parts[part], expected, rtol=1e-4)
    for side, found in zip(("image", "caption"), tape.gradient(total, samples), strict=True):
        expected = case[f"grad_{similarity}_{side}_features"][case_number]
        np.testing.assert_allclose(
            found, expected, rtol=1e-4, atol=3e-5 * np.abs(expected).max(), err_msg=side
        )


def test_equals_the_formula_on_an_oblong_batch(random):
    scores = random.normal(size=(4, 6)).astype(np.float32)
    relevance = random.random((4, 6)).astype(np.float32)
    parts = scored(0.3).parts(scores, {}, {}, {"relevance": relevance})
    expected = oracles.smooth_asp_loss(scores, relevance, 0.3)
    np.testing.assert_allclose(parts["image_to_text"], expected, rtol=1e-5)
    expected = oracles.smooth_asp_loss(scores.T, relevance.T, 0.3)
    np.testing.assert_allclose(parts["text_to_image"], expected, rtol=1e-5)


@pytest.mark.slow
def test_points_are_compared_by_their_cosines(random):
    image, caption = ({"mean": random.normal(size=(5, 4)).astype(np.float32)} for _ in range(2))
    relations = {"relevance": random.random((5, 5)).astype(np.float32)}
    by_cosine = DAA().parts(None, image, caption, relations)
    by_scores = DAA(similarity="scores").parts(Cosine()(image, caption), {}, {}, relations)
    for part in DAA.CONTRACT.parts:
        np.testing.assert_allclose(by_cosine[part], by_scores[part], rtol=1e-5)


def test_is_nothing_where_both_rank_alike_and_all_where_they_oppose(random):
    relevance = np.argsort(random.random((5, 8)), axis=1).astype(np.float32)
    loss = scored(0.01, directions="image_to_text")
    same = sum(loss.parts(3 * relevance, {}, {}, {"relevance": relevance}).values())
    opposed = sum(loss.parts(-relevance, {}, {}, {"relevance": relevance}).values())
    assert float(same) == pytest.approx(0, abs=1e-6)
    assert float(opposed) > 0.5


@pytest.mark.parametrize("direction", DAA.CONTRACT.parts)
def test_one_direction_alone(random, direction):
    scores, relevance = random.random((2, 5, 5)).astype(np.float32)
    both = scored(0.1).parts(scores, {}, {}, {"relevance": relevance})
    one = scored(0.1, directions=direction).parts(scores, {}, {}, {"relevance": relevance})
    np.testing.assert_array_equal(one[direction], both[direction])
    assert float(sum(one.values())) == float(one[direction]) > 0


@pytest.mark.slow
def test_gradients_equal_central_differences(random):
    relevance = random.random((5, 6)).astype(np.float32)

    def value(scores):
        return sum(scored(0.5).parts(scores, {}, {}, {"relevance": relevance}).values())

    gradients.check(value, [random.normal(size=(5, 6))], random)

    def of_samples(image, caption):
        loss = DAA(temperature=0.5)
        relations = {"relevance": relevance[:3, :4]}
        return sum(loss.parts(None, {"samples": image}, {"samples": caption}, relations).values())

    shapes = ((3, 2, 4), (4, 2, 4))
    gradients.check(of_samples, [random.normal(size=shape) for shape in shapes], random)


@pytest.mark.parametrize("temperature", [1e-4, 0.01, 10.0])
def test_ties_and_far_scores_give_finite_gradients(random, temperature):
    scores = tf.constant([[1.0, 1.0, 1.0], [0.0, 1e4, -1e4], [2.0, 2.0, 1.0]])
    relevance = tf.constant([[0.0, 0.0, 0.0], [0.0, 0.0, 1.0], [2.0, 2.0, 1.0]])
    with tf.GradientTape() as tape:
        tape.watch(scores)
        total = sum(scored(temperature).parts(scores, {}, {}, {"relevance": relevance}).values())
    assert np.isfinite(total)
    assert np.isfinite(tape.gradient(total, scores)).all()


def test_order_of_the_batch_does_not_matter(random):
    scores, relevance = random.random((2, 6, 6)).astype(np.float32)
    rows, columns = random.permutation(6), random.permutation(6)
    before = scored(0.1).parts(scores, {}, {}, {"relevance": relevance})
    moved = {"relevance": relevance[rows][:, columns]}
    after = scored(0.1).parts(scores[rows][:, columns], {}, {}, moved)
    for part in DAA.CONTRACT.parts:
        np.testing.assert_allclose(after[part], before[part], rtol=1e-5)


@pytest.mark.slow
def test_survives_its_config(random):
    loss = DAA(similarity="dot", temperature=0.2, relevance_temperature=0.3)
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(loss))
    embeddings = [{"mean": random.normal(size=(4, 3)).astype(np.float32)} for _ in range(2)]
    relations = {"relevance": random.random((4, 4)).astype(np.float32)}
    for part, value in loss.parts(None, *embeddings, relations).items():
        np.testing.assert_array_equal(copy.parts(None, *embeddings, relations)[part], value)


@pytest.mark.slow
def test_trains():
    models.train_three_steps(models.daa(), "with_relevance_1")
