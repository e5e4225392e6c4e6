"""MSRM: its losses, its convolution, its matchers."""

from __future__ import annotations

import keras
import models
import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_xmr import matchers
from keras_xmr.experiments.build import further_matcher
from keras_xmr.experiments.config.loader import load_config
from keras_xmr.experiments.config.packaged_configs import find_config
from keras_xmr.layers import HypergraphConvolution
from keras_xmr.losses import HypergraphContrastive, MahalanobisContrastive
from keras_xmr.losses.msrm import match_loss, query_distances
from keras_xmr.model.retriever import Retriever
from keras_xmr.parts.registry import components, options_of
from keras_xmr.utils.errors import ConfigError

DIRECTIONS = (("v2t", "image_to_text"), ("t2v", "text_to_image"))


def close(found, expected, name=""):
    np.testing.assert_allclose(
        found, expected, rtol=1e-4, atol=3e-5 * np.abs(expected).max(), err_msg=name
    )


def hypergraph(case) -> HypergraphContrastive:
    loss = HypergraphContrastive(
        alpha=float(case["param_alpha"]), cosine_scale=float(case["param_lam"]), residual=False
    )
    loss.build(None, {"mean": (None, 12)}, {"mean": (None, 12)})
    for tag, direction in DIRECTIONS:
        convolutions = getattr(loss, direction)
        for layer, theta in zip(convolutions, case[f"param_theta_{tag}"], strict=True):
            layer.theta.assign(theta)
    return loss


def gaussian(mean, variance):
    return {"mean": mean, "log_variance": tf.math.log(variance)}


@pytest.mark.parametrize("tag", ["", "multi_"])
@pytest.mark.parametrize(("key", "direction"), DIRECTIONS)
def test_intermediates_match_golden(golden, tag, key, direction):
    case = golden("msrm")
    sides = [gaussian(case.f32(f"in_mu_{s}"), case.f32(f"in_sigma_{s}")) for s in "vt"]
    queries, candidates = sides if key == "v2t" else sides[::-1]
    close(query_distances(queries, candidates), case[f"out_{tag}d2_{key}"])
    relation, nodes = case.f32(f"out_{tag}S_{key}"), candidates["mean"]
    close(relation.T, case[f"out_{tag}H_{key}"])
    for number, layer in enumerate(getattr(hypergraph(case), direction), 1):
        nodes = layer(nodes, relation.T)
        close(nodes, case[f"out_{tag}U{number}_{key}"])
    cosine = matchers.Cosine()(queries, {"mean": nodes})
    close(cosine, case[f"out_{tag}cos_{key}"])
    close(
        keras.ops.softmax(float(case["param_lam"]) * cosine, axis=1),
        case[f"out_{tag}Pprime_{key}"],
    )


def test_match_loss_equals_the_formula(random):
    logits = random.normal(scale=2, size=(5, 7)).astype(np.float32)
    positives = random.random((5, 7)) < 0.3
    expected = oracles.match_loss(logits.astype(float), positives)
    np.testing.assert_allclose(match_loss(logits, positives), expected, rtol=1e-5)


def test_match_loss_keeps_its_digits_and_its_gradients_where_p_is_nearly_1():
    # The last candidate is the match, and the first has all of the probability.
    logits = tf.constant([[60.0, 0.0, 0.0], [0.0, 0.0, 0.0], [500.0, 500.0, -500.0]])
    positives = np.array([[0, 0, 1]] * 3, bool)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = match_loss(logits, positives)
    rows = [120 - np.log(2), np.log(3) - 2 * np.log(2 / 3), 1000 + 3 * np.log(2)]
    np.testing.assert_allclose(loss, sum(rows) / 9, rtol=1e-5)
    gradient = tape.gradient(loss, logits).numpy()
    assert np.isfinite(gradient).all()
    assert gradient[0, 0] > 0


@pytest.mark.parametrize("loss", [MahalanobisContrastive(), HypergraphContrastive()])
def test_identical_items_give_the_trivial_value_and_finite_gradients(loss):
    mean = tf.fill((4, 5), 0.4)
    relations = {"positives": np.eye(4, dtype=bool)}
    with tf.GradientTape() as tape:
        tape.watch(mean)
        side = {"mean": mean, "log_variance": tf.zeros((4, 5))}
        total = sum(loss.terms(None, side, side, relations).values())
    assert np.isfinite(tape.gradient(total, mean)).all()
    trivial = loss.trivial_value(tf.zeros((4, 4)), relations)
    np.testing.assert_allclose(total, trivial, rtol=1e-5)


@pytest.mark.parametrize("loss", [MahalanobisContrastive(), HypergraphContrastive()])
def test_points_are_gaussians_of_variance_1(random, loss):
    sides = [gaussians(random, 6) | {"log_variance": np.zeros((6, 5), np.float32)} for _ in "vt"]
    points = [{"mean": side["mean"]} for side in sides]
    relations = {"positives": np.eye(6, dtype=bool)}
    for term, value in loss.terms(None, *sides, relations).items():
        np.testing.assert_allclose(loss.terms(None, *points, relations)[term], value, rtol=1e-6)


