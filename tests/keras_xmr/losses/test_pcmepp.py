"""PCME++: its matcher and its loss."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import tensorflow as tf

from keras_xmr.experiments.config.loader import load_config
from keras_xmr.experiments.config.packaged_configs import find_config
from keras_xmr.losses import ProbabilisticMatching
from keras_xmr.losses.pcmepp import add_pseudo_positives
from keras_xmr.matchers import ClosedFormSampled
from keras_xmr.utils.errors import ConfigError

NAMES = ("image_mean", "image_logvar", "caption_mean", "caption_logvar")
DIMENSION = 12


def matcher_of(case) -> ClosedFormSampled:
    return ClosedFormSampled(
        scale=float(case["param_negative_scale"]), shift=float(case["param_shift"])
    )


def test_distance_and_pseudo_positives_match_golden(golden):
    case = golden("pcmepp_csd")
    sides = [
        {"mean": case.f32(f"in_{s}_mean"), "log_variance": case.f32(f"in_{s}_logvar")}
        for s in ("image", "caption")
    ]
    found = ClosedFormSampled(scale=-1.0, shift=0.0)(*sides)
    np.testing.assert_allclose(found, case["out_csd"], rtol=1e-4)
    scores, targets = matcher_of(case)(*sides), tf.eye(8)
    further = sum(
        float(tf.reduce_sum(add_pseudo_positives(scores, targets, axis) - targets))
        for axis in (0, 1)
    )
    assert further == case["out_full_n_pseudo"]


def test_pseudo_positives_of_several_matches_score_like_the_least_of_them():
    scores = tf.constant([[3.0, 1.0, 2.0, 0.0], [9.0, 9.0, 9.0, 9.0]])
    targets = tf.constant([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    # Caption 2 is between both matches; a query without matches has none.
    expected = [[1, 1, 1, 0], [0, 0, 0, 0]]
    np.testing.assert_array_equal(add_pseudo_positives(scores, targets, 1), expected)


def test_pseudo_positives_wait_for_the_warm_up(random):
    scores = tf.constant(random.normal(size=(6, 6)), tf.float32)
    known = {"positives": tf.eye(6, dtype="bool")}
    loss = ProbabilisticMatching(pseudo_positives=0.5, warmup_steps=2)
    always = ProbabilisticMatching(pseudo_positives=0.5).terms(scores, {}, {}, known)

    @tf.function(autograph=False)
    def terms(step):
        return loss.terms(scores, {}, {}, known, step=step)

    assert terms(tf.constant(1, tf.int64))["pseudo_match"] == 0
    for found in (terms(tf.constant(2, tf.int64)), loss.terms(scores, {}, {}, known)):
        for name, value in always.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-6)


def test_a_warm_up_to_no_pseudo_positives_is_refused():
    with pytest.raises(ValueError, match="no effect"):
        ProbabilisticMatching(pseudo_positives=0.0, warmup_steps=2)
    with pytest.raises(ConfigError, match=r"(?s)objective\.0\.warmup_steps.*no effect"):
        load_config(
            find_config("scenes_pcmepp"),
            ["objective=[{name: probabilistic_matching, pseudo_positives: 0, warmup_steps: 2}]"],
        )


def test_pseudo_positives_of_mixed_images_take_the_largest_target():
    scores = tf.constant([[3.0, 1.0, 4.0, 0.0]])
    targets = tf.constant([[0.7, 0.3, 0.0, 0.0]])
    np.testing.assert_allclose(add_pseudo_positives(scores, targets, 1), [[0.7, 0.3, 0.7, 0.0]])


@pytest.mark.parametrize("distance", [0.0, 1.0, 1e4])
def test_identical_and_far_items_give_finite_gradients(distance):
    image = tf.zeros((3, 4))
    caption = tf.fill((3, 4), distance)
    spread = tf.zeros((3, 4))
    matcher = ClosedFormSampled()
    with tf.GradientTape() as tape:
        tape.watch([image, caption, spread])
        scores = matcher(
            {"mean": image, "log_variance": spread}, {"mean": caption, "log_variance": spread}
        )
        known = {"positives": np.eye(3, dtype=bool)}
        total = sum(ProbabilisticMatching().terms(scores, {}, {}, known).values())
    found = tape.gradient(total, [image, caption, spread])
    assert np.isfinite(total)
    assert all(np.isfinite(gradient).all() for gradient in found)


@pytest.mark.slow
def test_trivial_value_is_what_a_constant_score_reaches():
    known = {"positives": np.eye(8, dtype=bool)}
    loss = ProbabilisticMatching(pseudo_positives=0.0)

    def constant(score):
        return float(loss.terms(tf.fill((8, 8), np.float32(score)), {}, {}, known)["match"])

    lowest = scipy.optimize.minimize_scalar(constant, bounds=(-6, 2), method="bounded")
    found = loss.trivial_value(tf.zeros((8, 8)), known)
    np.testing.assert_allclose(found, lowest.fun, rtol=1e-4)
    assert ProbabilisticMatching().trivial_value(tf.zeros((8, 8)), known) is None
