"""Properties of all heads, and the heads of sets of embeddings."""

from __future__ import annotations

import dvse_oracle
import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_xmr.heads import (
    AttentivePoint,
    DynamicSubEmbeddings,
    Gaussian,
    PIENet,
    Point,
    SlotAttention,
)
from keras_xmr.heads import pooling as poolings
from keras_xmr.losses import DynamicOrthogonality, VarianceAwareWeighting
from keras_xmr.matchers import MaxCosine, MeanCosine

HEADS = {
    "pie_net": lambda **o: PIENet(8, lambda: poolings.Mean(8), set_size=3, **o),
    "dynamic_sub_embeddings": lambda **o: DynamicSubEmbeddings(
        8, lambda: poolings.Attention(8), set_size=2, **o
    ),
    "slot_attention": lambda **o: SlotAttention(
        8, lambda: poolings.Mean(8), **({"set_size": 3, "heads": 1, "head_dimension": 8} | o)
    ),
    "attentive_point": lambda **o: AttentivePoint(8, lambda: poolings.BiGRU(8), **o),
    "gaussian": lambda **o: Gaussian(8, lambda: poolings.BiGRU(8), **o),
    "point": lambda **o: Point(8, lambda: poolings.RectifiedMean(8), **o),
}


def load_dvse(head, case, side: str) -> None:
    """The weights of the reference, which pools without a linear layer."""
    residual = head.residual
    residual.attention.set_weights(
        [case.f32(f"param_att_{side}_hidden").T, case.f32(f"param_att_{side}_heads").T]
    )
    residual.linear.set_weights(
        [case.f32(f"param_fc_{side}_weight").T, case.f32(f"param_fc_{side}_bias")]
    )
    residual.norm.set_weights(
        [case.f32(f"param_ln_{side}_gamma"), case.f32(f"param_ln_{side}_beta")]
    )
    head.pooling.linear.set_weights([np.eye(12, dtype=np.float32), np.zeros(12, np.float32)])


def dvse(case):
    """Both heads of the reference, with its weights, and their inputs."""
    heads = {
        "v": DynamicSubEmbeddings(
            12,
            lambda: poolings.Mean(12),
            set_size=3,
            dynamic_mask="coordinates",
            activation="sigmoid",
        ),
        "t": AttentivePoint(12, lambda: poolings.Mean(12)),
    }
    inputs = {side: tf.constant(case.f32(f"in_z_{side}")) for side in heads}
    for side, head in heads.items():
        head(inputs[side])
        load_dvse(head, case, side)
    heads["v"].mask_projection.assign(case.f32("param_mask_weight").T)
    return heads, inputs


@pytest.mark.slow
def test_dvse_heads_match_golden(golden):
    case = golden("dvse")
    heads, inputs = dvse(case)
    image, caption = (heads[side](inputs[side]) for side in "vt")
    for found, key in (
        (image["points"], "out_v_normalized"),
        (caption["mean"], "out_t_normalized"),
        (MaxCosine()(image, caption), "out_sim_max"),
        (MeanCosine()(image, caption), "out_sim_mean"),
    ):
        np.testing.assert_allclose(found, case[key], rtol=1e-4, atol=1e-5, err_msg=key)
    mask = case["out_mask"][:, None, :]
    np.testing.assert_array_equal(heads["v"].selection(inputs["v"]), mask)
    np.testing.assert_allclose(image["residuals"], case["out_vhat"] * mask, rtol=1e-4, atol=1e-5)
    for side in "vt":
        _, weights = heads[side].residual.attention(inputs[side])
        np.testing.assert_allclose(
            np.transpose(weights, (0, 2, 1)), case[f"out_attention_{side}"], rtol=1e-4, atol=1e-6
        )


