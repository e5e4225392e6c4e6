"""The value of a loss for embeddings, without a model."""

from __future__ import annotations

import gradients
import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_xmr import losses, matchers
from keras_xmr.utils.errors import ArgumentError

IMAGE_IDS = np.array([0, 0, 1, 2, 3, 3])
POSITIVES = np.arange(4)[:, None] == IMAGE_IDS
RELATIONS = {"positives": POSITIVES}


def points(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 6)).astype(np.float32)


def embedding(kind: str, count: int, seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    vectors = random.normal(size=(count, 2, 6)).astype(np.float32)
    if kind == "gaussian":
        return {"mean": vectors[:, 0], "log_variance": vectors[:, 1] - 2.0}
    return {"points": vectors, "residuals": vectors}


IMAGES, CAPTIONS = points(4, 1), points(6, 2)
RELEVANCE = np.random.default_rng(3).random((4, 6))
LOGITS = {"matcher": matchers.MeanOnly(scale=1.0, shift=0.0)}
POINTS = {"mean": IMAGES}, {"mean": CAPTIONS}, {}
GAUSSIANS = embedding("gaussian", 4, 1), embedding("gaussian", 6, 2), {}
SETS = embedding("set", 4, 1), {"mean": CAPTIONS}, {}
OF_LOGITS = (*POINTS[:2], LOGITS)
CASES = [
    (losses.InfoNCE(), POINTS),
    (losses.InfoNCE(temperature=0.2, learnable=True), POINTS),
    (losses.SupervisedContrastive(learnable=True), POINTS),
    (losses.Triplet(), POINTS),
    (losses.Triplet(mining="sum", reduction="mean", margin=0.4), POINTS),
    (losses.Triplet(mining="mean", warmup_steps=0), POINTS),
    (losses.SmoothAP(temperature=0.02), POINTS),
    (losses.MMD(), POINTS),
    (losses.Uniformity(), POINTS),
    (losses.AdaptiveOfflineQuintuplet(), POINTS),
    (losses.SoftContrastive(), OF_LOGITS),
    (losses.ProbabilisticMatching(), OF_LOGITS),
    (losses.DAA(similarity="dot"), (*POINTS[:2], {"relevance": RELEVANCE})),
    (losses.DAA(temperature=0.1), (*POINTS[:2], {"relevance": RELEVANCE})),
    (losses.KLDivergence(), GAUSSIANS),
    (losses.MahalanobisContrastive(), GAUSSIANS),
    (losses.HypergraphContrastive(), GAUSSIANS),
    (losses.HypergraphContrastive(residual=False, learn_alpha=False), GAUSSIANS),
    (losses.Diversity(), SETS),
    (losses.SetUniformity(temperature=1.5), SETS),
    (losses.DynamicOrthogonality(), SETS),
    (losses.DynamicOrthogonality(normalize=False), SETS),
    (losses.VarianceAwareWeighting(), SETS),
    (losses.VarianceAwareWeighting(sigma="shared", sigma_of="scores"), SETS),
]
every_loss = pytest.mark.parametrize(
    ("loss", "given"), CASES, ids=[type(loss).__name__ for loss, _ in CASES]
)


@pytest.mark.slow
@every_loss
def test_every_loss_has_a_value_for_embeddings_and_survives_its_config(loss, given):
    images, captions, more = given
    value = loss(images, captions, IMAGE_IDS, **more)
    assert value.shape == ()
    assert np.isfinite(value)
    # Pairs from ids are summed alone, a matrix of positives as a whole: in another order.
    again = loss(images, captions, positives=POSITIVES, **more)
    np.testing.assert_allclose(again, value, rtol=1e-6)
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(loss))
    assert copy.get_config() == loss.get_config()
    copy(images, captions, IMAGE_IDS, **more)
    copy.set_weights(loss.get_weights())
    np.testing.assert_array_equal(copy(images, captions, IMAGE_IDS, **more), value)
    assert [w.path for w in copy.weights] == [w.path for w in loss.weights]


