"""docs/tables/bytes_per_item.csv against embeddings without the keys that a matcher can miss."""

from __future__ import annotations

import csv
import itertools
from pathlib import Path

import numpy as np
import pytest

from keras_xmr.parts.registry import components
from keras_xmr.utils.errors import ArgumentError

TABLE = Path(__file__).parents[3] / "docs" / "tables" / "bytes_per_item.csv"
DIMENSION, SAMPLES = 1024, 7
FACTORS = {"D": 1, "2 D": 2, "J D": SAMPLES, "(J + 2) D": SAMPLES + 2}

with TABLE.open(encoding="utf-8", newline="") as file:
    ROWS = list(csv.DictReader(file))


def fewest(sides, scores_of):
    """The fewest numbers per image that give the scores of the whole embeddings."""
    expected, keys = np.asarray(scores_of(*sides)), sorted(sides[0])
    sizes = []
    for count in range(1, len(keys) + 1):
        for some in itertools.combinations(keys, count):
            parts = [{key: side[key] for key in some} for side in sides]
            try:
                scores = np.asarray(scores_of(*parts))
            except (KeyError, ValueError, ArgumentError):
                continue
            if scores.shape == expected.shape and np.allclose(scores, expected, rtol=1e-4):
                sizes.append(sum(np.asarray(value)[0].size for value in parts[0].values()))
    return min(sizes)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["matcher"])
def test_bytes_are_those_of_the_arrays_that_a_matcher_reads(row, random):
    cls = components("matcher")[row["matcher"]]
    options = {"samples": SAMPLES, "test_samples": SAMPLES} if "samples" in signature(cls) else {}
    matcher = cls(**options)
    sides = [
        {
            "mean": random.normal(size=(n, DIMENSION)).astype(np.float32) / 32,
            "log_variance": random.normal(-7, 0.3, size=(n, DIMENSION)).astype(np.float32),
        }
        for n in (2, 3)
    ]
    prepared = [matcher.prepare(e, side) for e, side in zip(sides, ("image", "text"), strict=True)]
    kept, scoring = fewest(sides, matcher), fewest(prepared, matcher.score_prepared)
    assert f"{4 * kept:,}" == row["bytes kept, D = 1,024"]
    assert f"{4 * scoring:,}" == row["bytes while scoring, J = 7"]
    for numbers, column in ((kept, "kept per image"), (scoring, "while scoring")):
        assert numbers == FACTORS[row[column].partition(":")[0]] * DIMENSION


def signature(cls):
    return cls.__init__.__kwdefaults__ or {}


def test_the_table_has_the_metrics_of_the_paper():
    orders = [row["in Table 1 of Chun et al. 2021"] for row in ROWS]
    assert orders == ["O(N)", *["O(2N)"] * 4, *["O(J²N)"] * 2]
