"""The study of a name that a model does not know, on a made-up split."""

from __future__ import annotations

import numpy as np
import pytest
from benchmark_modules import benchmark

from keras_xmr.utils.vectors import unit_rows

study = benchmark("flickr8k_name", "studies")
clicks = benchmark("flickr8k_clicks", "studies")


@pytest.fixture
def named(study, clicks, random):
    """Captions say what photos show, but the name is a vector of its own."""
    photos = unit_rows(random.normal(size=(60, 6)) + np.repeat([3, 0], 30)[:, None] * np.eye(6)[0])
    owner = np.repeat(np.arange(60), 3)
    captions = unit_rows(photos[owner] + 0.2 * random.normal(size=(180, 6)))
    says = owner < 30
    says[0] = False
    judged = np.full((180, 60), np.nan, np.float32)
    name = unit_rows(np.eye(6)[1] + 0.2 * random.normal(size=(87, 6)))
    return study.Named.of(clicks.Test(photos, captions, owner, judged), says, name)


def test_photos_are_right_where_three_captions_say_so(named):
    assert named.is_right.sum() == 29
    assert not named.is_right[0]
    assert named.says.sum() == 87
    np.testing.assert_array_equal(named.test.judged[3], named.is_right)
    assert np.isnan(named.test.judged[0]).all()


@pytest.mark.slow
def test_a_name_is_learned_from_clicks(study, named):
    results = list(study.study(named))
    assert len(results) == 1 + len(study.CLICKS) * study.DRAWS
    many = [result["right"] for result in results if result["clicks"] == max(study.CLICKS)]
    assert np.mean(many) > results[0]["right"] + 10
    table = list(study.lines(results))
    assert table[2].startswith(
        f"| 0 | {results[0]['right']:.1f} | {results[0]['others']:.1f} | 0 %"
    )
    assert len(table) == 2 + 1 + len(study.CLICKS)


def test_measures_are_those_of_loops(named):
    right, others = named.measure(lambda queries: queries)
    photos, captions = named.test.half(True)
    shares, recalls = [], []
    for caption in captions:
        scores = named.test.photos[photos] @ named.test.captions[caption]
        if named.says[caption]:
            shares.append(named.is_right[photos[np.argsort(-scores)[:10]]].mean())
        else:
            own = scores[list(photos).index(named.test.owner[caption])]
            recalls.append([np.sum(scores > own) < k for k in (1, 5, 10)])
    assert right == pytest.approx(100 * np.mean(shares))
    assert others == pytest.approx(100 * np.sum(np.mean(recalls, axis=0)))