@pytest.mark.parametrize("images", [IMAGES, tf.constant(IMAGES)])
def test_embeddings_of_different_precision_are_refused(images):
    double = tf.constant(CAPTIONS, tf.float64)
    for part in (losses.InfoNCE(), matchers.Cosine()):
        with pytest.raises(ArgumentError, match="of float64 and others are not"):
            part(images, double)
    variances = {"mean": IMAGES, "log_variance": tf.constant(IMAGES, tf.float64)}
    with pytest.raises(ArgumentError, match="of float64 and others are not"):
        losses.HypergraphContrastive()(variances, variances)


@pytest.mark.parametrize("related", ["image_ids", "positives"])
@every_loss
def test_float64_stays_float64(loss, given, related):
    relations = {related: IMAGE_IDS if related == "image_ids" else POSITIVES}

    def value(dtype):
        sides = keras.tree.map_structure(lambda part: tf.cast(part, dtype), given[:2])
        return loss(*sides, **relations, **given[2])

    double = value("float64")
    assert double.dtype == tf.float64
    np.testing.assert_allclose(double, value("float32"), rtol=1e-4)


@every_loss
def test_the_order_of_the_batch_does_not_matter(random, loss, given):
    images, captions, more = given
    rows, columns = random.permutation(4), random.permutation(6)
    moved = {"positives": POSITIVES[rows][:, columns], **more}
    if "relevance" in more:
        moved["relevance"] = RELEVANCE[rows][:, columns]
    if isinstance(loss, losses.AdaptiveOfflineQuintuplet):
        return  # The thirds of its batches have an order.
    images, captions = (
        {key: part[order] for key, part in side.items()}
        for side, order in ((images, rows), (captions, columns))
    )
    value = loss(*given[:2], positives=POSITIVES, **more)
    np.testing.assert_allclose(loss(images, captions, **moved), value, rtol=1e-4)


@pytest.mark.slow
@every_loss
def test_identical_items_give_finite_losses_and_gradients(loss, given):
    for fill in (0.0, 0.5):
        images, captions = (
            {key: tf.fill(part.shape, fill) for key, part in side.items()} for side in given[:2]
        )
        with tf.GradientTape() as tape:
            tape.watch([images, captions])
            value = loss(images, captions, IMAGE_IDS, **given[2])
        assert np.isfinite(value)
        slopes = tape.gradient(value, [images, captions], unconnected_gradients="zero")
        assert all(np.isfinite(slope).all() for slope in keras.tree.flatten(slopes))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "given"),
    [
        (losses.SoftContrastive(), (*GAUSSIANS[:2], {"matcher": matchers.ClosedFormSampled()})),
        (losses.ProbabilisticMatching(), OF_LOGITS),
        *((loss, given) for loss, given in CASES if given[0] is GAUSSIANS[0]),
        (losses.Uniformity(), POINTS),
        (losses.DAA(temperature=0.5), (*POINTS[:2], {"relevance": RELEVANCE})),
    ],
)
def test_gradients_equal_central_differences(random, loss, given):
    # New weights of a seed: with some, a hinge or a ReLU bends within the difference.
    keras.utils.set_random_seed(0)
    loss = type(loss).from_config(loss.get_config())
    names = [(number, key) for number in range(2) for key in given[number]]

    def value(*parts):
        sides: tuple[dict, dict] = ({}, {})
        for (number, key), part in zip(names, parts, strict=True):
            sides[number][key] = part
        return loss(*sides, IMAGE_IDS, **given[2])

    # A short step, so that no pair becomes pseudo-positive on the way.
    gradients.check(value, [0.3 * given[n][key] for n, key in names], random, step=3e-3)


def test_every_loss_is_among_the_cases():
    # Of captioning there is no value without words.
    others = {"Captioning", "Functional", "Loss", "LossContract", "Relations"}
    functions = {"gather", "gather_labels"}
    assert {type(loss).__name__ for loss, _ in CASES} == set(losses.__all__) - others - functions


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_summed_in_float32(random, dtype):
    scores = tf.cast(random.normal(size=(4, 6)), dtype)
    sets = {key: tf.cast(part, dtype) for key, part in SETS[0].items()}
    for loss in (losses.InfoNCE(), losses.SmoothAP(), losses.Triplet(), losses.Diversity()):
        found, single = (
            sum(
                loss.terms(
                    read(scores), keras.tree.map_structure(read, sets), {}, RELATIONS
                ).values()
            )
            for read in (lambda x: x, lambda x: tf.cast(x, tf.float32))
        )
        assert found.dtype == tf.float32
        np.testing.assert_allclose(found, single, rtol=1e-6)


