"""Losses and matchers in graphs equal eager calls: ids and matches are tensors there."""

from __future__ import annotations

import every_part
import keras
import numpy as np
import pytest
from backend_matrix import compiled, tensors

from keras_xmr import losses, matchers

BACKEND = keras.backend.backend()


@pytest.mark.parametrize("name", ["InfoNCE", "Triplet", "SmoothAP", "SoftContrastive_mean"])
def test_a_graph_takes_matches(name, random):
    case = every_part.LOSSES[name]
    image, caption = tensors(every_part.sides(case, random))
    loss, matcher = case.make(), case.matcher and case.matcher()
    positives = np.arange(every_part.IMAGES)[:, None] == every_part.IMAGE_IDS
    positives[0, 4] = True

    def value(image, caption, positives):
        return loss(image, caption, positives=positives, matcher=matcher)

    given = image, caption, keras.ops.convert_to_tensor(positives)
    expected, found = map(keras.ops.convert_to_numpy, (value(*given), compiled(value)(*given)))
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("training", [True, False])
def test_a_step_of_training_compiles(random, training):
    if BACKEND != "torch":
        pytest.skip("of PyTorch")
    import torch

    torch._dynamo.reset()
    case = every_part.LOSSES["SoftContrastive"]
    image, caption = tensors(every_part.sides(case, random))
    loss, matcher = losses.SoftContrastive(), matchers.MatchProbability().train(training)
    step = torch.compile(
        lambda *given: loss(*given, matcher=matcher), fullgraph=True, backend="eager"
    )
    values = [float(step(image, caption, torch.tensor(every_part.IMAGE_IDS))) for _ in range(2)]
    assert (values[0] != values[1]) == training


@pytest.mark.slow
def test_a_tensor_counts_steps_in_one_graph(random):
    if BACKEND != "torch":
        pytest.skip("of PyTorch")
    import torch

    torch._dynamo.reset()
    sides = [torch.tensor(random.normal(size=(4, 3)), dtype=torch.float32) for _ in range(2)]
    loss = losses.Triplet(warmup_steps=2)
    graphs = []

    def count(module, inputs):
        graphs.append(module)
        return module.forward

    step = torch.compile(
        lambda *given: loss(*given[:2], step=given[2]), fullgraph=True, backend=count
    )
    found = [step(*sides, torch.tensor(number)).item() for number in range(4)]
    assert found == pytest.approx([loss(*sides, step=number).item() for number in range(4)])
    assert found[0] > found[-1]
    assert len(graphs) == 1


@pytest.mark.parametrize("name", ["SAF", "SGR"])
def test_a_matcher_of_tokens_compiles_in_training(name, random):
    if BACKEND != "torch":
        pytest.skip("of PyTorch")
    case = every_part.MATCHERS[name]
    sides, matcher = tensors(every_part.sides(case, random)), case.make().train()
    matcher(*sides)
    norm = matcher.image_attention.mean_norm
    before = [keras.ops.convert_to_numpy(one).copy() for one in norm.variables[2:]]
    step = compiled(matcher)
    scores = [step(*sides) for _ in range(2)]
    assert not scores[0].equal(scores[1])
    scores[0].sum().backward()
    after = [keras.ops.convert_to_numpy(one) for one in norm.variables[2:]]
    assert all((old != new).any() for old, new in zip(before, after, strict=True))


@pytest.mark.skipif(BACKEND != "jax", reason="a transformation of JAX")
def test_a_compiled_function_has_gradients(random):
    import jax

    case = every_part.LOSSES["DAA"]
    given = every_part.sides(case, random)
    loss, more = case.make(), every_part.relevance(case, random)

    def value(image, caption):
        return loss(image, caption, every_part.IMAGE_IDS, **more)

    expected, found = (jax.jit(jax.grad(one))(*given)["mean"] for one in (value, jax.jit(value)))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
