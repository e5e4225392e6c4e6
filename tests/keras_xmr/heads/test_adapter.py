"""The residual layer that begins as the identity."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from keras_xmr.heads.pooling import Adapter
from keras_xmr.utils.errors import UserError


def test_it_begins_as_the_average_and_is_its_formula(random):
    features = random.normal(size=(3, 2, 4)).astype(np.float32)
    mask = np.array([[True, True], [True, False], [True, True]])
    average = np.stack([features[0].mean(0), features[1, 0], features[2].mean(0)])
    pooling = Adapter(4, width=2)
    np.testing.assert_allclose(pooling(features, mask=mask), average, rtol=1e-6)
    down, _, up, _ = weights = pooling.trainable_weights
    assert [tuple(weight.shape) for weight in weights] == [(4, 2), (2,), (2, 4), (4,)]
    up.assign(random.normal(size=(2, 4)))
    hidden = average @ np.asarray(down)
    expected = average + hidden * scipy.stats.norm.cdf(hidden) @ np.asarray(up)
    np.testing.assert_allclose(pooling(features, mask=mask), expected, rtol=1e-4, atol=1e-5)
    assert Adapter.from_config(pooling.get_config()).width == 2


def test_another_width_is_refused(random):
    features = random.normal(size=(3, 1, 4)).astype(np.float32)
    with pytest.raises(
        UserError, match=r"features, 4, but the dimension is 5; set model\.dimension"
    ):
        Adapter(5)(features)
