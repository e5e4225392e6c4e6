"""The study of the hardest negative: gradients, vagueness, and one small training."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from benchmark_modules import benchmark

from keras_xmr.losses import InfoNCE, ProbabilisticMatching, SmoothAP, Triplet

study = benchmark("hardest_negative", "studies")

LOSSES = {
    "triplet, hardest": Triplet(mining="hardest", reduction="mean"),
    "triplet, all": Triplet(mining="sum", reduction="mean"),
    "triplet, violating": Triplet(mining="mean", reduction="mean"),
    "InfoNCE": InfoNCE(temperature=0.05),
    "Smooth-AP": SmoothAP(temperature=0.05),
    "BCE, pseudo-positives": ProbabilisticMatching(pseudo_positives=0.1),
}


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_those_of_the_losses(random, study, name):
    scores = tf.Variable(0.5 * random.normal(size=(9, 7)).astype(np.float32))
    positives = np.eye(9, 7, dtype=bool)
    positives[[7, 8, 0], [0, 3, 3]] = True
    with tf.GradientTape() as tape:
        terms = LOSSES[name].terms(
            tf.identity(scores), {}, {}, {"positives": keras.ops.array(positives)}
        )
        value = tf.add_n(list(terms.values()))
    expected = tape.gradient(value, scores).numpy()
    gradient = study.LOSSES[name].gradient(scores.numpy(), positives, study.STEPS)
    np.testing.assert_allclose(gradient, expected, atol=1e-5)


@pytest.mark.slow
def test_vaguer_captions_are_true_of_more_scenes_and_a_training_learns(study, monkeypatch):
    monkeypatch.setattr(study, "SIZES", {"train": 60, "test": 60})
    monkeypatch.setattr(study, "STEPS", 60)
    study.data.cache_clear()
    shares = [study.false_negatives(study.data(n, 1)["test"]) for n in range(len(study.GRADES))]
    assert shares == sorted(shares)
    assert shares[0] < 0.01 < 0.1 < shares[-1]
    line = study.train(study.Task(0, "InfoNCE", "annotated", 0.0, 1))
    study.data.cache_clear()
    assert line["truth"] > 1.5 * line["chance"]


@pytest.mark.parametrize("largest", [False, True])
def test_a_step_follows_the_gradient_of_both_image_towers(study, random, largest):
    towers = study.Towers(0, 6, largest)
    things = random.normal(size=(8, 4, 6)).astype(np.float32)
    words = (random.random((8, study.WORDS)) < 0.1).astype(np.float32)

    def value() -> float:
        _, _, image, text, *_ = towers.embed(things, words)
        odds = np.exp(image @ text.T)
        return float(sum(np.log(odds.sum(axis=axis)).mean() for axis in (0, 1)))

    def gradient(scores: np.ndarray, _positives: np.ndarray) -> np.ndarray:
        odds = np.exp(scores)
        return odds / odds.sum(axis=1, keepdims=True) / len(scores)

    towers.weights = [weight.astype(float) for weight in towers.weights]
    expected = []
    for change in (1e-5, -1e-5):
        towers.weights[0][2, 3] += change
        expected.append(value())
        towers.weights[0][2, 3] -= change
    towers.step(0, things, words, np.eye(8, dtype=bool), study.Loss(gradient))
    found = towers.moments[0][0][2, 3] / 0.1
    np.testing.assert_allclose(found, (expected[0] - expected[1]) / 2e-5, rtol=1e-3)