def test_it_is_the_value_that_a_model_minimises():
    loss = losses.SmoothAP(temperature=0.1)
    unit = [v / np.linalg.norm(v, axis=1, keepdims=True) for v in (IMAGES, CAPTIONS)]
    scores = tf.constant(unit[0] @ unit[1].T)
    terms = loss.terms(scores, {}, {}, {"positives": tf.constant(POSITIVES)})
    expected = sum(float(term) for term in terms.values())
    np.testing.assert_allclose(loss(IMAGES, CAPTIONS, IMAGE_IDS), expected, rtol=1e-5)


def test_without_image_ids_rows_belong_together():
    loss = losses.InfoNCE()
    np.testing.assert_array_equal(
        loss(IMAGES, CAPTIONS[:4]), loss(IMAGES, CAPTIONS[:4], [0, 1, 2, 3])
    )


@pytest.mark.slow
def test_it_has_gradients_in_a_graph_too():
    loss = losses.InfoNCE()

    @tf.function
    def gradient(images, captions, image_ids):
        with tf.GradientTape() as tape:
            tape.watch(images)
            value = loss(images, captions, image_ids)
        return tape.gradient(value, images)

    found = gradient(tf.constant(IMAGES), tf.constant(CAPTIONS), tf.constant(IMAGE_IDS))
    assert np.abs(found).min() > 0


ONE_WRONG = {
    "6 captions: give image_ids": (IMAGES, CAPTIONS),
    r"shape \(6,\), not int64 of shape \(5,\)": (IMAGES, CAPTIONS, IMAGE_IDS[:5]),
    r"whole numbers of shape \(6,\), not float64": (IMAGES, CAPTIONS, IMAGE_IDS / 1),
    r"image_ids\[5\] is 4, but there are 4 images": (IMAGES, CAPTIONS, [0, 0, 1, 2, 3, 4]),
    r"image_ids\[0\] is -1": (IMAGES, CAPTIONS, IMAGE_IDS - 1),
    "images: embeddings are float tensors, not texts": (["a dog"] * 4, CAPTIONS, IMAGE_IDS),
    "captions: embeddings are float tensors, not texts": (IMAGES, np.array(["a"] * 6), IMAGE_IDS),
    "not int64": (IMAGES, np.ones((6, 6), np.int64), IMAGE_IDS),
    "6 dimensions and captions in 5": (IMAGES, CAPTIONS[:, :5], IMAGE_IDS),
    r"captions: 'mean' has the shape \(6,\), not \(N, D\)": (IMAGES, CAPTIONS[:, 0], IMAGE_IDS),
    "no kind of embedding has the keys": (IMAGES, {"vector": CAPTIONS}, IMAGE_IDS),
    "of as many items": (
        {"mean": IMAGES, "log_variance": IMAGES[:3]},
        CAPTIONS,
        IMAGE_IDS,
    ),
}


@pytest.mark.parametrize("says", ONE_WRONG)
def test_a_wrong_call_says_what_is_right(says):
    with pytest.raises(ArgumentError, match=says):
        losses.SmoothAP()(*ONE_WRONG[says])


@pytest.mark.parametrize(
    ("name", "images", "more", "says"),
    [
        (
            "KLDivergence",
            IMAGES,
            {},
            "works on gaussian embeddings, not point and point: give a dict",
        ),
        ("Diversity", IMAGES, {}, "reads the residuals of an embedding, which neither side has"),
        ("SoftContrastive", IMAGES, {"matcher": matchers.Cosine()}, "log-odds of a match"),
        ("DAA", IMAGES, {}, r"give relevance, float \(4, 6\), such as keras_xmr.relevance.cider"),
        ("DAA", IMAGES, {"relevance": RELEVANCE[:3]}, r"of shape \(4, 6\), not \(3, 6\)"),
        ("DAA", IMAGES, {"relevance": -RELEVANCE}, "relevance is from 0 on"),
        ("DAA", IMAGES, {"relevance": "x"}, "relevance: a matrix of finite numbers"),
        ("DAA", IMAGES, {"relevance": RELEVANCE * np.nan}, "relevance: a matrix of finite numbers"),
        ("DAA", embedding("set", 4, 1), {"relevance": RELEVANCE}, "or take similarity='scores'"),
        ("SmoothAP", IMAGES, {"relevance": RELEVANCE}, "does not use relevance"),
        ("SmoothAP", IMAGES, {"positives": POSITIVES}, "both define the matching pairs"),
        (
            "SmoothAP",
            IMAGES,
            {"matcher": matchers.MatchProbability()},
            "scores gaussian embeddings",
        ),
        (
            "SmoothAP",
            IMAGES,
            {"matcher": "cosine"},
            "one of keras_xmr.matchers, or a function of both embeddings, not 'cosine'",
        ),
        ("SmoothAP", IMAGES, {"matcher": matchers.MaxCosine()}, "scores set and set"),
        ("VarianceAwareWeighting", embedding("gaussian", 4, 1), {}, "not gaussian and point"),
    ],
)
def test_a_loss_says_what_it_needs(name, images, more, says):
    with pytest.raises(ArgumentError, match=says):
        getattr(losses, name)()(images, CAPTIONS, IMAGE_IDS, **more)


