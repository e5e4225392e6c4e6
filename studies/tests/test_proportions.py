"""Photos in their proportions against squashed ones."""

from __future__ import annotations

import numpy as np
import pytest
from benchmark_modules import benchmark
from PIL import Image

study = benchmark("proportions", "studies")
methods = benchmark("flickr8k_methods", "studies")


def test_one_kind_is_squashed_and_the_other_is_not_changed(study):
    photo = Image.new("RGB", (300, 200), "red")
    assert study.change(photo, study.SQUASHED).size == (224, 224)
    assert study.change(photo, "centre") is photo


def test_parts_have_the_captions_of_their_photos(study, methods, random):
    owner = np.repeat(np.arange(10), 3)
    pairs = methods.Pairs(random.normal(size=(10, 4)), random.normal(size=(30, 4)), owner)
    part = study.part_of(pairs, np.array([2, 7]))
    np.testing.assert_array_equal(part.images, pairs.images[[2, 7]])
    np.testing.assert_array_equal(part.captions, pairs.captions[[6, 7, 8, 21, 22, 23]])
    np.testing.assert_array_equal(part.image_ids, [0, 0, 0, 1, 1, 1])


def test_a_gain_is_the_mean_difference_of_the_folds(study):
    lines = [
        {"kind": kind, "correction": "", "ranks": [[rank, 1], [rank, rank, 1, 1]]}
        for kind, rank in (("centre", 1), (study.SQUASHED, 2))
        for _ in range(2)
    ]
    # One photo of two is at rank 2, in both directions: R@1 loses a half each.
    assert study.gain(lines, "").value == pytest.approx(100)
