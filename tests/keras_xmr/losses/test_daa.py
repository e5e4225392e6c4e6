"""The loss of DAA."""

from __future__ import annotations

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


def test_equals_the_formula_on_an_oblong_batch(random):
    scores = random.normal(size=(4, 6)).astype(np.float32)
    relevance = random.random((4, 6)).astype(np.float32)
    terms = scored(0.3).terms(scores, {}, {}, {"relevance": relevance})
    expected = oracles.smooth_asp_loss(scores, relevance, 0.3)
    np.testing.assert_allclose(terms["image_to_text"], expected, rtol=1e-5)
    expected = oracles.smooth_asp_loss(scores.T, relevance.T, 0.3)
    np.testing.assert_allclose(terms["text_to_image"], expected, rtol=1e-5)


@pytest.mark.slow
def test_points_are_compared_by_their_cosines(random):
    image, caption = ({"mean": random.normal(size=(5, 4)).astype(np.float32)} for _ in range(2))
    relations = {"relevance": random.random((5, 5)).astype(np.float32)}
    by_cosine = DAA().terms(None, image, caption, relations)
    by_scores = DAA(similarity="scores").terms(Cosine()(image, caption), {}, {}, relations)
    for term in DAA.CONTRACT.terms:
        np.testing.assert_allclose(by_cosine[term], by_scores[term], rtol=1e-5)


def test_is_nothing_where_both_rank_alike_and_all_where_they_oppose(random):
    relevance = np.argsort(random.random((5, 8)), axis=1).astype(np.float32)
    loss = scored(0.01, directions="image_to_text")
    same = sum(loss.terms(3 * relevance, {}, {}, {"relevance": relevance}).values())
    opposed = sum(loss.terms(-relevance, {}, {}, {"relevance": relevance}).values())
    assert float(same) == pytest.approx(0, abs=1e-6)
    assert float(opposed) > 0.5


@pytest.mark.parametrize("direction", DAA.CONTRACT.terms)
def test_one_direction_alone(random, direction):
    scores, relevance = random.random((2, 5, 5)).astype(np.float32)
    both = scored(0.1).terms(scores, {}, {}, {"relevance": relevance})
    one = scored(0.1, directions=direction).terms(scores, {}, {}, {"relevance": relevance})
    np.testing.assert_array_equal(one[direction], both[direction])
    assert float(sum(one.values())) == float(one[direction]) > 0


@pytest.mark.parametrize("temperature", [1e-4, 0.01, 10.0])
def test_ties_and_far_scores_give_finite_gradients(random, temperature):
    scores = tf.constant([[1.0, 1.0, 1.0], [0.0, 1e4, -1e4], [2.0, 2.0, 1.0]])
    relevance = tf.constant([[0.0, 0.0, 0.0], [0.0, 0.0, 1.0], [2.0, 2.0, 1.0]])
    with tf.GradientTape() as tape:
        tape.watch(scores)
        total = sum(scored(temperature).terms(scores, {}, {}, {"relevance": relevance}).values())
    assert np.isfinite(total)
    assert np.isfinite(tape.gradient(total, scores)).all()
