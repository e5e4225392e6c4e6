"""The optimizers."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from keras_xmr.optimizers import Adam, AdamP, AdamW

NAMES = ("conv", "dense", "dense_si", "dense_layer", "bias", "conv_si")


def keras_layout(name: str, values: np.ndarray) -> np.ndarray:
    """Output channels first in PyTorch, last in Keras."""
    if "conv" in name:
        return values.transpose(2, 3, 1, 0)
    return values.T if values.ndim == 2 else values


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["A", "B", "C"])
def test_adamp_matches_golden(golden, setting):
    case = golden("adamp")
    rate, beta_1, beta_2, epsilon, decay, delta, ratio, nesterov = case[f"in_{setting}_hyper"]
    optimizer = AdamP(
        rate,
        beta_1=beta_1,
        beta_2=beta_2,
        epsilon=epsilon,
        weight_decay=decay,
        delta=delta,
        wd_ratio=ratio,
        nesterov=bool(nesterov),
    )
    variables = [
        keras.Variable(keras_layout(n, case.f32(f"in_init_{n}")), name="kernel") for n in NAMES
    ]
    for step in range(20):
        gradients = [keras_layout(n, case.f32(f"in_{setting}_grads_{n}")[step]) for n in NAMES]
        optimizer.apply(gradients, variables)
        for name, variable in zip(NAMES, variables, strict=True):
            expected = keras_layout(name, case[f"out_{setting}_params_{name}"][step])
            np.testing.assert_allclose(
                variable.numpy(), expected, rtol=1e-4, atol=1e-5, err_msg=f"{name}, step {step}"
            )


def test_adamp_leaves_the_norm_of_scale_invariant_weights(random):
    weight = keras.Variable(random.normal(size=(6, 4)).astype(np.float32), name="kernel")
    norms = np.linalg.norm(weight.numpy(), axis=0)
    value = weight.numpy()
    gradient = random.normal(size=(6, 4)).astype(np.float32)
    gradient -= value * (gradient * value).sum(0) / (value**2).sum(0)  # orthogonal, by channel
    AdamP(1e-3).apply([gradient], [weight])
    np.testing.assert_allclose(np.linalg.norm(weight.numpy(), axis=0), norms, rtol=1e-5)
    plain = keras.Variable(value, name="kernel")
    Adam(1e-3).apply([gradient], [plain])
    assert np.abs(np.linalg.norm(plain.numpy(), axis=0) - norms).max() > 1e-4


def test_words_of_an_embedding_and_biases_are_not_output_channels(random):
    # The gradient is orthogonal word by word, not column by column.
    value = random.normal(size=(5, 3)).astype(np.float32)
    gradient = random.normal(size=(5, 3)).astype(np.float32)
    gradient -= value * ((gradient * value).sum(1) / (value**2).sum(1))[:, None]
    words = keras.Variable(value, name="embeddings")
    AdamP(1e-3).apply([gradient], [words])
    before, after = (np.linalg.norm(x, axis=1) for x in (value, words.numpy()))
    np.testing.assert_allclose(after, before, rtol=1e-5)
    bias, adam = keras.Variable(value, name="bias"), keras.Variable(value, name="bias")
    AdamP(1e-3).apply([gradient], [bias])
    Adam(1e-3).apply([gradient], [adam])
    np.testing.assert_allclose(bias.numpy(), adam.numpy(), rtol=1e-4)


@pytest.mark.parametrize("make", [Adam, AdamP, AdamW])
def test_parts_have_learning_rates_of_their_own(random, make):
    start = random.normal(size=(4, 3)).astype(np.float32)
    gradient = random.normal(size=(4, 3)).astype(np.float32)
    slow, fast, still = (keras.Variable(start, name=n) for n in ("slow", "fast", "still"))
    optimizer = make(1e-2)
    optimizer.set_factors([(slow, 0.5), (slow, 0.1), (still, 0.0)])
    optimizer.apply([gradient] * 3, [slow, fast, still])
    alone = keras.Variable(start, name="alone")
    make(1e-3).apply([gradient], [alone])
    np.testing.assert_allclose(slow.numpy(), alone.numpy(), rtol=1e-5)
    np.testing.assert_array_equal(still.numpy(), start)
    assert np.abs(fast.numpy() - start).mean() > 5 * np.abs(slow.numpy() - start).mean()


def test_adamw_equals_keras(random):
    start = random.normal(size=(4, 3)).astype(np.float32)
    ours, theirs = keras.Variable(start), keras.Variable(start)
    optimizers = (
        AdamW(1e-2, weight_decay=0.1),
        keras.optimizers.AdamW(1e-2, weight_decay=0.1, epsilon=1e-8),
    )
    for _ in range(5):
        gradient = random.normal(size=(4, 3)).astype(np.float32)
        optimizers[0].apply([gradient], [ours])
        optimizers[1].apply([gradient], [theirs])
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5)


@pytest.mark.parametrize("optimizer", [Adam(0.1, beta_1=0.5), AdamP(0.1, delta=0.2), AdamW(0.1)])
def test_optimizer_survives_its_config(optimizer):
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(optimizer))
    assert copy.get_config() == optimizer.get_config()
