"""Matchers and losses of later papers against loops over pairs and tokens, with any backend."""

from __future__ import annotations

import keras
import method_oracles as oracles
import numpy as np
import pytest
from autodiff import built, differentiated, evaluated, evaluating
from keras import ops

from keras_xmr import heads, losses, matchers
from keras_xmr.heads import pooling as poolings

REGIONS, WORDS = (4, 4, 2, 3), (5, 2, 1, 3, 4)
# JAX compiles every case, so others than TensorFlow see the one that has all parts of a method.
in_tensorflow = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="another case runs everywhere"
)


def tokens(random, lengths, most, width=6):
    made = random.normal(size=(len(lengths), most, width)).astype(np.float32)
    mask = (np.arange(most) < np.array(lengths)[:, None]).astype(np.float32)
    return {"tokens": made * mask[..., None], "mask": mask}


def sides(random):
    return tokens(random, REGIONS, 4), tokens(random, WORDS, 6)


def pairs(image, caption, score):
    """The scores of all pairs by a function of the regions of one and the words of the other."""
    return [
        [score(image["tokens"][i, :r], caption["tokens"][j, :w]) for j, w in enumerate(WORDS)]
        for i, r in enumerate(REGIONS)
    ]


not_in_jax = pytest.mark.skipif(
    keras.backend.backend() == "jax", reason="takes long to compile; SAF has a gradient of tiles"
)


def falls_along_its_gradient(value, inputs, variables=()):
    """Whether the gradient by inputs is that of central differences along random directions."""
    differentiate = differentiated(value, variables)
    _, slopes = differentiate(inputs)
    random, step = np.random.default_rng(3), 1e-2
    for number, slope in enumerate(slopes[: len(inputs)]):
        way = random.normal(size=slope.shape).astype(np.float32)
        way /= np.linalg.norm(way)
        ends = []
        for sign in (1, -1):
            moved = list(inputs)
            moved[number] = inputs[number] + sign * step * way
            ends.append(float(differentiate(moved)[0]))
        found = float(np.sum(slope * way))
        assert found == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=0.03, abs=2e-3)
    assert all(np.isfinite(slope).all() for slope in slopes)
    return slopes


@pytest.mark.parametrize(
    ("direction", "training"),
    [("both", True), pytest.param("image_to_text", False, marks=in_tensorflow)],
)
def test_imram(random, direction, training):
    image, caption = sides(random)
    matcher = built(matchers.IMRAM(direction=direction, captions_at_once=3), image, caption)
    for weight in matcher.trainable_weights:
        weight.assign(0.4 * random.normal(size=weight.shape))
    memory = {k: [w.numpy().astype(float) for w in v] for k, v in matcher.memory.items()}

    def score(regions, words):
        both = {"text_to_image": (words, regions), "image_to_text": (regions, words)}
        return sum(oracles.imram(*both[k], 3, 9.0, m) for k, m in memory.items())

    found = evaluated(lambda *given: matcher(*given, training=training), image, caption)
    np.testing.assert_allclose(found, pairs(image, caption, score), atol=2e-5)


@in_tensorflow
def test_imram_with_one_step_is_scan_and_learns_no_memory(random):
    image, caption = sides(random)
    image["tokens"] /= np.maximum(np.linalg.norm(image["tokens"], axis=-1, keepdims=True), 1e-6)
    caption["tokens"] /= np.maximum(np.linalg.norm(caption["tokens"], axis=-1, keepdims=True), 1e-6)
    matcher = matchers.IMRAM(direction="text_to_image", steps=1)
    scores = (evaluated(one, image, caption) for one in (matcher, matchers.SCAN()))
    np.testing.assert_allclose(*scores, atol=1e-5)
    assert not matcher.trainable_weights


