"""Matchers and losses of later papers against loops over pairs and tokens, with any backend."""

from __future__ import annotations

import keras
import method_oracles as oracles
import numpy as np
import pytest
from autodiff import gradients
from keras import ops

from keras_xmr import heads, losses, matchers
from keras_xmr.heads import pooling as poolings

REGIONS, WORDS = (4, 4, 2, 3), (5, 2, 1, 3, 4)


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


def array(value):
    return keras.ops.convert_to_numpy(value)


def falls_along_its_gradient(value, inputs, variables=()):
    """Whether the gradient by inputs is that of central differences along random directions."""
    _, slopes = gradients(value, inputs, variables)
    random, step = np.random.default_rng(3), 1e-2
    for number, slope in enumerate(slopes[: len(inputs)]):
        way = random.normal(size=slope.shape).astype(np.float32)
        way /= np.linalg.norm(way)
        ends = []
        for sign in (1, -1):
            moved = list(inputs)
            moved[number] = inputs[number] + sign * step * way
            ends.append(float(array(value(*moved))))
        found = float(np.sum(slope * way))
        assert found == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=0.03, abs=2e-3)
    assert all(np.isfinite(slope).all() for slope in slopes)
    return slopes


@pytest.mark.parametrize(
    ("direction", "training"), [("both", False), ("both", True), ("image_to_text", False)]
)
def test_imram(random, direction, training):
    image, caption = sides(random)
    matcher = matchers.IMRAM(direction=direction, steps=3, captions_at_once=2)
    matcher(image, caption)
    for weight in matcher.trainable_weights:
        weight.assign(0.4 * random.normal(size=weight.shape))
    memory = {k: [array(w).astype(float) for w in v] for k, v in matcher.memory.items()}

    def score(regions, words):
        both = {"text_to_image": (words, regions), "image_to_text": (regions, words)}
        return sum(oracles.imram(*both[k], 3, 9.0, m) for k, m in memory.items())

    found = array(matcher(image, caption, training=training))
    np.testing.assert_allclose(found, pairs(image, caption, score), atol=2e-5)


def test_imram_with_one_step_is_scan_and_learns_no_memory(random):
    image, caption = sides(random)
    image["tokens"] /= np.maximum(np.linalg.norm(image["tokens"], axis=-1, keepdims=True), 1e-6)
    caption["tokens"] /= np.maximum(np.linalg.norm(caption["tokens"], axis=-1, keepdims=True), 1e-6)
    matcher = matchers.IMRAM(direction="text_to_image", steps=1)
    np.testing.assert_allclose(
        array(matcher(image, caption)), array(matchers.SCAN()(image, caption)), atol=1e-5
    )
    assert not matcher.trainable_weights


def test_the_gradient_of_imram(random):
    image, caption = sides(random)
    matcher = matchers.IMRAM(steps=2)
    matcher(image, caption)
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


@pytest.mark.parametrize(("boundary", "training"), [(0.0, False), (0.3, False), (0.3, True)])
def test_naaf(random, boundary, training):
    image, caption = sides(random)
    matcher = matchers.NAAF(smoothing=7.0, captions_at_once=2)
    matcher.boundary.assign(boundary if training else 0.9)
    matcher.test_boundary.assign(0.9 if training else boundary)
    expected = pairs(image, caption, lambda r, w: oracles.naaf(w, r, boundary, 7.0, training)[0])
    found = array(matcher(image, caption, training=training))
    np.testing.assert_allclose(found, expected, atol=2e-5)


def test_naaf_learns_its_boundaries(random):
    image, caption = sides(random)
    matcher = matchers.NAAF(penalty=1.5, captions_at_once=2)
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
    matcher(image, caption, training=True)
    within = expected if 0 <= expected <= 1 else 0.0
    assert float(array(matcher.boundary)) == pytest.approx(0.7 * within + 0.3 * 0.2, abs=1e-4)
    within = safe if 0 <= safe <= 1 else 0.0
    assert float(array(matcher.test_boundary)) == pytest.approx(0.7 * within + 0.03, abs=1e-4)
    before = float(array(matcher.boundary))
    matcher(image, caption)
    assert float(array(matcher.boundary)) == before


