"""Gradients are finite at zero vectors, at equal points and at ties, with any backend."""

from __future__ import annotations

import every_part
import keras
import numpy as np
import pytest
from autodiff import built, differentiated, evaluating

from keras_xmr import heads
from keras_xmr.heads import pooling as poolings

pytestmark = pytest.mark.slow  # Together 14 s.

JAX = keras.backend.backend() == "jax"
HEADS = {
    "AttentivePoint": lambda: heads.AttentivePoint(6, lambda: poolings.Mean(6)),
    "DynamicSubEmbeddings": lambda: heads.DynamicSubEmbeddings(
        6, lambda: poolings.Mean(6), set_size=3, activation="relu"
    ),
    "Gaussian": lambda: heads.Gaussian(6, lambda: poolings.Mean(6)),
    "Gaussian_relu": lambda: heads.Gaussian(6, lambda: poolings.Mean(6), variance="relu"),
    "Gaussian_softplus": lambda: heads.Gaussian(
        6, lambda: poolings.Mean(6), variance="softplus", rezero=True
    ),
    "PIENet": lambda: heads.PIENet(6, lambda: poolings.Mean(6), set_size=3),
    "Point": lambda: heads.Point(6, lambda: poolings.Mean(6)),
    "Point_gpo": lambda: heads.Point(6, lambda: poolings.GPO(6)),
    "Rectangle": lambda: heads.Rectangle(6, lambda: poolings.Mean(6)),
    "SlotAttention": lambda: heads.SlotAttention(
        6, lambda: poolings.Mean(6), set_size=2, iterations=1, heads=1, head_dimension=4
    ),
    "Tokens": lambda: heads.Tokens(6),
}


def degenerate(embeddings):
    """Embeddings with a zero vector, with zeros alone, and of items that are all equal."""
    flat = [array for side in embeddings for array in side.values()]
    # Of both sides, where these have the same keys: images equal captions, too.
    first = {key: array[:1] for side in embeddings for key, array in side.items()}
    keys = [key for side in embeddings for key in side]
    one = [np.concatenate([0 * array[:1], array[1:]]) for array in flat]
    equal = [np.repeat(first[key], len(a), axis=0) for key, a in zip(keys, flat, strict=True)]
    return {"one zero": one, "zeros": [0 * array for array in flat], "equal": equal}


def check(value, embeddings, variables):
    """Differentiates a function of both embeddings where they are degenerate."""
    keys = [list(side) for side in embeddings]

    def of_arrays(*arrays):
        split = len(keys[0])
        sides = (
            dict(zip(names, part, strict=True))
            for names, part in zip(keys, (arrays[:split], arrays[split:]), strict=True)
        )
        return value(*sides)

    differentiate = differentiated(of_arrays, variables)
    for name, arrays in degenerate(embeddings).items():
        found, slopes = differentiate(arrays)
        assert np.isfinite(found), (name, found)
        assert all(np.isfinite(slope).all() for slope in slopes), name


@pytest.mark.parametrize("name", every_part.LOSSES)
def test_gradients_of_losses(name, random):
    case = every_part.LOSSES[name]
    embeddings, more = every_part.sides(case, random), every_part.relevance(case, random)
    loss, matcher = case.make(), case.matcher and evaluating(case.matcher())
    if not loss.built:
        shapes = ({key: array.shape for key, array in side.items()} for side in embeddings)
        loss.build((4, 5), *shapes)

    def value(image, caption):
        return loss(image, caption, every_part.IMAGE_IDS, matcher=matcher, **more)

    variables = [*loss.trainable_variables, *(matcher.trainable_variables if matcher else ())]
    check(value, embeddings, variables)


# SGRAF is the mean of the two before it.
MATCHERS = [
    pytest.param(name, marks=pytest.mark.heavy) if name == "SGRAF" else name
    for name in every_part.MATCHERS
]


@pytest.mark.parametrize("name", MATCHERS)
def test_gradients_of_matchers(name, random):
    case = every_part.MATCHERS[name]
    image, caption = every_part.sides(case, random)
    matcher = evaluating(case.make())
    shapes = ({key: array.shape for key, array in side.items()} for side in (image, caption))
    if not matcher.built:
        matcher.build(*shapes)
    weigh = random.normal(size=(4, 5)).astype(np.float32)

    def value(image, caption):
        return keras.ops.sum(keras.ops.multiply(matcher(image, caption), weigh))

    check(value, (image, caption), matcher.trainable_variables)


@pytest.mark.parametrize("name", HEADS)
def test_gradients_of_heads(name, random):
    features = random.normal(size=(4, 3, 6)).astype(np.float32)
    head = built(HEADS[name](), features)

    def value(features, _):
        outputs = head(features["features"], mask=keras.ops.ones((4, 3), "bool"))
        return sum(keras.ops.sum(keras.ops.square(one)) for one in outputs.values())

    check(value, ({"features": features}, {"unused": features}), head.trainable_variables)


@pytest.mark.skipif(JAX, reason="takes long to compile; SAF and SGR: test_training_loops.py")
@pytest.mark.parametrize("name", [*every_part.LOSSES, *MATCHERS])
def test_every_weight_has_a_gradient(name, random):
    keras.utils.set_random_seed(1)  # With others ReLUs let no gradient through for some weights.
    is_loss = name in every_part.LOSSES
    case = (every_part.LOSSES if is_loss else every_part.MATCHERS)[name]
    sides, more = every_part.sides(case, random), every_part.relevance(case, random)
    part, matcher = evaluating(case.make()), case.matcher and evaluating(case.matcher())
    if not part.built:
        shapes = [{key: array.shape for key, array in side.items()} for side in sides]
        part.build(*([None] if is_loss else []), *shapes)
    keys = [list(side) for side in sides]
    weigh = random.normal(size=(4, 5)).astype(np.float32)

    def value(*arrays):
        split = len(keys[0])
        pairs = zip(keys, (arrays[:split], arrays[split:]), strict=True)
        image, caption = (dict(zip(names, given, strict=True)) for names, given in pairs)
        if is_loss:
            return part(image, caption, every_part.IMAGE_IDS, matcher=matcher, **more)
        return keras.ops.sum(keras.ops.multiply(part(image, caption), weigh))

    variables = [*part.trainable_variables, *(matcher.trainable_variables if matcher else ())]
    arrays = [array for side in sides for array in side.values()]
    check_weights(value, arrays, variables, random)


def check_weights(value, arrays, variables, random):
    for variable in variables:
        moved = 0.3 * random.normal(size=variable.shape)
        variable.assign(keras.ops.convert_to_numpy(variable) + moved.astype(np.float32))
    _, slopes = differentiated(value, variables)(arrays)
    slopes = slopes[len(arrays) :]
    every_part.check_slopes([one.path for one in variables], slopes, every_part.IDLE)


@pytest.mark.skipif(JAX, reason="takes long to compile")
@pytest.mark.parametrize("name", HEADS)
def test_every_weight_of_a_head_has_a_gradient(name, random):
    keras.utils.set_random_seed(0)
    features = random.normal(size=(4, 3, 6)).astype(np.float32)
    head = built(HEADS[name](), features)
    weigh = random.normal(size=(4, 3, 6)).astype(np.float32)

    def value(features):
        outputs = head(features, mask=keras.ops.ones((4, 3), "bool"))
        return sum(
            keras.ops.sum(
                keras.ops.multiply(one, weigh[:, :1] if len(one.shape) == 3 else weigh[:, 0])
            )
            for key, one in outputs.items()
            if key != "mask"
        )

    check_weights(value, [features], head.trainable_variables, random)
