"""The average that leaves the embedding of a pretrained tower as it is."""

from __future__ import annotations

import numpy as np
import pytest

from keras_xmr.heads.pooling import Mean
from keras_xmr.matchers import Cosine, CosineLogits
from keras_xmr.utils.errors import UserError


def test_without_projection_one_position_stays(random):
    features = random.normal(size=(3, 1, 4)).astype(np.float32)
    pooling = Mean(4, projection=False)
    np.testing.assert_array_equal(pooling(features), features[:, 0])
    assert not pooling.weights
    assert not Mean.from_config(pooling.get_config()).projection
    with pytest.raises(UserError, match="the width of the features, 4, but the dimension is 5"):
        Mean(5, projection=False)(features)


def test_averages_at_unit_length_before_the_linear_layer(random):
    features = 7.0 * random.normal(size=(3, 5, 4)).astype(np.float32)
    mask = np.arange(5) < np.array([[5], [2], [3]])
    pooling = Mean(2, normalize=True)
    pooled = pooling(features, mask=mask)
    kernel, bias = pooling.linear.get_weights()
    for item, counts, found in zip(features, mask, pooled, strict=True):
        mean = item[counts].mean(axis=0)
        expected = mean / np.linalg.norm(mean) @ kernel + bias
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert Mean.from_config(pooling.get_config()).normalize


def test_log_odds_of_cosines_are_learned_from_where_they_start(random):
    image, caption = (random.normal(size=(n, 4)).astype(np.float32) for n in (3, 5))
    matcher = CosineLogits(scale=112.0, shift=-16.5)
    expected = 112.0 * np.asarray(Cosine()(image, caption)) - 16.5
    np.testing.assert_allclose(matcher(image, caption), expected, rtol=1e-5)
    assert [weight.name for weight in matcher.trainable_weights] == ["scale", "shift"]
