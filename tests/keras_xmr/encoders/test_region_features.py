"""Models on regions: VSRN, and the generalized pooling operator."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
import torch_layout

from keras_xmr.encoders import VSRN, InputSpec
from keras_xmr.experiments.config.model_section import TowerOptions
from keras_xmr.heads.pooling import GPO, GRU
from keras_xmr.layers import GraphReasoning
from keras_xmr.model.towers import image_tower, parts_of
from keras_xmr.utils.errors import UserError

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


class Weights:
    """Names the golden weights, or gradients, of a part."""

    def __init__(self, golden, prefix: str) -> None:
        self.golden = golden
        self.prefix = prefix

    def f32(self, key: str) -> np.ndarray:
        found = self.golden.f32(f"{self.prefix}{key}")
        return found[..., 0] if found.ndim == 3 else found  # a convolution of width 1 is linear


def load_batch_norm(layer, weights, prefix):
    names = ("weight", "bias", "running_mean", "running_var")
    layer.set_weights([weights.f32(f"{prefix}.{name}") for name in names])


def load_block(block, weights, prefix):
    torch_layout.dense(block.theta, weights, f"{prefix}theta")
    torch_layout.dense(block.phi, weights, f"{prefix}phi")
    torch_layout.dense(block.g, weights, f"{prefix}g")
    torch_layout.dense(block.w, weights, f"{prefix}W.0")
    load_batch_norm(block.norm, weights, f"{prefix}W.1")


def assert_dense_gradient(found, golden, key):
    kernel, bias = found
    np.testing.assert_allclose(
        kernel.numpy().T, Weights(golden, "grad_").f32(f"{key}.weight"), **CLOSE, err_msg=key
    )
    np.testing.assert_allclose(bias, golden[f"grad_{key}.bias"], **CLOSE, err_msg=key)


def test_graph_reasoning_matches_golden(golden):
    case = golden("vsrn")
    v = tf.constant(case.f32("in_v").transpose(0, 2, 1))
    block = GraphReasoning()
    np.testing.assert_array_equal(block(v), v)  # it starts as the identity
    load_block(block, Weights(case, "param_block."), "")
    layers = {"theta": block.theta, "phi": block.phi, "g": block.g, "W.0": block.w}
    with tf.GradientTape() as tape:
        tape.watch(v)
        out = block(v)
        loss = 0.5 * tf.reduce_sum(out**2)
    variables = {k: [layer.kernel.value, layer.bias.value] for k, layer in layers.items()}
    norm = [block.norm.gamma.value, block.norm.beta.value]
    by_v, by_layers, by_norm = tape.gradient(loss, (v, variables, norm))
    np.testing.assert_allclose(tf.transpose(out, (0, 2, 1)), case["out_block"], **CLOSE)
    np.testing.assert_allclose(tf.transpose(by_v, (0, 2, 1)), case["grad_block_v"], **CLOSE)
    for key, found in by_layers.items():
        assert_dense_gradient(found, case, f"block.{key}")
    np.testing.assert_allclose(by_norm[0], case["grad_block.W.1.weight"], **CLOSE)
    np.testing.assert_allclose(by_norm[1], case["grad_block.W.1.bias"], **CLOSE)


@pytest.mark.slow
@pytest.mark.parametrize("normalize_over", ["regions", "features"])
@pytest.mark.parametrize("dataset", ["coco", "f30k"])
def test_vsrn_matches_golden(golden, dataset, normalize_over):
    case = golden("vsrn")
    weights = Weights(case, f"param_{dataset}.")
    encoder = VSRN(
        dimension=12, normalize_first=dataset == "coco", normalize_over=normalize_over
    )._network((36, 20))
    torch_layout.dense(encoder.get_layer("linear"), weights, "fc")
    for block in range(4):
        load_block(encoder.get_layer(f"reasoning_{block}"), weights, f"Rs_GCN_{block + 1}.")
    pooling = GRU(12, batch_norm=dataset == "f30k")
    pooling(tf.zeros((1, 36, 12)))
    torch_layout.gru(pooling.gru, weights, "img_rnn", "")
    if dataset == "f30k":
        load_batch_norm(pooling.norm, weights, "bn")
    images = tf.constant(case.f32("in_images"))
    theta = encoder.get_layer("reasoning_1").theta
    with tf.GradientTape() as tape:
        tape.watch(images)
        regions = encoder(images)
        found = tf.math.l2_normalize(pooling(regions), axis=-1)
        loss = tf.reduce_sum(found * case.f32("in_cotangent"))
    by_images, by_theta, by_gru = tape.gradient(
        loss,
        (
            images,
            [theta.kernel.value, theta.bias.value],
            pooling.gru.cell.recurrent_kernel.value,
        ),
    )
    tag = dataset if normalize_over == "regions" else f"{dataset}_featnorm"
    np.testing.assert_allclose(regions, case[f"out_{tag}_gcn"], **CLOSE)
    np.testing.assert_allclose(found, case[f"out_{tag}_features"], **CLOSE)
    if normalize_over == "regions":
        np.testing.assert_allclose(by_images, case[f"grad_{dataset}_images"], **CLOSE)
        assert_dense_gradient(by_theta, case, f"{dataset}.Rs_GCN_2.theta")
        np.testing.assert_allclose(
            torch_layout.gru_gradient(by_gru.numpy()),
            case[f"grad_{dataset}.img_rnn.weight_hh_l0"],
            **CLOSE,
        )


@pytest.mark.slow
def test_vsrn_is_a_tower_that_trains_and_is_saved(random, tmp_path):
    options = TowerOptions.model_validate(
        {
            "encoder": {"name": "vsrn", "dimension": 5, "blocks": 2},
            "pooling": {"name": "gru", "batch_norm": True},
            "head": "point",
        }
    )
    tower = image_tower(options, 6, InputSpec(regions=(4, 7)))
    regions = random.normal(size=(3, 4, 7)).astype(np.float32)
    target = random.normal(size=(3, 6)).astype(np.float32)
    tower.compile(keras.optimizers.SGD(0.1), loss={"mean": "mse"}, run_eagerly=True)
    start = [weight.numpy() for weight in parts_of(tower)["encoder"][0].trainable_weights]
    for _ in range(2):
        tower.train_on_batch(regions, {"mean": target})
    encoder = parts_of(tower)["encoder"][0].trainable_weights
    for weight, before in zip(encoder, start, strict=True):
        if not weight.path.endswith("w/bias"):  # which batch normalisation takes away
            assert (weight.numpy() != before).any(), weight.path
    tower.save(tmp_path / "tower.keras")
    loaded = keras.models.load_model(tmp_path / "tower.keras", safe_mode=True)
    np.testing.assert_array_equal(loaded(regions)["mean"], tower(regions)["mean"])


def load_gpo(pooling, weights):
    torch_layout.gru(pooling.gru.forward_layer, weights, "gru", "")
    torch_layout.gru(pooling.gru.backward_layer, weights, "gru", "_reverse")
    torch_layout.dense(pooling.rank_score, weights, "linear", bias=False)


def test_gpo_matches_golden(golden):
    case = golden("gpo")
    pooling = GPO(12, projection=False, encoding=8, hidden=6)
    features = tf.constant(case.f32("in_features"))
    mask = np.arange(9) < case["in_lengths"][:, None]
    pooling(features)
    load_gpo(pooling, Weights(case, "param_"))
    cells = [layer.cell for layer in (pooling.gru.forward_layer, pooling.gru.backward_layer)]
    with tf.GradientTape() as tape:
        tape.watch(features)
        found = pooling(features, mask=mask)
        loss = tf.reduce_sum(found * case.f32("in_cotangent"))
    by_features, by_linear, by_kernels = tape.gradient(
        loss,
        (
            features,
            pooling.rank_score.kernel.value,
            [[cell.kernel.value, cell.recurrent_kernel.value] for cell in cells],
        ),
    )
    np.testing.assert_allclose(found, case["out_pooled"], **CLOSE)
    np.testing.assert_allclose(by_features, case["grad_features"], **CLOSE)
    np.testing.assert_allclose(by_linear.numpy().T, case["grad_linear.weight"], **CLOSE)
    for suffix, gradients in zip(("", "_reverse"), by_kernels, strict=True):
        for name, gradient in zip(("weight_ih", "weight_hh"), gradients, strict=True):
            np.testing.assert_allclose(
                torch_layout.gru_gradient(gradient.numpy()),
                case[f"grad_gru.{name}_l0{suffix}"],
                **CLOSE,
            )


def test_gpo_says_what_does_not_fit():
    with pytest.raises(ValueError, match="GPO: encoding: got 7: input should be a multiple of 2"):
        GPO(4, encoding=7)
    with pytest.raises(UserError, match=r"5, but the dimension is 4; set projection: true"):
        GPO(4, projection=False)(np.zeros((1, 2, 5), np.float32))
    assert GPO(4)(np.zeros((1, 2, 5), np.float32)).shape == (1, 4)
