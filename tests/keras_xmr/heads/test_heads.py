"""The Gaussian head, its poolings and its attention."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
import torch_layout
from torch_layout import Weights

from keras_xmr.encoders import VSRN, InputSpec
from keras_xmr.heads import Gaussian, Point
from keras_xmr.heads import pooling as poolings
from keras_xmr.layers import LocalAttention


def scalar_gradients(head, features, mask, cotangents, variables):
    """Gradients of sum(mean * c) + sum(log_variance * c'), by the inputs and some variables."""
    features = tf.constant(features)
    with tf.GradientTape() as tape:
        tape.watch(features)
        out = head(features, mask=mask)
        scalar = tf.reduce_sum(out["mean"] * cotangents[0])
        scalar += tf.reduce_sum(out["log_variance"] * cotangents[1])
    return out, tape.gradient(scalar, [features, *variables])


def test_masked_image_attention_matches_golden(golden):
    # The reference masks the attention only, not the average pooling.
    case = golden("pcme_head_image")
    features = case.f32("in_feature_map").reshape(5, 49, 24)
    attention = LocalAttention()
    mask = ~case["in_pad_mask"].astype(bool)
    attention(features, mask=mask)
    for prefix, key in (
        ("pie_net.attention", "out_masked_attention"),
        ("uncertain_net.attention", "out_masked_logsigma_attention"),
    ):
        torch_layout.load_attention(attention, Weights(case), prefix)
        _, found = attention(features, mask=mask)
        np.testing.assert_allclose(found[:, 0], case[key][..., 0], rtol=1e-4, atol=1e-5)
        assert (np.asarray(found)[:, 0][~mask] == 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("masked", [False, True])
def test_text_head_matches_golden(golden, masked):
    case = golden("pcme_head_text")
    words = case.f32("in_word_embeddings")
    mask = ~case["in_pad_mask"].astype(bool) if masked else None
    head = Gaussian(16, lambda: poolings.BiGRU(16, final_state="released"))
    head(words, mask=mask)
    weights = Weights(case)
    torch_layout.load_gaussian(head, weights)
    for pooling, prefix in (
        (head.mean_pooling, "rnn"),
        (head.log_variance_pooling, "uncertain_net.rnn"),
    ):
        torch_layout.gru(pooling.forward_gru, weights, prefix, "")
        torch_layout.gru(pooling.backward_gru, weights, prefix, "_reverse")
    tag = "masked_" if masked else ""
    cotangents = case.f32("in_cotangent_mean"), case.f32("in_cotangent_logsigma")
    kernel = head.mean_pooling.forward_gru.cell.recurrent_kernel.value
    out, (by_words, by_kernel) = scalar_gradients(head, words, mask, cotangents, [kernel])
    np.testing.assert_allclose(out["mean"], case[f"out_{tag}mean"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        out["log_variance"], case[f"out_{tag}logsigma"], rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(by_words, case[f"grad_{tag}word_embeddings"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        torch_layout.gru_gradient(by_kernel.numpy()),
        case[f"grad_{tag}rnn.weight_hh_l0"],
        rtol=1e-4,
        atol=1e-5,
    )


POOLINGS = {
    "mean": lambda: poolings.Mean(8),
    "rectified_mean": lambda: poolings.RectifiedMean(8),
    "attention": lambda: poolings.Attention(8),
    "bi_gru": lambda: poolings.BiGRU(8),
    "bi_gru_released": lambda: poolings.BiGRU(8, final_state="released"),
    "gru": lambda: poolings.GRU(8),
    "gpo": lambda: poolings.GPO(8, encoding=4, hidden=4),
    "vsrn_pooling": lambda: poolings.VSRNPooling(8, blocks=2),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", POOLINGS)
def test_padding_never_changes_a_pooled_vector(random, name):
    pooling = POOLINGS[name]()
    words = random.normal(size=(3, 5, 6)).astype(np.float32)
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]], bool)
    short = np.asarray(pooling(words, mask=mask))
    padded = np.concatenate([words, random.normal(size=(3, 4, 6)).astype(np.float32)], axis=1)
    padded = np.where(np.pad(mask, ((0, 0), (0, 4)))[..., None], padded, 1e3)
    longer = np.asarray(pooling(padded.astype(np.float32), mask=np.pad(mask, ((0, 0), (0, 4)))))
    # Up to the order in which a longer row is summed; a padding of 1e3 that leaked would be seen.
    np.testing.assert_allclose(short, longer, rtol=1e-5, atol=1e-6)
    # The item that is as long as its batch is read as if there were no mask.
    np.testing.assert_allclose(short[:1], pooling(words[:1]), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_both_final_states_have_read_the_whole_sequence(random):
    words = random.normal(size=(1, 6, 4)).astype(np.float32)
    pooling = poolings.BiGRU(8)
    before = np.asarray(pooling(words))
    words[0, 2] += 1.0
    changed = np.abs(np.asarray(pooling(words)) - before)[0] > 1e-6
    assert changed.all()
    released = poolings.BiGRU(8, final_state="released")
    before = np.asarray(released(words))
    words[0, 2] += 1.0
    changed = np.abs(np.asarray(released(words)) - before)[0] > 1e-6
    assert changed[:4].all()
    assert not changed[4:].any()


def test_rectified_mean_averages_rectified_unit_vectors_of_what_counts(random):
    features = random.normal(size=(3, 5, 4)).astype(np.float32)
    mask = np.arange(5) < np.array([[5], [2], [1]])
    pooling = poolings.RectifiedMean(6)
    pooling(features)
    kernel, bias = pooling.get_weights()
    bias[:] = random.normal(size=6)
    pooling.set_weights([kernel, bias])
    found = pooling(features, mask=mask)
    for item, counts, vector in zip(features, mask, found, strict=True):
        rows = [row @ kernel + bias for row in item[counts]]
        expected = np.mean([np.maximum(row / np.linalg.norm(row), 0) for row in rows], axis=0)
        np.testing.assert_allclose(vector, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_vsrn_over_places_is_its_encoder_and_a_gru(random):
    places = random.normal(size=(3, 5, 6)).astype(np.float32)
    pooling = poolings.VSRNPooling(8, blocks=2)
    pooling(places)
    pooling.set_weights([random.uniform(0.1, 1, weight.shape) for weight in pooling.weights])
    regions = keras.Input((5, 6))
    encoder = VSRN(dimension=8, blocks=2)
    features, mask = encoder.features(regions, InputSpec(regions=(5, 6)))
    published = keras.Model(regions, poolings.GRU(8, batch_norm=True)(features, mask=mask))
    assert published.count_params() == pooling.count_params()
    published.set_weights(pooling.get_weights())
    np.testing.assert_allclose(pooling(places), published(places), rtol=1e-5)


@pytest.mark.slow
def test_variance_can_be_read_by_a_bi_gru_of_its_own(random):
    features = random.normal(size=(2, 5, 4)).astype(np.float32)
    mask = np.arange(5) < np.array([[5], [3]])
    head = Gaussian(
        8,
        lambda: poolings.RectifiedMean(8),
        variance_pooling="bi_gru",
        local_attention=False,
        initial_log_variance=-2.0,
    )
    found = head(features, mask=mask)
    reader = poolings.BiGRU(8)
    reader(features)
    reader.set_weights(head.log_variance_pooling.get_weights())
    np.testing.assert_allclose(
        found["log_variance"], np.asarray(reader(features, mask=mask)) - 2.0, rtol=1e-5
    )
    pooled = np.asarray(head.mean_pooling(features, mask=mask))
    centred = pooled - pooled.mean(axis=1, keepdims=True)
    expected = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    np.testing.assert_allclose(found["mean"], expected, rtol=1e-3, atol=1e-4)
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(head))
    assert isinstance(copy.log_variance_pooling, poolings.BiGRU)


@pytest.mark.slow
@pytest.mark.parametrize("local_attention", [True, False])
def test_gaussian_head_is_a_unit_mean_and_a_log_variance(random, local_attention):
    head = Gaussian(8, lambda: poolings.Mean(8), local_attention=local_attention)
    features = random.normal(size=(4, 5, 6)).astype(np.float32)
    out = head(features)
    np.testing.assert_allclose(np.linalg.norm(out["mean"], axis=1), 1, rtol=1e-5)
    assert out["log_variance"].shape == (4, 8)
    lower = Gaussian(
        8, lambda: poolings.Mean(8), local_attention=local_attention, initial_log_variance=-5.0
    )
    lower(features)
    lower.set_weights(head.get_weights())
    np.testing.assert_allclose(
        lower(features)["log_variance"], np.asarray(out["log_variance"]) - 5.0, rtol=1e-4
    )


@pytest.mark.parametrize("variance", ["exponential", "softplus", "relu"])
@pytest.mark.parametrize("start", [-7.0, 0.0, 3.0])
def test_variance_starts_where_it_is_told_and_stays_above_its_floor(random, variance, start):
    head = Gaussian(
        4,
        lambda: poolings.Mean(4),
        local_attention=False,
        variance=variance,
        initial_log_variance=start,
        **({} if variance == "exponential" else {"variance_floor": 1e-6}),
    )
    features = tf.constant(random.normal(size=(2, 3, 4)), tf.float32)
    head(features)
    kernel, bias = head.log_variance_pooling.linear.weights
    kernel.assign(np.zeros((4, 4)))
    np.testing.assert_allclose(head(features)["log_variance"], start, atol=2e-3)
    bias.assign(np.full(4, -1e3))
    with tf.GradientTape() as tape:
        out = head(features)["log_variance"]
    gradient = tape.gradient(out, bias.value)
    assert np.isfinite(gradient).all()
    lowest = -1e3 + start if variance == "exponential" else np.log(1e-6)
    np.testing.assert_allclose(out, lowest, rtol=1e-3)


@pytest.mark.slow
def test_softplus_and_relu_are_variances(random):
    features = random.normal(size=(6, 3, 4)).astype(np.float32)
    heads = {
        variance: Gaussian(8, lambda: poolings.Mean(8), variance=variance, normalize=False)
        for variance in ("exponential", "softplus", "relu")
    }
    heads["relu"](features)
    for head in heads.values():
        head(features)
        head.set_weights(heads["relu"].get_weights())
    raw = np.asarray(heads["exponential"](features)["log_variance"])
    expected = {
        "softplus": np.log1p(np.exp(raw + np.log(np.e - 1))) + 1e-4,
        "relu": np.maximum(raw + 1, 0) + 1e-4,
    }
    for variance, values in expected.items():
        out = heads[variance](features)
        np.testing.assert_allclose(np.exp(out["log_variance"]), values, rtol=1e-4)
        # Off the unit sphere, a LayerNorm leaves the root of the dimension as a norm.
        np.testing.assert_allclose(np.linalg.norm(out["mean"], axis=1), np.sqrt(8), rtol=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize("name", POOLINGS)
def test_a_head_survives_its_config_with_its_pooling(random, name):
    head = Point(8, POOLINGS[name])
    features = random.normal(size=(2, 3, 4)).astype(np.float32)
    before = head(features)
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(head))
    copy(features)
    copy.set_weights(head.get_weights())
    for key, value in copy(features).items():
        np.testing.assert_array_equal(value, before[key])
    paths = [weight.path for weight in head.weights]
    assert len(set(paths)) == len(paths)


def test_odd_dimension_is_refused():
    with pytest.raises(ValueError, match="even: 7"):
        poolings.BiGRU(7)


@pytest.mark.slow
def test_heads_whose_poolings_were_at_the_same_address_stay_apart(tmp_path):
    features = keras.Input((3, 5))
    heads = [Gaussian(8, POOLINGS["mean"], name=name) for name in ("first", "second")]
    model = keras.Model(features, [head(features)["mean"] for head in heads])
    one = POOLINGS["mean"]()
    for head in heads:
        head._make_pooling = lambda: one
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras", safe_mode=True)
    first, second = (loaded.get_layer(name) for name in ("first", "second"))
    assert first.mean_pooling is not first.log_variance_pooling
    assert first.mean_pooling is not second.mean_pooling
    inputs = np.ones((2, 3, 5), np.float32)
    for found, expected in zip(loaded(inputs), model(inputs), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_sigma_can_have_the_sigmoid_and_the_norm_of_the_mean(random):
    """The ablation of Chun et al. 2021, section 3.2.1."""
    features = random.normal(size=(3, 5, 6)).astype(np.float32)
    head = Gaussian(8, lambda: poolings.Mean(8), variance_norm=True, initial_log_variance=-2.0)
    found = head(features)["log_variance"]
    local, _ = head.log_variance_attention(features)
    linear = head.log_variance_linear
    raw = np.asarray(local)[:, 0] @ np.asarray(linear.kernel) + np.asarray(linear.bias)
    total = np.asarray(head.log_variance_pooling(features)) + 1 / (1 + np.exp(-raw))
    centred = total - total.mean(axis=1, keepdims=True)
    normed = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(found, normed - 2.0, rtol=1e-3, atol=1e-4)
    assert head.log_variance_norm in head.log_variance_layers