@not_in_jax
def test_the_gradient_of_imram(random):
    image, caption = sides(random)
    matcher = built(matchers.IMRAM(steps=2), image, caption)
    for weight in matcher.trainable_weights:
        weight.assign(0.2 * random.normal(size=weight.shape))
    weigh = random.normal(size=(4, 5)).astype(np.float32)

    def value(regions, words):
        given = image | {"tokens": regions}, caption | {"tokens": words}
        return ops.sum(ops.multiply(matcher(*given, training=True), weigh))

    slopes = falls_along_its_gradient(
        value, [image["tokens"], caption["tokens"]], matcher.trainable_weights
    )
    assert all(np.abs(slope).max() > 0 for slope in slopes)


@pytest.mark.parametrize("training", [False, pytest.param(True, marks=in_tensorflow)])
def test_naaf(random, training):
    image, caption = sides(random)
    boundary = 0.3
    matcher = evaluating(matchers.NAAF(smoothing=7.0, captions_at_once=2))
    matcher.boundary.assign(boundary if training else 0.9)
    matcher.test_boundary.assign(0.9 if training else boundary)
    expected = pairs(image, caption, lambda r, w: oracles.naaf(w, r, boundary, 7.0, training)[0])
    found = evaluated(lambda *given: matcher(*given, training=training), image, caption)
    np.testing.assert_allclose(found, expected, atol=2e-5)


def test_naaf_learns_its_boundaries(random):
    image, caption = sides(random)
    matcher = evaluating(matchers.NAAF(penalty=1.5, captions_at_once=2))
    matcher.boundary.assign(0.2)
    matcher.test_boundary.assign(0.1)
    scored = [
        [
            oracles.naaf(c[:w], i[:r], 0.2, 20.0, True)
            for i, r in zip(image["tokens"], REGIONS, strict=True)
        ]
        for c, w in zip(caption["tokens"], WORDS, strict=True)
    ]
    matching = np.concatenate([max(row)[1] for row in scored])
    others = np.concatenate([min(row)[1] for row in scored])
    expected = oracles.boundary_between(matching, others, 1.5)
    safe = np.mean(matching) - 3 * np.std(matching, ddof=1)
    boundaries = [matcher.boundary, matcher.test_boundary]
    evaluated(lambda *given: matcher(*given, training=True), image, caption, changes=boundaries)
    assert safe < 0 < expected < 1, "0 takes the place of what no similarity can be"
    moved = [float(boundary.numpy()) for boundary in boundaries]
    assert moved == pytest.approx([0.7 * expected + 0.3 * 0.2, 0.3 * 0.1], abs=1e-4)
    evaluated(matcher, image, caption, changes=boundaries)
    assert [float(boundary.numpy()) for boundary in boundaries] == moved


@in_tensorflow
def test_the_gradient_of_naaf(random):
    image, caption = sides(random)
    matcher = matchers.NAAF(smoothing=5.0)
    weigh = random.normal(size=(4, 5)).astype(np.float32)

    def value(regions, words):
        matcher.boundary.assign(0.15)
        given = image | {"tokens": regions}, caption | {"tokens": words}
        return ops.sum(ops.multiply(matcher(*given, training=True), weigh))

    falls_along_its_gradient(value, [image["tokens"], caption["tokens"]])


def online_and_offline(loss, scores, matches, step=None):
    return evaluated(lambda given: loss.terms(given, {}, {}, {"positives": matches}, step), scores)


@pytest.mark.parametrize("reduction", ["sum", pytest.param("mean", marks=in_tensorflow)])
def test_adaptive_offline_quintuplets(random, reduction):
    scores = random.uniform(-0.3, 0.9, size=(12, 12)).astype(np.float32)
    matches = np.eye(12, dtype=bool)
    matches[0, 2] = matches[1, 3] = True
    loss = losses.AdaptiveOfflineQuintuplet(reduction=reduction)
    terms = online_and_offline(loss, scores, matches)
    expected = oracles.aoq(scores, matches, 0.2, 0.0, 0.3, 1.5)
    expected = expected / (4 if reduction == "mean" else 1)
    found = [float(terms[name]) for name in ("online", "offline", "other_anchors")]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert min(found) > 0

    def value(given):
        # A hinge has a corner: the way along the gradient is short.
        return sum(loss.terms(0.1 * given, {}, {}, {"positives": matches}).values())

    falls_along_its_gradient(value, [10 * scores])


