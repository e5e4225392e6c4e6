"""Canonical correlation analysis, against a generalised eigenproblem."""

from __future__ import annotations

import numpy as np
import pytest
from cca_oracle import oracle

from keras_xmr.judgements import Judgements
from keras_xmr.linear.cca import CanonicalCorrelations, Projections, pair_weights
from keras_xmr.metrics import evaluate_scores


def pairs(random, images: int, widths: tuple[int, int] = (5, 4)):
    """Images with 0 to 3 captions that tell of two of their numbers; the first has two."""
    counts = np.concatenate([[2], random.integers(0, 4, images - 1)])
    image_ids = np.repeat(np.arange(images), counts)
    found = random.normal(size=(images, widths[0])) * np.geomspace(1, 3, widths[0]) + 2
    captions = random.normal(size=(len(image_ids), widths[1])) - 1
    captions[:, :2] += 2 * found[image_ids, :2]
    order = random.permutation(len(image_ids))
    return found, captions[order], image_ids[order]


def one(correlations, dimension, *, image_ridge=0.1, caption_ridge=0.3, exponent=1.0):
    (found,) = correlations.projections(dimension, [image_ridge], [caption_ridge], [exponent])
    return found


def scores(correlations, found: Projections, images, captions) -> np.ndarray:
    return ((images - correlations.image_mean) @ found.image) @ (
        (captions - correlations.caption_mean) @ found.caption
    ).T


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
def test_maps_solve_the_generalised_eigenproblem(random, exponent):
    images, captions, image_ids = pairs(random, 40)
    values, left, right = oracle(images, captions, image_ids, 0.1, 0.3)
    correlations = CanonicalCorrelations(images, captions, image_ids)
    np.testing.assert_allclose(correlations.image_mean, images[image_ids].mean(axis=0))
    np.testing.assert_allclose(correlations.caption_mean, captions.mean(axis=0))
    found = one(correlations, 3, exponent=exponent)
    # Both maps of a direction may have the other sign.
    signs = np.sign((found.image * left[:, :3]).sum(axis=0))
    weights = signs * values[:3] ** exponent
    np.testing.assert_allclose(found.image, left[:, :3] * weights, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found.caption, right[:, :3] * weights, rtol=1e-6, atol=1e-9)
    assert (found.image_ridge, found.caption_ridge, found.exponent) == (0.1, 0.3, exponent)


@pytest.mark.parametrize("widths", [(30, 4), (5, 90), (30, 90)])
def test_fewer_items_than_numbers_give_the_scores_of_as_many(random, widths):
    images, captions, image_ids = pairs(random, 20)
    assert len(images) < 30
    assert len(captions) < 90
    wide = []
    for vectors, width in zip((images, captions), widths, strict=True):
        # A rotation into more dimensions, the ridge as large in each.
        rotation = np.linalg.qr(random.normal(size=(width, width)))[0][: vectors.shape[1]]
        wide.append(vectors @ rotation)
    narrow = CanonicalCorrelations(images, captions, image_ids)
    expected = scores(narrow, one(narrow, 3), images, captions)
    correlations = CanonicalCorrelations(*wide, image_ids)
    found = one(correlations, 3, image_ridge=0.1 * widths[0] / 5, caption_ridge=0.3 * widths[1] / 4)
    np.testing.assert_allclose(scores(correlations, found, *wide), expected, rtol=1e-6, atol=1e-9)


def test_directions_that_are_not_there_are_zeros(random):
    images, captions, image_ids = pairs(random, 30)
    correlations = CanonicalCorrelations(images, captions, image_ids)
    found, whole = one(correlations, 9), one(correlations, 4)
    assert found.image.shape == (5, 9)
    assert found.caption.shape == (4, 9)
    np.testing.assert_array_equal(found.image[:, :4], whole.image)
    assert not found.image[:, 4:].any()
    assert not found.caption[:, 4:].any()


