"""Losses and matchers in loops of PyTorch and JAX."""

from __future__ import annotations

import every_part
import keras
import numpy as np
import pytest
from autodiff import evaluated

from keras_xmr import heads, losses, matchers
from keras_xmr.heads import pooling as poolings
from keras_xmr.utils.errors import ArgumentError

BACKEND = keras.backend.backend()
torch_only = pytest.mark.skipif(BACKEND != "torch", reason="of PyTorch")
jax_only = pytest.mark.skipif(BACKEND != "jax", reason="of JAX")
IMAGE_IDS = np.array([0, 0, 1, 2, 3, 3])


@pytest.fixture
def unit(random):
    images, captions = random.normal(size=(4, 8)), random.normal(size=(6, 8))
    return tuple(
        (v / np.linalg.norm(v, axis=1, keepdims=True)).astype(np.float32)
        for v in (images, captions)
    )


@torch_only
def test_a_loss_with_its_matcher_trains_by_backward(unit):
    import torch

    images, captions = (torch.tensor(side, requires_grad=True) for side in unit)
    matcher, loss = matchers.MeanOnly(scale=5.0, shift=5.0), losses.SoftContrastive()
    assert isinstance(matcher, torch.nn.Module)
    assert set(matcher.state_dict()) == {"scale", "shift"}
    optimizer = torch.optim.SGD([images, captions, *matcher.parameters()], 0.001)
    values = []
    for _ in range(5):
        optimizer.zero_grad()
        value = loss(images, captions, IMAGE_IDS, matcher=matcher)
        value.backward()
        optimizer.step()
        values.append(float(value.detach()))
    assert np.diff(values).max() < 0
    kept = {name: tensor.clone() for name, tensor in matcher.state_dict().items()}
    other = matchers.MeanOnly()
    other.load_state_dict(kept)
    np.testing.assert_array_equal(other(*unit).detach().numpy(), matcher(*unit).detach().numpy())


@torch_only
def test_learned_numbers_of_a_loss_are_parameters(unit):
    import torch

    loss = losses.InfoNCE(learnable=True)
    assert len(list(loss.parameters())) == 1
    loss(*map(torch.tensor, unit), IMAGE_IDS).backward()
    assert all(torch.isfinite(one.grad).all() for one in loss.parameters())


@torch_only
def test_a_head_is_a_module(random):
    import torch

    head = heads.Gaussian(5, lambda: poolings.Mean(5))
    features = torch.tensor(random.normal(size=(3, 7, 4)), dtype=torch.float32)
    made = head(features)
    assert isinstance(head, torch.nn.Module)
    (made["mean"].sum() + made["log_variance"].sum()).backward()
    assert sum(one.grad is not None for one in head.parameters()) > 4


@torch_only
@pytest.mark.parametrize(
    "name", ["InfoNCE", "Triplet", "SmoothAP", "SoftContrastive", "Uniformity"]
)
def test_half_precision_gives_finite_losses(unit, name):
    import torch

    matcher = matchers.MeanOnly() if name == "SoftContrastive" else None

    images, captions = (torch.tensor(side, requires_grad=True) for side in unit)
    with torch.autocast("cpu", torch.bfloat16):
        value = getattr(losses, name)()(images, captions, IMAGE_IDS, matcher=matcher)
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(images.grad).all()


@torch_only
@pytest.mark.parametrize("name", ["SAF", "SGR", "SGRAF"])
def test_a_matcher_of_tokens_trains_with_dropout(random, name):
    import torch

    matcher = getattr(matchers, name)(similarity_dimension=4)
    values = torch.tensor(random.normal(size=(2, 5, 3, 8)), dtype=torch.float32)
    sides = [{"tokens": side, "mask": torch.ones(5, 3)} for side in values.requires_grad_()]
    states = [matcher.saf if name == "SGRAF" else matcher] * (name != "SGR")
    for _ in range(2):
        before = [float(state.moving_mean.numpy()) for state in states]
        scores = matcher(*sides)
        scores.sum().backward()
        assert [float(state.moving_mean.numpy()) for state in states] != before or not states
    assert torch.isfinite(values.grad).all()
    assert values.grad.abs().sum() > 0


