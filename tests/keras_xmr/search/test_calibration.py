"""The example of a search, by the captions of a run."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from keras_xmr.search.calibration import example_caption


@pytest.mark.parametrize(
    ("captions", "example"), [(["1", "a bb", "a blue dog", "a dog"], "a dog"), (["12", "3"], "3")]
)
def test_the_example_of_a_search_has_a_word_if_a_caption_has(captions, example):
    records = SimpleNamespace(split=lambda _: SimpleNamespace(texts=captions))
    assert example_caption(SimpleNamespace(open_records=lambda: records)) == example