def gaussians(random, count):
    return {
        "mean": random.normal(scale=0.3, size=(count, 5)).astype(np.float32),
        "log_variance": random.normal(size=(count, 5)).astype(np.float32),
    }


def test_residual_convolution_keeps_nodes_apart(random):
    nodes = random.normal(size=(6, 8)).astype(np.float32)
    nodes /= np.linalg.norm(nodes, axis=1, keepdims=True)
    incidence = np.eye(6, dtype=np.float32) + 0.3

    def nearness(residual):
        keras.utils.set_random_seed(0)
        moved = nodes
        for _ in range(2):
            moved = HypergraphConvolution(residual)(moved, incidence)
        cosines = np.asarray(matchers.Cosine()({"mean": moved}, {"mean": moved}))
        return cosines[~np.eye(6, dtype=bool)].mean()

    assert nearness(residual=False) > 0.99
    assert nearness(residual=True) < 0.9


def test_convolution_of_a_node_without_edges_is_finite():
    nodes, incidence = tf.ones((3, 4)), tf.constant([[1.0, 0.0], [0.0, 0.0], [1.0, 0.0]])
    with tf.GradientTape() as tape:
        tape.watch([nodes, incidence])
        out = HypergraphConvolution()(nodes, incidence)
    assert np.isfinite(out).all()
    assert all(np.isfinite(g).all() for g in tape.gradient(out, [nodes, incidence]))


@pytest.mark.slow
def test_the_weights_of_the_losses_are_trained_and_saved(tmp_path):
    model = models.msrm(residual=True)
    names = [weight.path for weight in model.objective.trainable_weights]
    assert len(names) == 3 + 2 * 2
    before = [weight.numpy() for weight in model.objective.trainable_weights]
    models.train_three_steps(model, "mahalanobis_contrastive")
    for name, start, weight in zip(names, before, model.objective.trainable_weights, strict=True):
        assert np.abs(weight.numpy() - start).max() > 0, name
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras", safe_mode=True)
    assert isinstance(loaded, Retriever)
    model.without_optimizer().save_weights(tmp_path / "model.weights.h5")
    other = models.msrm(residual=True)
    other.without_optimizer().load_weights(tmp_path / "model.weights.h5")
    for copy in (loaded, other):
        pairs = zip(copy.objective.weights, model.objective.weights, strict=True)
        for found, expected in pairs:
            np.testing.assert_array_equal(found, expected)


def test_learned_scalars_stay_at_or_above_zero():
    loss = MahalanobisContrastive(temperature=0.1)
    optimizer = keras.optimizers.SGD(1.0)
    optimizer.build(loss.trainable_variables)
    optimizer.apply([tf.constant(5.0)], loss.trainable_variables)
    assert float(loss.temperature) == 0.0


@pytest.mark.parametrize("make", [matchers.Mahalanobis, matchers.MahalanobisCosine])
def test_matchers_ask_the_variance_of_the_query_alone(random, make):
    image, caption = gaussians(random, 3), gaussians(random, 4)
    wider = {**caption, "log_variance": caption["log_variance"] + 1}
    matcher = make()
    np.testing.assert_array_equal(matcher(image, caption), matcher(image, wider, query="image"))
    by_caption = np.asarray(matcher(image, caption, query="text"))
    assert by_caption.shape == (3, 4)
    assert (np.asarray(matcher(image, wider, query="text")) > by_caption).all()


def test_mahalanobis_equals_the_formula_and_the_product_ranks_like_it(random):
    image, caption = gaussians(random, 3), gaussians(random, 4)
    apart = (caption["mean"][None] - image["mean"][:, None]) ** 2
    distance = (apart / np.exp(image["log_variance"])[:, None]).sum(-1)
    np.testing.assert_allclose(matchers.Mahalanobis()(image, caption), -distance, rtol=1e-4)
    cosine = np.asarray(matchers.Cosine()(image, caption))
    probabilities = [
        np.exp(x) / np.exp(x).sum(1, keepdims=True) for x in (-2 * distance, 3 * cosine)
    ]
    product = np.log(probabilities[0] * probabilities[1])
    found = matchers.MahalanobisCosine(temperature=2.0, cosine_scale=3.0)(image, caption)
    np.testing.assert_allclose(
        np.diff(found, axis=1), np.diff(product, axis=1), rtol=1e-3, atol=1e-4
    )


def product_model() -> Retriever:
    """A tiny MSRM that scores with the product of both similarities."""
    losses = [MahalanobisContrastive(temperature=0.1), HypergraphContrastive(alpha=0.1)]
    return models.gaussian_model(matchers.MahalanobisCosine(), losses, [0.8, 1.0])


