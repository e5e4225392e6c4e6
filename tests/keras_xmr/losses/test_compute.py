"""The value of a loss for embeddings, without a model."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from keras_xmr import losses, matchers
from keras_xmr.utils.errors import ArgumentError

IMAGE_IDS = np.array([0, 0, 1, 2, 3, 3])
POSITIVES = np.arange(4)[:, None] == IMAGE_IDS


def points(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 6)).astype(np.float32)


def embedding(kind: str, count: int, seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    vectors = random.normal(size=(count, 2, 6)).astype(np.float32)
    if kind == "gaussian":
        return {"mean": vectors[:, 0], "log_variance": vectors[:, 1] - 2.0}
    mask = random.random((count, 6)).astype(np.float32)
    return {"points": vectors, "residuals": vectors, "mask": mask}


IMAGES, CAPTIONS = points(4, 1), points(6, 2)
RELEVANCE = np.random.default_rng(3).random((4, 6))
LOGITS = {"matcher": matchers.MeanOnly(scale=1.0, shift=0.0)}
OF_POINTS = ("NTXent", "SupervisedContrastive", "Triplet", "SmoothAP", "MMD", "Uniformity")
OF_POINTS += ("VarianceAwareWeighting", "AdaptiveOfflineQuintuplet")
OF_GAUSSIANS = ("KLDivergence", "MahalanobisContrastive", "HypergraphContrastive")
OF_SETS = ("Diversity", "SetUniformity", "DynamicOrthogonality")
CASES = [
    *((name, IMAGES, CAPTIONS, {}) for name in OF_POINTS),
    *((name, IMAGES, CAPTIONS, LOGITS) for name in ("SoftContrastive", "ProbabilisticMatching")),
    ("DAA", IMAGES, CAPTIONS, {"relevance": RELEVANCE}),
    *((n, embedding("gaussian", 4, 1), embedding("gaussian", 6, 2), {}) for n in OF_GAUSSIANS),
    *((name, embedding("set", 4, 1), CAPTIONS, {}) for name in OF_SETS),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "images", "captions", "more"), CASES, ids=[c[0] for c in CASES])
def test_every_loss_has_a_value_for_embeddings(name, images, captions, more):
    loss = getattr(losses, name)()
    given = loss(images, captions, IMAGE_IDS, **more)
    assert given.shape == ()
    assert np.isfinite(given)
    np.testing.assert_allclose(loss(images, captions, positives=POSITIVES, **more), given)


def test_every_loss_is_among_the_cases():
    # Of captioning there is no value without words.
    every = set(losses.__all__) - {"Loss", "LossContract", "Relations", "Captioning"}
    assert {name for name, *_ in CASES} == every


def test_it_is_the_value_that_a_model_minimises():
    loss = losses.SmoothAP(temperature=0.1)
    unit = [v / np.linalg.norm(v, axis=1, keepdims=True) for v in (IMAGES, CAPTIONS)]
    scores = tf.constant(unit[0] @ unit[1].T)
    parts = loss.parts(scores, {}, {}, {"positives": tf.constant(POSITIVES)})
    expected = sum(float(part) for part in parts.values())
    np.testing.assert_allclose(loss(IMAGES, CAPTIONS, IMAGE_IDS), expected, rtol=1e-5)


def test_without_image_ids_rows_belong_together():
    loss = losses.NTXent()
    np.testing.assert_array_equal(
        loss(IMAGES, CAPTIONS[:4]), loss(IMAGES, CAPTIONS[:4], [0, 1, 2, 3])
    )


@pytest.mark.slow
def test_it_has_gradients_in_a_graph_too():
    loss = losses.NTXent()

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
        ("SmoothAP", IMAGES, {"matcher": "cosine"}, "one of keras_xmr.matchers, not 'cosine'"),
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


def test_a_matcher_of_samples_says_what_draws_them():
    gaussian = embedding("gaussian", 4, 1)
    matcher = matchers.AverageL2()
    with pytest.raises(ArgumentError, match=r"AverageL2 compares samples, .* draws"):
        matcher(gaussian, gaussian)
    for other, taken in ((matcher, "gaussian"), (matchers.SGR(), "tokens")):
        with pytest.raises(ArgumentError, match=f"takes images of the kind {taken}, not point"):
            other.prepare(IMAGES, "image")
    assert matcher(*(matcher.prepare(gaussian, side) for side in ("image", "caption"))).shape == (
        4,
        4,
    )


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
        def prepare(self, embedding, side, seed=None):
            seeds.append(seed)
            return super().prepare(embedding, side, seed)

    seeds: list[int] = []
    matcher = Noted(scale=1.0, shift=0.0)
    loss, sides = (
        losses.SoftContrastive(),
        (embedding("gaussian", 4, 1), embedding("gaussian", 4, 2)),
    )
    for step in range(4):
        loss(*sides, matcher=matcher, seed=step)
    assert len(set(seeds)) == 8
