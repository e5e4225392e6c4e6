"""Float16 holds the vectors of an index only where that changes no top 10."""

from __future__ import annotations

import numpy as np
import pytest

from keras_xmr.index.precision import choose_precision


def turned(angles):
    return np.stack([np.cos(angles), np.sin(angles)], axis=-1)[:, None].astype(np.float32)


@pytest.mark.parametrize(("gap", "precision"), [(1e-1, "float16"), (1e-5, "float32")])
def test_what_rounding_would_mix_up_is_kept_exactly(gap, precision):
    vectors = turned(0.3 + gap * np.arange(15)[::-1])
    queries = turned(np.array([0.0, 0.1, -0.2]))
    assert choose_precision(vectors, queries) == precision


def test_what_float16_cannot_hold_is_kept_exactly():
    with np.errstate(over="ignore"):
        assert choose_precision(np.full((2, 1, 3), 1e6, np.float32), turned(np.zeros(1))) == (
            "float32"
        )
