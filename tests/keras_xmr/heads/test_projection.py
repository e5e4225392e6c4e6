"""The pooling `projection`, against numpy."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_xmr.heads.pooling import Projection
from keras_xmr.utils.errors import UserError


@pytest.fixture
def features(random):
    """Features (4, 5, 6) of both signs, and numbers that are exactly 0."""
    features = random.normal(size=(4, 5, 6)).astype(np.float32)
    features[:, :, 2] = 0
    return features


MASK = np.arange(5) < np.array([5, 3, 1, 4])[:, None]


def oracle(features, mask, power, pooling) -> np.ndarray:
    rows = []
    for item, there in zip(features.astype(np.float64), mask, strict=True):
        mean = item[there].mean(axis=0)
        mean = np.sign(mean) * np.abs(mean) ** power
        rows.append(mean / np.linalg.norm(mean))
    standardised = (np.array(rows) - pooling.centre.numpy()) * float(pooling.scale)
    return standardised @ pooling.kernel.numpy()


def made(random, dimension=3, policy=None, **options) -> Projection:
    pooling = Projection(dimension, dtype=policy, **options)
    pooling.build((None, None, 6))
    pooling.centre.assign(random.normal(size=6))
    pooling.scale.assign(2.7)
    return pooling


@pytest.mark.parametrize("mask", [None, MASK])
@pytest.mark.parametrize("power", [1.0, 0.5])
def test_a_projection_is_linear_in_standardised_averages(random, features, power, mask):
    pooling = made(random, power=power)
    everything = np.ones((4, 5), bool) if mask is None else mask
    expected = oracle(features, everything, power, pooling)
    np.testing.assert_allclose(pooling(features, mask=mask), expected, rtol=1e-4, atol=1e-5)


def test_half_precision_of_the_model_is_not_that_of_the_statistics(random):
    pooling = made(random, policy="mixed_float16")
    pooling.centre.assign(np.full(6, 0.4001, np.float32))
    pooling.scale.assign(1000.0)  # what is left after centring is small
    features = random.integers(1, 9, (4, 5, 6)).astype(np.float32)  # exact in half precision
    found = pooling(features)
    assert found.dtype == "float32"
    expected = oracle(features, np.ones((4, 5), bool), 1.0, pooling)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("power", [1.0, 0.5])
def test_gradients_at_zeros_are_finite(random, features, power):
    pooling = made(random, power=power)
    features[1] = 0
    given = tf.constant(features)
    with tf.GradientTape() as tape:
        tape.watch(given)
        loss = tf.reduce_sum(pooling(given) ** 2)
    by_features, by_kernel = tape.gradient(loss, [given, pooling.kernel.value])
    assert np.isfinite(by_features).all()
    assert np.isfinite(by_kernel).all()
    assert np.abs(by_features[0]).max() > 0


def test_dropout_is_for_training_alone(random, features):
    keras.utils.set_random_seed(0)
    pooling = made(random, 6, dropout=0.5)
    pooling.kernel.assign(np.eye(6))  # which shows what is dropped
    plain = Projection.from_config(pooling.get_config() | {"dropout": 0.0})
    plain.build((None, None, 6))
    plain.set_weights([pooling.kernel, pooling.centre, pooling.scale])
    whole = plain(features, training=True).numpy()
    np.testing.assert_array_equal(pooling(features), whole)
    np.testing.assert_array_equal(pooling(features, training=False), whole)
    dropped = pooling(features, training=True).numpy()
    gone = dropped == 0
    assert 0 < gone.sum() < gone.size
    np.testing.assert_allclose(dropped[~gone], 2 * whole[~gone], rtol=1e-5)


def test_training_sees_one_view_of_each_item_and_evaluation_all(random):
    keras.utils.set_random_seed(0)
    pooling = Projection(6, views=2)
    pooling.build((None, 4, 6))
    pooling.kernel.assign(np.eye(6))
    features = random.normal(size=(64, 4, 6)).astype(np.float32)
    first, second, whole = (
        mean / np.linalg.norm(mean, axis=1, keepdims=True)
        for mean in (features[:, some].mean(axis=1) for some in ([0, 1], [2, 3], [0, 1, 2, 3]))
    )
    np.testing.assert_allclose(pooling(features), whole, rtol=1e-4, atol=1e-5)
    seen = pooling(features, training=True).numpy()
    is_first, is_second = (
        np.isclose(seen, view, atol=1e-5).all(axis=1) for view in (first, second)
    )
    assert (is_first ^ is_second).all()
    assert 10 < is_first.sum() < 54
    again = Projection.from_config(pooling.get_config())
    assert again.views == 2


@pytest.mark.parametrize("positions", [None, 5])
def test_positions_that_are_not_those_of_the_views_are_refused(positions):
    with pytest.raises(UserError, match="cannot be divided into 2 views; write 1"):
        Projection(3, views=2).build((None, positions, 6))


def test_statistics_are_not_trained_and_stay_so(random):
    pooling = made(random)
    for _ in range(2):
        assert [weight.name for weight in pooling.trainable_weights] == ["kernel"]
        assert {w.name for w in pooling.non_trainable_weights} == {"centre", "scale"}
        # As each phase does.
        pooling.trainable = False
        assert not pooling.trainable_weights
        pooling.trainable = True


def test_what_is_standardised_has_a_mean_square_of_1(random, features):
    pooling = Projection(3, power=0.5)
    pooling.build(features.shape)
    averages = np.asarray(pooling.average(features, MASK))
    np.testing.assert_allclose(np.linalg.norm(averages, axis=1), 1, rtol=1e-5)
    kernel = random.normal(size=(6, 3))
    centre = np.average(averages, axis=0, weights=[1, 2, 3, 4])
    pooling.standardise(averages, centre)
    seen = (averages - pooling.centre.numpy()) * float(pooling.scale)
    assert np.square(seen).mean() == pytest.approx(1, rel=1e-5)
    pooling.begin_at(kernel)
    expected = (averages - centre) @ kernel
    np.testing.assert_allclose(pooling(features, mask=MASK), expected, rtol=1e-4, atol=1e-5)


def test_a_projection_is_saved_and_loaded(random, features, tmp_path):
    inputs, mask = keras.Input((None, 6)), keras.Input((None,), dtype="bool")
    pooling = Projection(3, power=0.5, dropout=0.1, name="pooling")
    model = keras.Model([inputs, mask], pooling(inputs, mask=mask))
    pooling.centre.assign(random.normal(size=6))
    pooling.scale.assign(0.3)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras", safe_mode=True)
    np.testing.assert_array_equal(again([features, MASK]), model([features, MASK]))
    assert again.get_layer("pooling").get_config() == pooling.get_config()
    assert pooling.get_config() | {"power": 0.5, "dropout": 0.1} == pooling.get_config()


def blocks(pooling, features):
    """Both parts of an embedding, each on the unit sphere, by numpy."""
    parts = []
    for kernel in (pooling.closed_form_kernel, pooling.kernel):
        mean = features.astype(np.float64).mean(axis=1)
        mean /= np.linalg.norm(mean, axis=1, keepdims=True)
        rows = (mean - pooling.centre.numpy()) * float(pooling.scale) @ kernel.numpy()
        parts.append(rows / np.linalg.norm(rows, axis=1, keepdims=True))
    return parts


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_cosines_are_the_weighted_mean_of_both_parts(random, features, weight):
    pooling = made(random, dimension=5, closed_form=2)
    pooling.begin_at(random.normal(size=(6, 2)))
    pooling.closed_form_weight.assign(weight)
    embeddings = np.asarray(pooling(features))
    fixed, learned = blocks(pooling, features)
    expected = weight * fixed @ fixed.T + (1 - weight) * learned @ learned.T
    np.testing.assert_allclose(embeddings @ embeddings.T, expected, atol=1e-5)


def test_training_neither_sees_nor_changes_the_closed_form(random, features):
    pooling = made(random, dimension=5, closed_form=2)
    pooling.begin_at(random.normal(size=(6, 2)))
    embeddings = np.asarray(pooling(features, training=True))
    np.testing.assert_array_equal(embeddings[:, :2], 0)
    np.testing.assert_allclose(embeddings[:, 2:], blocks(pooling, features)[1], atol=1e-5)
    assert [variable.name for variable in pooling.trainable_variables] == ["kernel"]
    assert pooling.kernel.shape == (6, 3)


def test_a_log_variance_has_no_closed_form(random, features):
    pooling = made(random, dimension=5, closed_form=2, power=0.5).for_variance()
    assert pooling(features).shape == (4, 5)
    assert (pooling.closed_form, pooling.power) == (0, 0.5)


def test_a_closed_form_leaves_something_to_learn():
    with pytest.raises(ValueError, match="closed_form: 5 leaves none of the 5 numbers"):
        Projection(5, closed_form=5)


def sides(random, count=30):
    """Poolings of both sides with CSLS, their features, and both parts of their embeddings."""
    poolings, features, joined = [], [], []
    for number, width in (20, 7), (25, 6):
        pooling = Projection(12, closed_form=3, local_scaling=count)
        inputs = random.normal(size=(number, 1, width)).astype(np.float32)
        pooling.build(inputs.shape)
        pooling.begin_at(random.normal(size=(width, 3)))
        poolings.append(pooling)
        features.append(inputs)
        joined.append(np.asarray(pooling(inputs))[:, :8] * 2**0.5)
    poolings[1].local_scaling.serve_captions()
    for number, pooling in enumerate(poolings):
        shifts = pooling.local_scaling.set_neighbours(joined[1 - number], joined[number])
        assert shifts.mean() == pytest.approx(0, abs=1e-6)
    return poolings, features, joined


@pytest.mark.parametrize("count", [4, 22, 30])
def test_local_scaling_is_that_of_conneau_et_al_2018(random, count):
    poolings, features, (images, captions) = sides(random, count)
    shifts = []
    for own, others in (images, captions), (captions, images):
        nearest = np.sort(own @ others[:count].T, axis=1)[:, -10:].mean(axis=1)
        shifts.append(nearest - nearest.mean())
    for pooling in poolings:
        pooling.local_scaling.weight.assign(1)
    left, right = (np.asarray(p(x)) for p, x in zip(poolings, features, strict=True))
    expected = images @ captions.T / 2 - (shifts[0][:, None] + shifts[1]) / 4
    np.testing.assert_allclose(left @ right.T, expected, atol=1e-6)
    assert np.ptp(expected - images @ captions.T / 2) > 0.01
    np.testing.assert_allclose(np.linalg.norm(np.r_[left, right], axis=1), 1, atol=1e-6)


def test_training_does_not_see_the_hubness(random):
    poolings, features, _ = sides(random)
    without = [np.asarray(p(x, training=True)) for p, x in zip(poolings, features, strict=True)]
    for pooling in poolings:
        pooling.local_scaling.weight.assign(1)
    again = [np.asarray(p(x, training=True)) for p, x in zip(poolings, features, strict=True)]
    np.testing.assert_array_equal(again[0], without[0])
    learned = [rows[:, 3:8] / np.linalg.norm(rows[:, 3:8], axis=1)[:, None] for rows in again]
    np.testing.assert_allclose(again[0] @ again[1].T, learned[0] @ learned[1].T / 2, atol=1e-6)
    assert [weight.name for weight in poolings[0].trainable_weights] == ["kernel"]


@pytest.mark.slow
def test_neighbours_are_saved_and_a_log_variance_has_none(random, tmp_path):
    poolings, features, _ = sides(random)
    poolings[0].local_scaling.weight.assign(1)
    inputs = keras.Input((1, 7))
    model = keras.Model(inputs, poolings[0](inputs))
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras", safe_mode=True)
    np.testing.assert_array_equal(again(features[0]), poolings[0](features[0]))
    assert poolings[0].for_variance().local_scaling is None
    with pytest.raises(ValueError, match="closed_form: 4, with 4 of local_scaling, leaves none"):
        Projection(8, closed_form=4, local_scaling=5)
    with pytest.raises(ValueError, match="no effect without closed_form"):
        Projection(8, local_scaling=5)