@pytest.mark.slow
def test_the_product_scores_with_what_the_losses_have_learned(random, tmp_path):
    model = product_model()
    distribution, relation = model.objective.losses_
    distribution.temperature.assign(0.7)
    relation.cosine_scale.assign(3.0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras", safe_mode=True)
    choice = options_of(components("matcher")["mahalanobis_cosine"])(name="mahalanobis_cosine")
    extra = further_matcher(choice, model.matcher, model.objective.losses_)
    image, caption = gaussians(random, 3), gaussians(random, 4)
    expected = matchers.MahalanobisCosine(temperature=0.7, cosine_scale=3.0)(image, caption)
    for matcher in (model.matcher, model.without_optimizer().matcher, loaded.matcher, extra):
        np.testing.assert_allclose(matcher(image, caption), expected, rtol=1e-6)
    assert not model.matcher.weights


def test_a_constant_of_the_product_that_a_loss_learns_is_refused():
    matcher = "{name: mahalanobis_cosine, temperature: 3}"
    for key in (f"model.matcher={matcher}", f"evaluation.matchers=[{matcher}]"):
        with pytest.raises(ConfigError, match=r"temperature.*'mahalanobis_contrastive' learns it"):
            load_config(find_config("scenes_msrm"), [key])


@pytest.mark.parametrize("alpha", [0.0, 2.0])
def test_alpha_can_be_fixed_and_0(random, alpha):
    fixed = HypergraphContrastive(alpha=alpha, learn_alpha=False)
    learned = HypergraphContrastive(alpha=alpha)
    relations = {"positives": np.eye(6, dtype=bool)}
    image, caption = gaussians(random, 6), gaussians(random, 6)
    for loss in (fixed, learned):
        loss.build(None, {"mean": (None, 5)}, {"mean": (None, 5)})
    others = [weight for weight in learned.weights if weight.name != "alpha"]
    for own, other in zip(fixed.weights, others, strict=True):
        own.assign(other)
    assert len(learned.trainable_weights) == len(fixed.trainable_weights) + 1
    for term, value in learned.terms(None, image, caption, relations).items():
        np.testing.assert_allclose(
            fixed.terms(None, image, caption, relations)[term], value, rtol=1e-6
        )
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(fixed))
    assert copy.get_config() == fixed.get_config()
    objective = f"[mahalanobis_contrastive, {{name: hypergraph_contrastive, alpha: {alpha}}}]"
    load_config(find_config("scenes_msrm"), [f"objective={objective}"])


@pytest.mark.parametrize("signs", ["reversed", "printed"])
def test_signs_of_the_hypergraph_loss(random, signs):
    """Wang et al. 2023, Eq. 8 to 11, node by node; distances are small, so nothing overflows."""
    means = random.normal(scale=0.4, size=(2, 5, 3))
    log_variance = random.normal(scale=0.1, size=(5, 3))
    loss = HypergraphContrastive(layers=1, alpha=0.7, cosine_scale=3.0, residual=False, signs=signs)
    loss.build(None, {"mean": (None, 3)}, {"mean": (None, 3)})
    queries, nodes = means
    theta = random.normal(size=(3, 3))
    loss.image_to_text[0].theta.assign(theta)
    image = {"mean": queries, "log_variance": log_variance}
    caption = {"mean": nodes, "log_variance": np.zeros((5, 3))}
    given = [{key: tf.constant(x, tf.float32) for key, x in e.items()} for e in (image, caption)]
    found = loss.terms(None, *given, {"positives": np.eye(5, dtype=bool)})["image_to_text"]
    sign = 1.0 if signs == "printed" else -1.0
    relation = np.empty((5, 5))
    for q in range(5):
        for c in range(5):
            distance = ((queries[q] - nodes[c]) ** 2 / np.exp(log_variance[q])).sum()
            relation[q, c] = 1.0 if q == c else np.exp(sign * 0.7 * distance)
    incidence = relation.T  # nodes x hyperedges
    root = 1 / np.sqrt(incidence.sum(axis=1, keepdims=True))
    edges = (incidence.T @ (root * nodes)) / incidence.sum(axis=0)[:, None]
    renewed = 1 / (1 + np.exp(-(root * (incidence @ edges) @ theta)))
    cosines = (queries @ renewed.T) / np.outer(
        np.linalg.norm(queries, axis=1), np.linalg.norm(renewed, axis=1)
    )
    expected = oracles.match_loss(-sign * 3.0 * cosines, np.eye(5, dtype=bool))
    np.testing.assert_allclose(found, expected, rtol=2e-4)


def test_printed_signs_do_not_overflow(random):
    loss = HypergraphContrastive(signs="printed")
    far = {"mean": 40 * random.normal(size=(4, 3)), "log_variance": np.full((4, 3), -3.0)}
    given = {key: tf.constant(value, tf.float32) for key, value in far.items()}
    assert np.isfinite(loss(given, given, np.arange(4)))