@in_tensorflow
def test_offline_negatives_that_match_count_nowhere(random):
    scores = random.uniform(size=(6, 6)).astype(np.float32)
    matches = np.eye(6, dtype=bool)
    matches[:2, 2:4] = matches[4:, :4] = matches[2:4, 4:] = True
    terms = online_and_offline(losses.AdaptiveOfflineQuintuplet(), scores, matches)
    online = oracles.aoq(scores, matches, 0.2, 0.0, 1e9, 1.5)[0]
    assert float(terms["online"]) == pytest.approx(online, rel=1e-5)
    assert terms["offline"] == terms["other_anchors"] == 0.0


def test_quintuplets_begin_with_all_negatives(random):
    scores, matches = random.uniform(size=(6, 6)).astype(np.float32), np.eye(6, dtype=bool)
    loss = losses.AdaptiveOfflineQuintuplet(warmup_steps=5, reduction="mean")
    plain = online_and_offline(losses.Triplet(mining="sum", reduction="mean"), scores, matches)
    first, later = (
        online_and_offline(loss, scores, matches, ops.convert_to_tensor(step)) for step in (4, 5)
    )
    assert float(first["online"]) == pytest.approx(float(sum(plain.values())))
    assert later["offline"] > 0 == first["offline"]


def rectangles(random, items, dimension=11):
    mean = random.normal(size=(items, dimension)).astype(np.float32)
    return {"mean": mean, "offset": np.abs(random.normal(size=mean.shape)).astype(np.float32)}


@pytest.mark.parametrize(("inside_weight", "dimension"), [(0.0, 8), (0.1, 11)])
def test_points_to_rectangles(random, inside_weight, dimension):
    image, caption = rectangles(random, 3, dimension), rectangles(random, 4, dimension)
    matcher = matchers.PointToRectangle(inside_weight=inside_weight)
    far = oracles.rectangle_distance
    expected = [
        [
            -0.5 * far(image["mean"][i], caption["mean"][j], caption["offset"][j], inside_weight)
            - 0.5 * far(caption["mean"][j], image["mean"][i], image["offset"][i], inside_weight)
            for j in range(4)
        ]
        for i in range(3)
    ]
    found = evaluated(matcher, image, caption)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "pooling", [poolings.Projection, pytest.param(poolings.Mean, marks=in_tensorflow)]
)
@not_in_jax
def test_the_gradient_of_rectangles(random, pooling):
    image = random.normal(size=(3, 4, 5)).astype(np.float32)
    caption = rectangles(random, 4, 6)
    head = built(heads.Rectangle(6, lambda: pooling(6), initial_offset=0.3), image)
    matcher = matchers.PointToRectangle()
    head.offset_factor.factor.assign(1.0)

    def value(features):
        return ops.sum(matcher(head(features), caption)[0])

    falls_along_its_gradient(value, [image])


@in_tensorflow
def test_the_loss_over_views_bounds_that_of_the_best_view(random):
    views = {"points": random.normal(size=(5, 3, 8)).astype(np.float32)}
    caption = {"mean": random.normal(size=(5, 8)).astype(np.float32)}
    known = {"positives": np.eye(5, dtype=bool)}
    over_views = losses.VarianceAwareWeighting(sigma="one", reduction="sum")

    def both(views, caption):
        best = matchers.MaxCosine()(views, caption)
        of_best = losses.Triplet(reduction="sum").terms(best, {}, {}, known)
        return [over_views.terms(None, views, caption, known), of_best]

    bound, of_best = (sum(terms.values()) for terms in evaluated(both, views, caption))
    assert bound > of_best > 0
