"""The losses and matchers of sets of embeddings: PVSE, DVSE, smooth-Chamfer."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import ranking_oracles as oracles
import tensorflow as tf

from keras_xmr.experiments.config.loader import load_config
from keras_xmr.experiments.config.packaged_configs import find_config
from keras_xmr.losses import (
    MMD,
    Diversity,
    DynamicOrthogonality,
    SetUniformity,
    Triplet,
    Uniformity,
    VarianceAwareWeighting,
)
from keras_xmr.losses.triplet import _deviation_of_others
from keras_xmr.matchers import MaxCosine, MeanCosine, SmoothChamfer

MATCHERS = {
    "max_cosine": (MaxCosine(), oracles.max_cosine),
    "mean_cosine": (MeanCosine(), oracles.mean_cosine),
    "smooth_chamfer": (SmoothChamfer(alpha=5.0), lambda a, b: oracles.smooth_chamfer(a, b, 5.0)),
}

POSITIVES = np.equal.outer([0, 0, 1, 2], [0, 0, 1, 2])


def total(loss, image, caption, positives, scores=None):
    return sum(loss.terms(scores, image, caption, {"positives": positives}).values())


def embedding(vectors: np.ndarray) -> dict:
    """A set of (N, K, D), a point of (N, D)."""
    return {"points" if vectors.ndim == 3 else "mean": tf.cast(vectors, tf.float32)}


@pytest.mark.parametrize(
    "shapes", [((4, 3, 6), (5, 2, 6)), ((4, 3, 6), (5, 6)), ((4, 6), (5, 3, 6))]
)
@pytest.mark.parametrize("name", MATCHERS)
def test_scores_and_gradients_equal_the_formula(random, name, shapes):
    matcher, oracle = MATCHERS[name]
    arrays = [random.normal(size=shape) for shape in shapes]
    cotangent = random.normal(size=(4, 5))

    def expected(image, caption):
        sides = [side if side.ndim == 3 else side[:, None] for side in (image, caption)]
        return oracle(*sides)

    inputs = [tf.constant(array, tf.float32) for array in arrays]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        scores = matcher(*map(embedding, inputs))
        scalar = tf.reduce_sum(scores * cotangent)
    gradients = tape.gradient(scalar, inputs)
    np.testing.assert_allclose(scores, expected(*arrays), rtol=1e-4, atol=1e-6)
    along = [random.normal(size=shape) for shape in shapes]
    slope = oracles.slope(lambda *x: np.sum(expected(*x) * cotangent), arrays, along)
    found = sum(np.sum(g * d) for g, d in zip(gradients, along, strict=True))
    np.testing.assert_allclose(found, slope, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", MATCHERS)
def test_sets_have_no_order_and_matchers_survive_their_config(random, name):
    matcher, _ = MATCHERS[name]
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(matcher))
    assert copy.get_config() == matcher.get_config()
    image, caption = random.normal(size=(2, 4, 3, 6)).astype(np.float32)
    np.testing.assert_allclose(
        copy({"points": image[:, ::-1]}, {"points": caption[:, [1, 2, 0]]}),
        matcher({"points": image}, {"points": caption}),
        rtol=1e-4,
        atol=1e-6,
    )


@pytest.mark.parametrize("name", MATCHERS)
def test_equal_and_empty_vectors_give_finite_gradients(name):
    matcher, _ = MATCHERS[name]
    for fill in (0.0, 1.0):
        points = tf.fill((3, 2, 4), fill)
        with tf.GradientTape() as tape:
            tape.watch(points)
            scores = matcher({"points": points}, {"points": points})
            loss = total(Triplet(), {}, {}, np.eye(3, dtype=bool), scores)
        assert np.isfinite(tape.gradient(loss, points)).all()


def test_smooth_chamfer_is_near_chamfer_for_a_large_alpha(random):
    image, caption = random.normal(size=(2, 4, 3, 6)).astype(np.float32)
    cosines = np.einsum("nkd,mjd->nkmj", oracles.unit(image), oracles.unit(caption))
    chamfer = 0.5 * (cosines.max(axis=3).mean(axis=1) + cosines.max(axis=1).mean(axis=2))
    scores = SmoothChamfer(alpha=1000.0)({"points": image}, {"points": caption})
    np.testing.assert_allclose(scores, chamfer, atol=2e-3)


def test_deviations_of_the_mixed_distribution_match_golden(golden):
    case = golden("dvse")
    sets, means = case.f32("out_v_normalized"), case.f32("out_t_normalized")
    scores = VarianceAwareWeighting().similarities({"points": sets}, {"mean": means})
    np.testing.assert_allclose(np.transpose(scores, (1, 0, 2)), case["out_S"], rtol=1e-4, atol=1e-6)
    for direction, key in ((scores, "i2t"), (np.transpose(scores, (0, 2, 1)), "t2i")):
        own = np.diagonal(_deviation_of_others(direction), axis1=1, axis2=2)
        np.testing.assert_allclose(own.T, case[f"out_std_{key}"], rtol=1e-4)


def pieces(random) -> dict[str, np.ndarray]:
    return {
        "image": random.normal(size=(4, 3, 6)),
        "caption": random.normal(size=(4, 6)),
        "image_residual": random.uniform(0.1, 1, size=(4, 3, 6)),
        "caption_residual": random.uniform(0.1, 1, size=(4, 2, 6)),
    }


def both_sides(p):
    return (
        {"points": p["image"], "residuals": p["image_residual"]},
        {"mean": p["caption"], "residuals": p["caption_residual"]},
    )


REGULARIZERS = {
    "diversity": (
        Diversity(),
        lambda p: oracles.diversity(p["image_residual"], p["caption_residual"]),
    ),
    "set_uniformity": (
        SetUniformity(temperature=1.5),
        lambda p: (
            oracles.set_uniformity(p["image_residual"], 1.5)
            + oracles.set_uniformity(p["caption_residual"], 1.5)
        ),
    ),
    "mmd": (
        MMD(gamma=0.7),
        lambda p: oracles.mmd(p["image"].reshape(-1, 6), p["caption"], 0.7),
    ),
    **{
        f"orthogonality_{normalize}": (
            DynamicOrthogonality(beta=0.3, normalize=normalize),
            lambda p, normalize=normalize: (
                oracles.orthogonality(p["image_residual"], 0.3, normalize)
                + oracles.orthogonality(p["caption_residual"], 0.3, normalize)
            ),
        )
        for normalize in (True, False)
    },
    **{
        f"variance_{sigma}": (
            VarianceAwareWeighting(margin=0.5, sigma=sigma, sigma_of="scores"),
            lambda p, sigma=sigma: oracles.variance_aware(
                p["image"], p["caption"], POSITIVES, 0.5, sigma
            ),
        )
        for sigma in ("query", "shared", "one")
    },
    **{
        f"variance_of_probabilities_{sigma}": (
            VarianceAwareWeighting(margin=0.5, sigma=sigma, temperature=0.3),
            lambda p, sigma=sigma: oracles.variance_aware(
                p["image"], p["caption"], POSITIVES, 0.5, sigma, 0.3
            ),
        )
        for sigma in ("query", "shared")
    },
}


@pytest.mark.parametrize("name", REGULARIZERS)
def test_losses_on_sets_and_their_gradients_equal_the_formula(random, name):
    loss, oracle = REGULARIZERS[name]
    arrays = pieces(random)
    inputs = {key: tf.constant(array, tf.float32) for key, array in arrays.items()}
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        value = total(loss, *both_sides(inputs), POSITIVES)
    gradients = tape.gradient(value, inputs, unconnected_gradients="zero")
    np.testing.assert_allclose(value, oracle(arrays), rtol=1e-4)
    for _ in range(3):
        along = {key: random.normal(size=array.shape) for key, array in arrays.items()}
        slope = oracles.slope(
            lambda *values: oracle(dict(zip(arrays, values, strict=True))),
            list(arrays.values()),
            list(along.values()),
        )
        found = sum(np.sum(gradients[key] * along[key]) for key in arrays)
        np.testing.assert_allclose(found, slope, rtol=1e-3, atol=1e-4)


def test_one_sub_embedding_without_variance_is_vsepp(random):
    # All of Table V taken away: no sub-embeddings, no weights, no mask.
    image, caption = random.normal(size=(2, 6, 5)).astype(np.float32)
    positives = np.equal.outer([0, 0, 1, 2, 2, 2], [0, 0, 1, 2, 2, 2])
    loss = VarianceAwareWeighting(sigma="one", margin=0.4, reduction="sum")
    found = total(loss, {"points": image[:, None]}, {"mean": caption}, positives)
    scores = oracles.unit(image) @ oracles.unit(caption).T
    expected = total(Triplet(margin=0.4), {}, {}, positives, scores)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.slow
def test_the_warm_up_of_dvse_adds_up_the_hinges_of_all_negatives(random):
    arrays = pieces(random)
    image, caption = both_sides({k: tf.constant(v, tf.float32) for k, v in arrays.items()})
    loss = VarianceAwareWeighting(sigma="one", margin=0.5, warmup_steps=2)
    positives = np.asarray(POSITIVES)

    @tf.function(autograph=False)
    def both(step):
        terms = loss.terms(None, image, caption, {"positives": tf.constant(positives)}, step=step)
        return terms["image_to_text"] + terms["text_to_image"]

    unit = arrays["image"] / np.linalg.norm(arrays["image"], axis=-1, keepdims=True)
    points = arrays["caption"] / np.linalg.norm(arrays["caption"], axis=-1, keepdims=True)
    cosines = np.einsum("nkd,md->knm", unit, points)
    expected = sum(
        np.mean(
            [hinge for rival in scores[q][~right[q]] if (hinge := 0.5 + rival - scores[q, p]) > 0]
            or [0.0]
        )
        for scores, right in [(s, positives) for s in cosines]
        + [(s.T, positives.T) for s in cosines]
        for q, p in np.argwhere(right)
    ) / np.count_nonzero(positives)
    np.testing.assert_allclose(both(tf.constant(1, tf.int64)), expected, rtol=1e-5)
    to_the_end = VarianceAwareWeighting(sigma="one", margin=0.5, mining="mean")
    found = to_the_end.terms(None, image, caption, {"positives": tf.constant(positives)}, step=9)
    np.testing.assert_allclose(sum(found.values()), expected, rtol=1e-5)
    with pytest.raises(ValueError, match="no effect"):
        VarianceAwareWeighting(mining="mean", warmup_steps=2)
    hardest = VarianceAwareWeighting(sigma="one", margin=0.5)
    np.testing.assert_allclose(
        both(tf.constant(2, tf.int64)),
        total(hardest, image, caption, POSITIVES),
        rtol=1e-6,
    )


@pytest.mark.slow
def test_the_warm_up_of_dvse_learns_nothing_from_sigma(random):
    arrays = pieces(random)
    caption = {"mean": tf.constant(arrays["caption"], tf.float32)}
    relations = {"positives": tf.constant(np.asarray(POSITIVES))}

    def gradient(step, **options):
        image = tf.Variable(arrays["image"], dtype=tf.float32)
        loss = VarianceAwareWeighting(margin=0.5, sigma_of="scores", warmup_steps=2, **options)
        with tf.GradientTape() as tape:
            terms = loss.terms(None, {"points": image}, caption, relations, step=tf.constant(step))
            value = terms["image_to_text"]
        return tape.gradient(value, image).numpy()

    np.testing.assert_array_equal(gradient(1), gradient(1, stop_gradient=True))
    assert np.abs(gradient(2) - gradient(2, stop_gradient=True)).max() > 1e-3


@pytest.mark.parametrize(
    ("sigma_of", "prefers_collapse"), [("probabilities", False), ("scores", True)]
)
def test_right_scores_cost_less_than_equal_ones(random, monkeypatch, sigma_of, prefers_collapse):
    loss = VarianceAwareWeighting(margin=0.2, sigma_of=sigma_of)
    right = random.normal(scale=0.2, size=(128, 128))
    np.fill_diagonal(right, 0.6)

    def cost(scores):
        cosines = tf.constant(scores[None], tf.float32)
        monkeypatch.setattr(loss, "similarities", lambda *_: cosines)
        dummy = {"mean": tf.zeros((128, 1))}
        return float(
            loss.terms(None, dummy, dummy, {"positives": np.eye(128, dtype=bool)})["image_to_text"]
        )

    equal = cost(np.zeros((128, 128)))
    np.testing.assert_allclose(equal, 0.2, rtol=1e-4)
    assert (cost(right) > equal) == prefers_collapse


def test_caption_sets_and_image_points_are_weighted_alike(random):
    points, sets = random.normal(size=(6, 5)), random.normal(size=(6, 3, 5))
    loss = VarianceAwareWeighting(sigma="query")
    here = loss.terms(
        None, embedding(sets), embedding(points), {"positives": np.eye(6, dtype=bool)}
    )
    there = loss.terms(
        None, embedding(points), embedding(sets), {"positives": np.eye(6, dtype=bool)}
    )
    np.testing.assert_allclose(here["image_to_text"], there["text_to_image"], rtol=1e-5)
    np.testing.assert_allclose(here["text_to_image"], there["image_to_text"], rtol=1e-5)


def test_uniformity_spreads_all_points_of_sets(random):
    image, caption = random.normal(size=(2, 4, 3, 6)).astype(np.float32)
    flat = {"mean": image.reshape(-1, 6)}, {"mean": caption.reshape(-1, 6)}
    np.testing.assert_allclose(
        total(Uniformity(), {"points": image}, {"points": caption}, None),
        total(Uniformity(), *flat, None),
        rtol=1e-5,
    )


@pytest.mark.parametrize("name", ["coco_pvse_k1", "cub_pvse_k1", "scenes_pvse_k1"])
def test_pvse_with_one_embedding_has_the_ranking_loss_alone(name):
    # As in the released code: a set of one is neither diverse, nor are its modalities drawn near.
    assert [loss.name for loss in load_config(find_config(name)).objective] == ["triplet"]
