"""Losses and matchers are compiled where shapes come again, and compute the same."""

from __future__ import annotations

import keras
import numpy as np
import pytest
from autodiff import gradients

from keras_xmr import losses, matchers
from keras_xmr.layers import compiled

BACKEND = keras.backend.backend()
IDS = np.array([0, 0, 1, 2])
COMPILES = BACKEND != "torch"

pytestmark = pytest.mark.usefixtures("compiled_parts")


def points(random, *sizes):
    return [random.normal(size=(size, 5)).astype(np.float32) for size in sizes]


def functions(part):
    """What a part has compiled."""
    return [entry for entry in part.compiled.values() if not isinstance(entry, int)]


def differentiated(function, arrays, variables):
    """The value and the gradients of a function in an eager call, also by variables."""
    if BACKEND != "jax":
        return gradients(function, arrays, variables)
    import jax

    def stateless(arrays, values):
        with keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True))):
            return function(*arrays)

    values = [variable.value for variable in variables]
    value, slopes = jax.value_and_grad(stateless, argnums=(0, 1))(arrays, values)
    return value, [slope for both in slopes for slope in both]


@pytest.mark.parametrize("how", ["image_ids", "positives"])
def test_compiled_calls_have_the_value_and_the_gradients(monkeypatch, random, how):
    loss, matcher = losses.InfoNCE(learnable=True), matchers.CosineLogits()
    more = {"image_ids": IDS} if how == "image_ids" else {"positives": np.arange(3)[:, None] == IDS}

    def value(images, captions):
        return loss(images, captions, matcher=matcher, **more)

    variables = [*loss.trainable_variables, *matcher.trainable_variables]
    for _ in range(4):
        arrays = points(random, 3, 4)
        with monkeypatch.context() as patch:
            patch.setattr(compiled, "_is_useful", lambda *_: False)
            expected, slopes = gradients(value, arrays, variables)
        found, ours = differentiated(value, arrays, variables)
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        for slope, one in zip(slopes, ours, strict=True):
            np.testing.assert_allclose(one, slope, rtol=1e-4, atol=1e-6)
        # It reads its weights in each call.
        for variable in variables:
            variable.assign(variable + 0.1)
    # A graph of JAX would list all pairs of a matrix.
    assert len(functions(loss)) == (COMPILES and (BACKEND, how) != ("jax", "positives"))


def test_options_and_steps_that_change_count(random):
    sides = keras.tree.map_structure(keras.ops.convert_to_tensor, points(random, 4, 4))
    loss = losses.Triplet(warmup_steps=2)

    def at(step):
        return float(loss(*sides, IDS, step=step))

    first, later = losses.Triplet(mining="sum"), losses.Triplet()
    warm, hard = (float(one(*sides, IDS)) for one in (first, later))
    assert warm != pytest.approx(hard)
    found = [at(step) for step in (0, 1, np.int64(0), 0, 2, 3, 9, np.int64(50))]
    np.testing.assert_allclose(found, [warm] * 4 + [hard] * 4, rtol=1e-5)
    assert len(functions(loss)) == 2 * COMPILES
    loss.margin = 1.0
    other = float(losses.Triplet(margin=1.0)(*sides, IDS))
    np.testing.assert_allclose([at(5) for _ in range(4)], other, rtol=1e-5)


def test_parts_of_ones_own_run_as_they_are_written(random):
    class Mine(losses.InfoNCE):
        """Counts its calls."""

        calls = 0

        def compute(self, *args):
            type(self).calls += 1
            return super().compute(*args)

    loss, sides = Mine(), points(random, 4, 4)
    for _ in range(4):
        loss(*sides)
    assert Mine.calls == 4
    assert not loss.compiled


def test_few_shapes_are_kept(monkeypatch, random):
    monkeypatch.setattr(compiled, "_KEPT", 2)
    matcher = matchers.Cosine()
    for size in (1, 2, 3, 3, 3, 2):
        images, captions = points(random, size, 2)
        scores = keras.ops.convert_to_numpy(matcher(images, captions))
        unit = [side / np.linalg.norm(side, axis=1)[:, None] for side in (images, captions)]
        np.testing.assert_allclose(scores, unit[0] @ unit[1].T, rtol=1e-5, atol=1e-6)
    assert len(matcher.compiled) == 2 * COMPILES


def test_noise_in_training_is_drawn_in_each_call(random):
    means, variances = points(random, 3, 3)
    gaussian = {"mean": means, "log_variance": variances}
    matcher = matchers.MatchProbability(samples=2)
    found = [matcher(gaussian, gaussian, training=True) for _ in range(4)]
    assert len({float(keras.ops.sum(scores)) for scores in found}) == 4
    matcher = matchers.SAF(similarity_dimension=4)
    tokens = {"tokens": random.normal(size=(3, 2, 5)).astype("f"), "mask": np.ones((3, 2), "f")}
    if BACKEND == "jax":
        return  # Its statistics are assigned in a `StatelessScope`.
    for _ in range(4):
        matcher(tokens, tokens, training=True)
    assert not functions(matcher)


def test_losses_that_share_weights_with_a_matcher_change_its_scores(random):
    means, variances = points(random, 3, 3)
    gaussian = {"mean": means, "log_variance": variances}
    loss, matcher = losses.MahalanobisContrastive(), matchers.MahalanobisCosine()
    matcher.share_parameters_with([loss])
    before = [float(keras.ops.sum(matcher(gaussian, gaussian))) for _ in range(3)]
    loss.temperature.assign(2.0 * keras.ops.convert_to_tensor(loss.temperature))
    assert float(keras.ops.sum(matcher(gaussian, gaussian))) != pytest.approx(before[-1])
    assert before[-1] == pytest.approx(before[0], rel=1e-5)
