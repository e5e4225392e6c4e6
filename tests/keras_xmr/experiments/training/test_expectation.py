"""The estimate of a training before it begins."""

from __future__ import annotations

import pytest

from keras_xmr.experiments.training import expectation as module
from keras_xmr.experiments.training.expectation import Expected, expectation


@pytest.fixture
def product(monkeypatch):
    """Lets a product of the features take a second."""
    monkeypatch.setattr(module, "_product_seconds", lambda captions, width: 1.0)


@pytest.mark.usefixtures("product")
def test_it_names_features_that_are_missing_and_the_longest_training():
    features = [Expected("700 photos", 290.0), Expected("3,500 captions", 30.0)]
    assert expectation(features, 2_695, 1_768, 30) == (
        "about 7 minutes until the first report, of which the features of 700 photos and 3,500 "
        "captions take about 5 minutes; then at most about a minute of training"
    )


@pytest.mark.usefixtures("product")
def test_stored_features_and_closed_forms_alone_are_not_waited_for():
    features = [Expected("0 photos", 0.0)]
    assert expectation(features, 2_695, 1_768, 0) == "about 2 minutes until the first report"


def test_a_product_is_timed_on_some_rows_and_scaled():
    few, many = (module._product_seconds(count, 64) for count in (1_000, 1_000_000))
    assert 0 < few < many