@jax_only
def test_learned_numbers_are_trained_without_state(unit):
    import jax

    loss = losses.Functional(losses.SoftContrastive(), matchers.MeanOnly(scale=5.0, shift=5.0))
    weights, state = loss.init(*unit)
    slope = jax.jit(jax.value_and_grad(loss, has_aux=True))
    values = []
    for _ in range(5):
        (value, state), slopes = slope(weights, state, *unit, IMAGE_IDS)
        weights = [w - 0.01 * one for w, one in zip(weights, slopes, strict=True)]
        values.append(float(value))
    assert np.diff(values).max() < 0


@jax_only
@pytest.mark.parametrize("name", ["SAF", "SGR"])
def test_every_weight_of_a_matcher_of_tokens_has_a_gradient(random, name):
    import jax

    case = every_part.MATCHERS[name]
    images, captions = every_part.sides(case, random)
    loss = losses.Functional(losses.SmoothAP(temperature=0.1), case.make())
    weights, state = loss.init(images, captions)

    @jax.jit
    def step(weights, state):
        return jax.grad(loss, has_aux=True)(
            weights, state, images, captions, every_part.IMAGE_IDS, training=True, seed=(1, 2)
        )

    slopes, moved = step(weights, state)
    paths = [one.path for one in loss.matcher.trainable_variables]
    every_part.check_slopes(paths, slopes, every_part.IDLE | every_part.IDLE_IN_TRAINING)
    # These biases are no parameters, but they are of the state; no step moves one.
    constant = ("key_0/bias", "key_1/bias")
    paths = [one.path for one in loss.matcher.non_trainable_variables]
    for path, old, new in zip(paths, state, moved, strict=True):
        assert np.any(old != new) != path.endswith(constant), path
    loss.assign(weights, moved)
    with pytest.raises(ArgumentError, match=r"use keras_xmr\.losses\.Functional"):
        jax.jit(lambda *sides: loss.loss(*sides, matcher=matchers.NAAF(), training=True))(
            captions, captions
        )


@jax_only
@pytest.mark.parametrize("mining", ["sum", "hardest"])
def test_compiled_losses_take_matches_that_are_not_known(unit, mining):
    import jax

    loss, positives = losses.Triplet(mining=mining), np.equal.outer(np.arange(4), IMAGE_IDS)
    compiled = jax.jit(lambda i, c, known: loss(i, c, positives=known))
    of_ids = jax.jit(lambda i, c: loss(i, c, IMAGE_IDS))
    np.testing.assert_allclose(compiled(*unit, positives), of_ids(*unit), rtol=1e-5)


def test_a_seed_gives_the_same_samples(random):
    mean, log_variance = random.normal(size=(2, 4, 8)).astype(np.float32)
    gaussian = {"mean": mean, "log_variance": log_variance}
    matcher, loss = matchers.MatchProbability(), losses.SoftContrastive()
    generator = keras.random.SeedGenerator(3)

    def draw(gaussian):
        seeds = (1, 1, 2, generator, generator)
        drawn = [matcher.prepare(gaussian, "image", seed, training=True) for seed in seeds]
        value = loss(gaussian, gaussian, matcher=matcher, seed=generator, training=True)
        return [one["samples"] for one in drawn], value

    (once, again, other, first, second), value = evaluated(draw, gaussian)
    np.testing.assert_array_equal(once, again)
    assert (once != other).any()
    assert (first != second).any()
    assert np.isfinite(value)


def test_log_odds_need_a_matcher(unit):
    with pytest.raises(ArgumentError, match=r"reads scores as log-odds .*CosineLogits\(\)"):
        losses.SoftContrastive()(*unit, IMAGE_IDS)
