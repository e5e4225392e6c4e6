"""Entropy of image embeddings against Eq. 1 and 2 of Wei et al. 2023, in loops."""

from __future__ import annotations

import math

import numpy as np
import pytest

from keras_xmr.metrics.entropy import embedding_entropy
from keras_xmr.utils.errors import ArgumentError


def naive(cosines, matches, temperature):
    total = sum(math.exp(cosine / temperature) for cosine in cosines)
    shares = [math.exp(cosine / temperature) / total for cosine in cosines]
    noise = sum(share for share, match in zip(shares, matches, strict=True) if not match)
    own = [share for share, match in zip(shares, matches, strict=True) if match]
    return -sum(share * math.log(share) for share in [*own, noise] if share > 0)


@pytest.mark.parametrize("temperature", [0.05, 1.0])
def test_it_is_the_sum_of_the_paper(random, temperature):
    cosines = random.uniform(-1, 1, size=(3, 4, 10))
    matches = random.random((4, 10)) < 0.4
    found = embedding_entropy(cosines, matches, temperature)
    assert found.shape == (3, 4)
    for (member, image), value in np.ndenumerate(found):
        expected = naive(cosines[member, image], matches[image], temperature)
        assert value == pytest.approx(expected)


def test_it_grows_with_the_captions_that_share_the_probability():
    entropies = []
    for count in (1, 2, 5):
        cosines = np.array([1.0] * count + [-1.0] * 20)
        entropies.append(float(embedding_entropy(cosines, np.arange(len(cosines)) < count)))
    assert entropies == pytest.approx([0, math.log(2), math.log(5)], abs=1e-6)


def test_all_or_nothing_has_no_entropy():
    assert embedding_entropy(np.array([0.2, 0.9]), np.array([False, False])) == pytest.approx(
        0, abs=1e-9
    )
    assert embedding_entropy(np.array([-1.0, 1.0]), np.array([False, True]), 1e-3) == pytest.approx(
        0, abs=1e-9
    )
    with pytest.raises(ArgumentError, match="above 0"):
        embedding_entropy(np.zeros(2), np.ones(2, bool), 0)