def test_a_matcher_takes_tensors():
    scores = matchers.Cosine()(IMAGES, CAPTIONS)
    np.testing.assert_array_equal(scores, matchers.Cosine()({"mean": IMAGES}, {"mean": CAPTIONS}))


def test_a_matcher_scores_embeddings_of_one_space():
    with pytest.raises(ArgumentError, match="in 6 dimensions and captions in 5"):
        matchers.Cosine()(IMAGES, CAPTIONS[:, :5])


def test_a_matcher_prepares_what_it_scores():
    gaussian = embedding("gaussian", 4, 1)
    matcher = matchers.AverageL2()
    prepared = (matcher.prepare(gaussian, side) for side in ("image", "text"))
    np.testing.assert_array_equal(matcher(gaussian, gaussian), matcher(*prepared))
    for other, taken in ((matcher, "gaussian"), (matchers.SGR(), "tokens")):
        with pytest.raises(ArgumentError, match=f"takes images of the kind {taken}, not point"):
            other.prepare(IMAGES, "image")


def test_positives_are_true_or_false():
    with pytest.raises(ArgumentError, match="positives: a matrix of finite numbers"):
        losses.SmoothAP()(IMAGES, CAPTIONS, positives="x")
    with pytest.raises(ArgumentError, match="the rows of images are image_ids"):
        losses.SmoothAP()(IMAGES, CAPTIONS, positives=np.arange(24).reshape(4, 6))


def test_a_gaussian_has_one_variance_per_coordinate():
    gaussian = {"mean": IMAGES, "log_variance": IMAGES[:, :3]}
    with pytest.raises(ArgumentError, match="one variance per coordinate"):
        losses.KLDivergence()(gaussian, gaussian)


def test_nan_is_not_hidden():
    broken = IMAGES.copy()
    broken[0, 0] = np.nan
    for loss in (losses.MMD(), losses.Uniformity()):
        assert np.isnan(loss(broken, CAPTIONS, IMAGE_IDS))


def test_a_loss_of_nothing_is_told():
    with pytest.raises(ArgumentError, match="at least one image and one caption"):
        losses.Triplet()(points(0, 1), points(0, 2))


def test_successive_steps_share_no_noise_between_images_and_captions():
    class Noted(matchers.MatchProbability):
        def prepare(self, embedding, side, seed=None, *, training=None):
            seeds.append(seed)
            return super().prepare(embedding, side, seed, training=training)

    seeds: list[int] = []
    matcher = Noted(scale=1.0, shift=0.0)
    loss, sides = (
        losses.SoftContrastive(),
        (embedding("gaussian", 4, 1), embedding("gaussian", 4, 2)),
    )
    for step in range(4):
        loss(*sides, matcher=matcher, seed=step, training=True)
    assert len(set(seeds)) == 8


@pytest.mark.parametrize("side", ["caption", "images", None])
def test_a_side_is_image_or_text(side):
    gaussian = embedding("gaussian", 4, 1)
    with pytest.raises(ArgumentError, match=f'side is "image" or "text", not {side!r}'):
        matchers.AverageL2().prepare(gaussian, side)
    if side:
        with pytest.raises(ArgumentError, match=f'query is "image" or "text", not {side!r}'):
            matchers.Mahalanobis()(gaussian, gaussian, query=side)