@pytest.mark.slow
@pytest.mark.parametrize("similarity", ["normalized", "literal"])
def test_dvse_matches_golden(golden, similarity):
    case = golden("dvse")
    heads, inputs = dvse(case)
    eta = float(case["in_eta"])
    relations = {"positives": np.eye(6, dtype=bool)}

    def objective(image, caption, reduction):
        variance = VarianceAwareWeighting(
            margin=float(case["in_alpha"]), sigma="query", sigma_of="scores", reduction=reduction
        )
        orthogonality = DynamicOrthogonality(
            beta=float(case["in_beta"]), normalize=similarity == "normalized", reduction=reduction
        )
        parts = [
            sum(loss.terms(None, image, caption, relations).values())
            for loss in (variance, orthogonality)
        ]
        return eta * parts[0] + (1 - eta) * parts[1]

    variables = {}
    for side, head in heads.items():
        residual = head.residual
        variables |= {
            f"att_{side}_hidden": residual.attention.w1,
            f"att_{side}_heads": residual.attention.w2,
            f"fc_{side}_weight": residual.linear.kernel,
            f"fc_{side}_bias": residual.linear.bias,
            f"ln_{side}_gamma": residual.norm.gamma,
            f"ln_{side}_beta": residual.norm.beta,
        }
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        embeddings = [heads[side](inputs[side]) for side in "vt"]
        loss = objective(*embeddings, "sum")
    np.testing.assert_allclose(loss, case[f"out_L_{similarity}_sum"], rtol=1e-4)
    np.testing.assert_allclose(
        objective(*embeddings, "mean"), case[f"out_L_{similarity}_mean"], rtol=1e-4
    )
    by_inputs, by_variables = tape.gradient(
        loss, [inputs, {name: variable.value for name, variable in variables.items()}]
    )
    for side in "vt":
        expected = case[f"grad_{similarity}_z_{side}"]
        np.testing.assert_allclose(by_inputs[side], expected, rtol=1e-4, atol=1e-5)
    for name, gradient in by_variables.items():
        np.testing.assert_allclose(
            np.transpose(gradient),
            case[f"grad_{similarity}_{name}"],
            rtol=1e-4,
            atol=2e-5,
            err_msg=name,
        )


def test_pie_net_is_layer_norm_of_pooled_and_local(random):
    head = HEADS["pie_net"]()
    features = random.normal(size=(4, 5, 6)).astype(np.float32)
    out = head(features)
    local, weights = head.residual.attention(features)
    assert weights.shape == (4, 3, 5)
    linear = np.asarray(local) @ head.residual.linear.kernel + head.residual.linear.bias
    residuals = 1 / (1 + np.exp(-linear))
    np.testing.assert_allclose(out["residuals"], residuals, rtol=1e-4)
    sums = np.asarray(head.pooling(features))[:, None] + residuals
    sums -= sums.mean(axis=-1, keepdims=True)
    np.testing.assert_allclose(
        out["points"], sums / np.linalg.norm(sums, axis=-1, keepdims=True), rtol=1e-3, atol=1e-5
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", HEADS)
def test_padding_never_changes_an_embedding(random, name):
    head = HEADS[name]()
    words = random.normal(size=(3, 5, 6)).astype(np.float32)
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]], bool)
    short = head(words, mask=mask)
    padded = np.where(mask[..., None], words, 50.0)
    padded = np.concatenate([padded, np.full((3, 2, 6), -50.0)], axis=1).astype(np.float32)
    longer = head(padded, mask=np.pad(mask, ((0, 0), (0, 2))))
    for key, value in short.items():
        np.testing.assert_allclose(longer[key], value, rtol=1e-5, atol=1e-6, err_msg=key)


@pytest.mark.slow
@pytest.mark.parametrize("name", HEADS)
def test_embeddings_are_float32_in_mixed_precision(random, name):
    keras.config.set_dtype_policy("mixed_float16")
    try:
        head = HEADS[name]()
        out = head(random.normal(size=(2, 3, 4)).astype(np.float32))
    finally:
        keras.config.set_dtype_policy("float32")
    assert {keras.backend.standardize_dtype(value.dtype) for value in out.values()} == {"float32"}
    key = "points" if "points" in out else "mean"
    np.testing.assert_allclose(np.linalg.norm(out[key], axis=-1), 1, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("pie_net", {"dropout": 0.25}),
        ("dynamic_sub_embeddings", {"activation": "sigmoid"}),
        ("slot_attention", {"iterations": 2, "heads": 2, "expansion": 3, "positions": "sine"}),
        ("attentive_point", {"activation": "relu"}),
        ("gaussian", {"variance": "softplus"}),
    ],
)
def test_heads_survive_their_config(random, name, options):
    head = HEADS[name](**options)
    features = random.normal(size=(2, 3, 4)).astype(np.float32)
    before = head(features)
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(head))
    copy(features)
    copy.set_weights(head.get_weights())
    for key, value in copy(features).items():
        np.testing.assert_array_equal(value, before[key])
    paths = [weight.path for weight in head.weights]
    assert len(set(paths)) == len(paths)


