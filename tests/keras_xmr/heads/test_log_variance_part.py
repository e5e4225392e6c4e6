"""The part of a tower that makes its log-variance: frozen, or with a learning rate of its own."""

from __future__ import annotations

import models
import pytest

from keras_xmr.experiments.config.train_section import PhaseOptions
from keras_xmr.experiments.training.phases import freeze, learning_rate_factors, model_parts
from keras_xmr.utils.errors import ConfigError

POINTS = (
    "model.image.head=point",
    "model.text.head=point",
    "model.matcher=cosine",
    "objective=[info_nce]",
    "evaluation.matchers=[]",
)


def of_log_variance(tower) -> set[int]:
    """Every weight of the head that the mean does not depend on, by its path."""
    weights = tower.get_layer("head").weights
    return {id(w) for w in weights if "log_variance" in w.path}


@pytest.fixture(scope="module")
def model():
    return models.pcme()


@pytest.mark.slow
def test_a_learning_rate_reaches_the_log_variance_and_nothing_else(model):
    rates = {
        "image.log_variance": 1e-3,
        "image.head": 1e-4,
        "image.pooling": 1e-5,
        "text.log_variance": 2e-3,
    }
    phase = PhaseOptions(epochs=1, learning_rate=1e-2, learning_rates=rates)
    factors = {id(v): round(factor, 9) for v, factor in learning_rate_factors(model, phase)}
    images = of_log_variance(model.image_tower)
    assert len(images) == 6  # the pooling's, the attention's, and the linear layer's
    for weight in model.image_tower.weights:
        if "encoder" in weight.path:
            expected = None
        elif id(weight) in images:
            expected = 0.1
        else:
            expected = 0.001 if "mean_pooling" in weight.path else 0.01
        assert factors.get(id(weight)) == expected, weight.path
    texts = of_log_variance(model.text_tower)
    for weight in model.text_tower.weights:
        assert factors.get(id(weight)) == (0.2 if id(weight) in texts else None), weight.path


@pytest.mark.slow
def test_a_log_variance_is_frozen_alone(model):
    freeze(model, ("image.log_variance",))
    left = {id(v) for v in model.trainable_variables}
    everything = {id(w) for part in model_parts(model).values() for p in part for w in p.weights}
    assert everything - left == of_log_variance(model.image_tower)
    freeze(model, ())
    assert {id(v) for v in model.trainable_variables} == everything


@pytest.mark.parametrize("key", ["freeze=[text.log_variance]", "learning_rates.text.log_variance"])
def test_a_head_without_variance_is_told(tmp_path, key):
    phase = {
        "freeze=[text.log_variance]": "freeze: [text.log_variance]",
        "learning_rates.text.log_variance": "learning_rates: {text.log_variance: 1.0e-4}",
    }[key]
    overrides = f"train.phases=[{{epochs: 1, learning_rate: 1.0e-3, {phase}}}]"
    models.tiny_config(tmp_path, overrides)
    says = r"train\.phases\.0.*the head of 'text\.log_variance' has no log-variance"
    with pytest.raises(ConfigError, match=says):
        models.tiny_config(tmp_path, *POINTS, overrides)
