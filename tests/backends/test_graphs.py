"""Losses and matchers in graphs equal eager calls: ids and matches are tensors there."""

from __future__ import annotations

import every_part
import keras
import numpy as np
import pytest

from keras_xmr import losses, matchers

BACKEND = keras.backend.backend()


def convert(tree):
    return keras.tree.map_structure(keras.ops.convert_to_tensor, tree)


def compiled(function):
    if BACKEND == "torch":
        import torch

        torch._dynamo.reset()
        return torch.compile(function, fullgraph=True, backend="eager")
    if BACKEND == "jax":
        import jax

        return jax.jit(function)
    import tensorflow as tf

    return tf.function(function)


def calls(name, random):
    """A function of both embeddings and further tensors, with ids and with matches."""
    if name in every_part.MATCHERS:
        case = every_part.MATCHERS[name]
        return case, [(case.make(), ())]
    case = every_part.LOSSES[name]
    loss, matcher = case.make(), case.matcher and case.matcher()
    more = every_part.relevance(case, random)
    ids = np.int32(every_part.IMAGE_IDS)
    positives = np.arange(every_part.IMAGES)[:, None] == ids

    def by_ids(image, caption, ids, more):
        return loss(image, caption, ids, matcher=matcher, training=False, **more)

    def by_matches(image, caption, positives, more):
        return loss(image, caption, positives=positives, matcher=matcher, training=False, **more)

    return case, [(by_ids, (ids, more)), (by_matches, (positives, more))]


# JAX compiles every operation of the eager call.
IN_JAX = ("NTXent", "SmoothAP", "SoftContrastive", "HypergraphContrastive", "Cosine", "MaxCosine")
NAMES = IN_JAX if BACKEND == "jax" else [*every_part.LOSSES, *every_part.MATCHERS]


@pytest.mark.parametrize("name", NAMES)
def test_a_graph_gives_the_eager_value(name, random):
    case, functions = calls(name, random)
    image, caption = convert(every_part.sides(case, random))
    for function, more in functions:
        if isinstance(function, matchers.Matcher):
            part = function

            def function(image, caption, part=part):
                return part(image, caption, training=False)

        more = convert(more)
        expected = function(image, caption, *more)  # Makes weights, too.
        found = compiled(function)(image, caption, *more)
        expected, found = map(keras.ops.convert_to_numpy, (expected, found))
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", every_part.LOSSES)
def test_gradients_of_functions(name, random):
    if BACKEND != "torch":
        pytest.skip("of PyTorch")
    import torch

    case, functions = calls(name, random)
    sides = convert(every_part.sides(case, random))
    for function, more in functions:
        more = convert(more)
        function(*sides, *more)
        found = torch.func.grad(function, argnums=(0, 1))(*sides, *more)
        leaves = [
            {key: value.clone().requires_grad_() for key, value in side.items()} for side in sides
        ]
        flat = keras.tree.flatten(leaves)
        expected = torch.autograd.grad(
            function(*leaves, *more), flat, allow_unused=True, materialize_grads=True
        )
        for one, other in zip(keras.tree.flatten(list(found)), expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("training", [True, False])
def test_a_step_of_training_compiles(random, training):
    if BACKEND != "torch":
        pytest.skip("of PyTorch")
    import torch

    torch._dynamo.reset()
    case = every_part.LOSSES["SoftContrastive"]
    image, caption = convert(every_part.sides(case, random))
    loss, matcher = losses.SoftContrastive(), matchers.MatchProbability().train(training)
    step = torch.compile(
        lambda *given: loss(*given, matcher=matcher), fullgraph=True, backend="eager"
    )
    values = [float(step(image, caption, torch.tensor(every_part.IMAGE_IDS))) for _ in range(2)]
    assert (values[0] != values[1]) == training