@pytest.mark.slow
def test_slots_share_out_the_features(random):
    head = HEADS["slot_attention"]()
    features = random.normal(size=(4, 5, 6)).astype(np.float32)
    out = head(features)
    points = np.asarray(out["points"])
    assert np.abs(points[:, 0] - points[:, 1]).max() > 0.01
    # Where nothing is told apart, every slot takes the mean.
    keys = np.zeros((2, 5, 8), np.float32)
    values = random.normal(size=(2, 5, 8)).astype(np.float32)
    taken, _ = head._attend(np.ones((2, 3, 8), np.float32), keys, values, None)
    np.testing.assert_allclose(
        taken, np.repeat(values.mean(1)[:, None], 3, 1), rtol=1e-4, atol=1e-5
    )
    # What one slot takes, the others do not.
    queries, keys = np.eye(3, 8, dtype=np.float32)[None], 100 * np.eye(3, 8, dtype=np.float32)[None]
    values = random.normal(size=(1, 3, 8)).astype(np.float32)
    np.testing.assert_allclose(
        head._attend(queries, keys, values, None)[0], values, rtol=1e-4, atol=1e-5
    )


@pytest.mark.slow
@pytest.mark.parametrize("positions", ["none", "sine"])
def test_slot_attention_is_that_of_the_released_code(random, positions):
    """Step by step in NumPy, head by head and slot by slot."""
    head = HEADS["slot_attention"](
        set_size=2, heads=3, head_dimension=5, iterations=2, expansion=4, positions=positions
    )
    features = random.normal(size=(2, 6, 4)).astype(np.float32)
    mask = np.arange(6) < np.array([[6], [4]])
    head(features, mask=mask)
    for weight in head.weights:
        weight.assign(random.normal(size=weight.shape))
    found = head(features, mask=mask)
    for item in range(2):
        there = features[item][mask[item]].astype(np.float64)
        slots = slots_of(head, there, sines(len(there), 4) if positions == "sine" else 0.0)
        np.testing.assert_allclose(found["residuals"][item], slots, rtol=2e-3, atol=2e-3)
        pooled = normed(head.pooled_norm, there.mean(axis=0) @ kernel(head.pooling.linear)
                        + np.asarray(head.pooling.linear.bias))  # fmt: skip
        points = slots + pooled
        expected = points / np.linalg.norm(points, axis=1, keepdims=True)
        np.testing.assert_allclose(found["points"][item], expected, rtol=2e-3, atol=2e-3)


def slots_of(head, features, positions):
    context = normed(head.features_norm, features)
    keys, values = (context + positions) @ kernel(head.keys), context @ kernel(head.values)
    assert keys.shape[1] == head.heads * head.head_dimension
    slots = np.asarray(head.slots, np.float64)
    for _ in range(head.iterations):
        queries = normed(head.slots_norm, slots) @ kernel(head.queries)
        taken = np.zeros_like(queries)
        for first in range(0, queries.shape[1], head.head_dimension):
            own = slice(first, first + head.head_dimension)
            logits = queries[:, own] @ keys[:, own].T / np.sqrt(head.head_dimension)
            share = np.exp(logits - logits.max(axis=0))
            share /= share.sum(axis=0)  # the slots compete for a place
            taken[:, own] = (share / share.sum(axis=1, keepdims=True)) @ values[:, own]
        slots = slots + taken @ kernel(head.update) + np.asarray(head.update.bias)
        hidden = normed(head.hidden_norm, slots) @ kernel(head.hidden) + np.asarray(
            head.hidden.bias
        )
        assert hidden.shape[1] == 4 * slots.shape[1]
        hidden = np.asarray(keras.ops.gelu(hidden, approximate=False))
        slots = slots + hidden @ kernel(head.output_linear) + np.asarray(head.output_linear.bias)
    return normed(head.residual_norm, slots)