def test_the_gradient_of_naaf(random):
    image, caption = sides(random)
    matcher = matchers.NAAF(smoothing=5.0)
    weigh = random.normal(size=(4, 5)).astype(np.float32)

    def value(regions, words):
        matcher.boundary.assign(0.15)
        given = image | {"tokens": regions}, caption | {"tokens": words}
        return ops.sum(ops.multiply(matcher(*given, training=True), weigh))

    falls_along_its_gradient(value, [image["tokens"], caption["tokens"]])


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_adaptive_offline_quintuplets(random, reduction):
    scores = random.uniform(-0.3, 0.9, size=(12, 12)).astype(np.float32)
    matches = np.eye(12, dtype=bool)
    matches[0, 2] = matches[1, 3] = True
    loss = losses.AdaptiveOfflineQuintuplet(reduction=reduction)
    parts = loss.parts(scores, {}, {}, {"positives": matches})
    expected = oracles.aoq(scores, matches, 0.2, 0.0, 0.3, 1.5)
    expected = expected / (4 if reduction == "mean" else 1)
    found = [float(array(parts[name])) for name in ("online", "offline", "other_anchors")]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert min(found) > 0

    def value(given):
        return sum(loss.parts(given, {}, {}, {"positives": matches}).values())

    # A hinge has a corner: the way along the gradient is short.
    falls_along_its_gradient(lambda s: value(0.1 * s), [10 * scores])


def test_offline_negatives_that_match_count_nowhere(random):
    scores = random.uniform(size=(6, 6)).astype(np.float32)
    matches = np.eye(6, dtype=bool)
    matches[:2, 2:4] = matches[4:, :4] = matches[2:4, 4:] = True
    parts = losses.AdaptiveOfflineQuintuplet().parts(scores, {}, {}, {"positives": matches})
    online = oracles.aoq(scores, matches, 0.2, 0.0, 1e9, 1.5)[0]
    assert float(array(parts["online"])) == pytest.approx(online, rel=1e-5)
    assert float(array(parts["offline"])) == float(array(parts["other_anchors"])) == 0.0


def test_quintuplets_begin_with_all_negatives(random):
    scores = random.uniform(size=(6, 6)).astype(np.float32)
    loss = losses.AdaptiveOfflineQuintuplet(warmup_steps=5, reduction="mean")
    known = {"positives": np.eye(6, dtype=bool)}
    first = loss.parts(scores, {}, {}, known, step=ops.convert_to_tensor(4))
    plain = losses.Triplet(mining="sum", reduction="mean").parts(scores, {}, {}, known)
    assert float(array(first["online"])) == pytest.approx(float(array(sum(plain.values()))))
    later = loss.parts(scores, {}, {}, known, step=ops.convert_to_tensor(5))
    assert float(array(later["offline"])) > 0 == float(array(first["offline"]))


def rectangles(random, items, dimension=11):
    mean = random.normal(size=(items, dimension)).astype(np.float32)
    return {"mean": mean, "offset": np.abs(random.normal(size=mean.shape)).astype(np.float32)}


@pytest.mark.parametrize(("inside_weight", "dimension"), [(0.0, 8), (0.1, 11), (1.0, 1)])
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
    np.testing.assert_allclose(array(matcher(image, caption)), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("pooling", [poolings.Mean, poolings.Projection])
def test_the_gradient_of_rectangles(random, pooling):
    image = random.normal(size=(3, 4, 5)).astype(np.float32)
    caption = rectangles(random, 4, 6)
    head = heads.Rectangle(6, lambda: pooling(6), initial_offset=0.3)
    matcher = matchers.PointToRectangle()
    head(image)
    head.offset_factor.factor.assign(1.0)

    def value(features):
        return ops.sum(matcher(head(features), caption)[0])

    falls_along_its_gradient(value, [image])


def test_the_loss_over_views_bounds_that_of_the_best_view(random):
    views = {"points": random.normal(size=(5, 3, 8)).astype(np.float32)}
    caption = {"mean": random.normal(size=(5, 8)).astype(np.float32)}
    known = {"positives": np.eye(5, dtype=bool)}
    over_views = losses.VarianceAwareWeighting(sigma="one", reduction="sum")
    bound = sum(over_views.parts(None, views, caption, known).values())
    best = matchers.MaxCosine()(views, caption)
    of_best = sum(losses.Triplet(reduction="sum").parts(best, {}, {}, known).values())
    assert float(array(bound)) > float(array(of_best)) > 0
