"""The augmentations rank as the matchers that they are declared for."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tiny_embeddings

from keras_xmr.parts.registry import components
from keras_xmr.search.augmentations import AUGMENTATIONS, Reference

MATCHERS = components("matcher")
EXACT = [name for name, m in MATCHERS.items() if m.SEARCH.exact]
OTHERS = sorted(MATCHERS.keys() - set(EXACT) - {"saf", "sgr", "sgraf"})


def scores_and_products(name, random, images=80, queries=7):
    """What a matcher scores, and what its augmentation gives, both (queries, images)."""
    matcher = MATCHERS[name]()
    kinds = matcher.contract.accepts[-1]
    image = tiny_embeddings.embedding(kinds[0], images, random)
    caption = tiny_embeddings.embedding(kinds[1], queries, random)
    if name == "point_to_rectangle":
        sides = (image, caption)
        image, caption = (e | {"offset": 0.3 * tf.abs(tf.roll(e["mean"], 1, 1))} for e in sides)
    image, caption = matcher.prepare(image, "image"), matcher.prepare(caption, "text")
    options = {"query": "text"} if matcher.contract.directed else {}
    scores = matcher(image, caption, **options).numpy().T
    gallery, query = ({n: np.array(v) for n, v in e.items()} for e in (image, caption))
    augmentation = AUGMENTATIONS[matcher.SEARCH.augmentation]
    reference = Reference(matcher.search_constants(), gallery)
    items = augmentation.gallery_vectors(gallery)
    asked = augmentation.query_vectors(query, reference)
    products = np.einsum("qad,nbd->qnab", asked, items).max(axis=(2, 3))
    return scores, products, (matcher, image, caption)


def test_every_matcher_says_how_it_is_searched():
    for name, matcher in MATCHERS.items():
        assert matcher.SEARCH.augmentation in AUGMENTATIONS, name
    assert sorted(EXACT) == [
        *("closed_form_sampled", "cosine", "cosine_logits", "kl", "mahalanobis"),
        "mahalanobis_cosine",
        *("max_cosine", "mean_cosine", "mean_only", "reverse_kl", "symmetric_kl", "wasserstein"),
    ]


@pytest.mark.parametrize("name", EXACT)
def test_exact_augmentations_rank_as_the_matcher(name, random):
    scores, products, _ = scores_and_products(name, random)
    for own, found in zip(scores, products, strict=True):
        # Neighbours in rank whose scores are equal up to rounding may change places.
        ordered = own[np.argsort(-found, kind="stable")]
        assert np.max(np.diff(ordered)) <= 1e-5 * max(1.0, np.abs(own).max())


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_candidates_hold_most_of_the_best(name, random):
    scores, products, _ = scores_and_products(name, random, images=400)
    best = np.argsort(-scores, axis=1)[:, :5]
    candidates = np.argsort(-products, axis=1)[:, :80]
    found = np.mean([np.isin(b, c).mean() for b, c in zip(best, candidates, strict=True)])
    # By chance 0.2. Of what each word attends to, the means of all tokens know less.
    assert found >= (0.7 if name in ("scan", "naaf") else 0.75), found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["average_l2", "smooth_chamfer", "point_to_rectangle"])
def test_no_score_is_above_its_bound(name, random):
    scores, products, (matcher, image, caption) = scores_and_products(name, random)
    for product, own in zip(products.T, scores.T, strict=True):
        bound = matcher.score_bound(tf.constant(product), image, caption)
        assert np.all(own <= np.array(bound) + 1e-5)