def sines(length, width):
    """Place p of n at 2 pi p / n; the pair of numbers i turns 10000 ** (i / pairs) times slower."""
    rows = []
    for place in range(1, length + 1):
        row = []
        for pair in range(width // 2):
            angle = 2 * np.pi * place / length / 10000 ** (2 * pair / width)
            row += [np.sin(angle), np.cos(angle)]
        rows.append(row)
    return np.array(rows)


def kernel(layer):
    return np.asarray(layer.kernel, np.float64)


def normed(layer, vectors):
    centred = vectors - vectors.mean(axis=-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)
    return scaled * np.asarray(layer.gamma) + np.asarray(layer.beta)


def test_dropout_is_for_training_alone(random):
    head = HEADS["pie_net"](dropout=0.5)
    features = random.normal(size=(2, 3, 4)).astype(np.float32)
    np.testing.assert_array_equal(head(features)["points"], head(features)["points"])
    assert (np.asarray(head(features, training=True)["residuals"]) == 0).any()


READINGS = ("sub_embeddings", "sub_embeddings_in_loss", "coordinates", "none")


def read_dvse(random, reading, items=9):
    """The head of one reading with random weights, its inputs, and the oracle of each item."""
    head = DynamicSubEmbeddings(
        7, lambda: poolings.Mean(7), set_size=4, dynamic_mask=reading, activation="tanh"
    )
    features = random.normal(size=(items, 5, 6)).astype(np.float32)
    lengths = 2 + np.arange(items) % 4
    mask = np.arange(5) < lengths[:, None]
    head(features, mask=mask)
    for weight in head.weights:
        weight.assign(random.normal(size=weight.shape))
    residual, pool = head.residual, head.pooling.linear
    weights = {
        "hidden": residual.attention.w1,
        "heads": residual.attention.w2,
        "fc": residual.linear.kernel,
        "fc_bias": residual.linear.bias,
        "pool": pool.kernel,
        "pool_bias": pool.bias,
        "gamma": residual.norm.gamma,
        "beta": residual.norm.beta,
        "mask": np.zeros((6, 4)) if reading == "none" else head.mask_projection,
    }
    weights = {name: np.asarray(value, np.float64) for name, value in weights.items()}
    expected = [
        dvse_oracle.sub_embeddings(item[:length].astype(np.float64), weights, reading)
        for item, length in zip(features, lengths, strict=True)
    ]
    return head, features, mask, expected


@pytest.mark.parametrize("reading", READINGS)
def test_dynamic_mask_is_that_of_its_reading(random, reading):
    head, features, mask, expected = read_dvse(random, reading)
    out = head(features, mask=mask)
    for key in ("points", "residuals"):
        np.testing.assert_allclose(
            out[key], [item[key] for item in expected], rtol=1e-4, atol=1e-5, err_msg=key
        )
    loss = DynamicOrthogonality(beta=0.4).items_loss(out)
    by_item = [dvse_oracle.correlation(item["residuals"], 0.4) for item in expected]
    np.testing.assert_allclose(loss, np.mean(by_item), rtol=1e-4)


def test_masked_sub_embeddings_are_the_pooled_vector_and_their_number_adapts(random):
    head, features, mask, expected = read_dvse(random, "sub_embeddings", items=30)
    numbers = [int(item["kept"].sum()) for item in expected]
    assert len(set(numbers)) > 2
    for points, item in zip(np.asarray(head(features, mask=mask)["points"]), expected, strict=True):
        different = {tuple(row) for row in np.round(points, 4)}
        assert len(different) == item["kept"].sum() + (not item["kept"].all())


def test_gradients_are_finite_at_masked_sub_embeddings(random):
    head, features, mask, _ = read_dvse(random, "sub_embeddings")
    with tf.GradientTape() as tape:
        loss = DynamicOrthogonality(beta=0.0).items_loss(head(features, mask=mask))
    slopes = tape.gradient(loss, [weight.value for weight in head.trainable_weights])
    assert all(np.isfinite(slope).all() for slope in slopes if slope is not None)
    assert sum(slope is not None and np.abs(slope).max() > 0 for slope in slopes) >= 4


def test_dynamic_mask_is_a_constant_of_the_item(random):
    head = HEADS["dynamic_sub_embeddings"]()
    features = tf.constant(random.normal(size=(40, 5, 6)), tf.float32)
    head(features)
    with tf.GradientTape() as tape:
        tape.watch(features)
        mask = head.selection(features)
    assert set(np.unique(mask)) == {0.0, 1.0}
    assert len(np.unique(mask, axis=0)) > 1
    assert tape.gradient(mask, features) is None
    # What trains and freezes whole towers leaves it as it was drawn.
    head.trainable = False
    head.trainable = True
    assert all(head.mask_projection is not weight for weight in head.trainable_weights)