@pytest.mark.parametrize("widths", [(5, 4), (30, 90)])
def test_rounding_does_not_choose_the_signs_of_directions(random, widths):
    images, captions, image_ids = pairs(random, 20, (5, 4))
    images = images @ random.normal(size=(5, widths[0]))
    captions = captions @ random.normal(size=(4, widths[1]))
    first = one(CanonicalCorrelations(images, captions, image_ids), 3)
    rounded = [vectors.astype(np.float32) for vectors in (images, captions)]
    again = one(CanonicalCorrelations(*rounded, image_ids), 3)
    np.testing.assert_allclose(again.image, first.image, rtol=1e-2, atol=1e-3)
    np.testing.assert_allclose(again.caption, first.caption, rtol=1e-2, atol=1e-3)


def test_every_combination_is_tried_the_first_first(random):
    correlations = CanonicalCorrelations(*pairs(random, 30))
    tried = list(correlations.projections(2, iter([3, 1]), iter([2, 5]), iter([0.5, 0])))
    assert [(t.image_ridge, t.caption_ridge, t.exponent) for t in tried] == [
        *((3, 2, 0.5), (3, 2, 0), (3, 5, 0.5), (3, 5, 0)),
        *((1, 2, 0.5), (1, 2, 0), (1, 5, 0.5), (1, 5, 0)),
    ]
    for choice in tried:
        again = one(
            correlations,
            2,
            image_ridge=choice.image_ridge,
            caption_ridge=choice.caption_ridge,
            exponent=choice.exponent,
        )
        np.testing.assert_array_equal(again.image, choice.image)


def test_the_first_directions_are_kept(random):
    correlations = CanonicalCorrelations(*pairs(random, 30))
    every, one_of_them = correlations.projections(3, [1], [1], [0.5], [1, 9])
    assert (every.directions, one_of_them.directions) == (3, 1)
    np.testing.assert_array_equal(one_of_them.image[:, :1], every.image[:, :1])
    np.testing.assert_array_equal(one_of_them.caption[:, 1:], 0)


def test_a_pair_that_weighs_twice_is_a_pair_that_is_there_twice(random):
    images, captions, image_ids = pairs(random, 40)
    weights = pair_weights(image_ids, len(images)).tolil()
    weights[image_ids[3], 3] = 2
    other = (image_ids[5] + 1) % 40
    weights[other, 5] = 1
    weights[image_ids[7], 7] = 0
    repeated = np.concatenate([np.arange(len(captions)), [3, 5]])
    owners = np.append(image_ids, [image_ids[3], other])
    rows = np.delete(np.arange(len(repeated)), 7)
    expected = CanonicalCorrelations(images, captions[repeated[rows]], owners[rows])
    found = CanonicalCorrelations(images, captions, image_ids, weights.tocsr())
    np.testing.assert_allclose(found.caption_mean, expected.caption_mean)
    np.testing.assert_allclose(one(found, 3).image, one(expected, 3).image, rtol=1e-6)
    np.testing.assert_allclose(one(found, 3).caption, one(expected, 3).caption, rtol=1e-6)
    with pytest.raises(ValueError, match="no pair"):
        CanonicalCorrelations(images, captions, image_ids, 0 * weights.tocsr())


@pytest.mark.parametrize("images", [40, 4])
def test_no_single_option_improves_the_setting_of_the_search(random, images):
    photos, captions, image_ids = pairs(random, 60)
    train, held = image_ids < 60 - images, image_ids >= 60 - images
    correlations = CanonicalCorrelations(photos[: 60 - images], captions[train], image_ids[train])
    split = photos[60 - images :], captions[held]
    judgements = Judgements.from_pairs(image_ids[held] - (60 - images), images)
    grid = (1.0, 0.01, 100.0), (3.0, 0.1, 0.01), (0.5, 1.0), (3, 1)
    rsum, best = correlations.best(3, grid, *split, judgements)

    def measured(maps):
        scores = correlations.scores(maps, *split)
        return evaluate_scores(scores, judgements).summary["rsum"]

    assert rsum == measured(best)
    tried = {
        (maps.image_ridge, maps.caption_ridge, maps.exponent, maps.directions): measured(maps)
        for maps in correlations.projections(3, *grid)
    }
    assert len(tried) == 36
    for setting, value in tried.items():
        if best.image_ridge == setting[0] or best.caption_ridge == setting[1]:
            assert value <= rsum
