"""A config without phases of training keeps the model as it begins."""

from __future__ import annotations

import models
import numpy as np
import pytest
from tiny_runs import RECURRENT

from keras_xmr.config.loader import ConfigError
from keras_xmr.pipeline import Run


def test_nothing_is_trained_and_the_model_can_be_evaluated(trained, tmp_path):
    records = f"data.records={trained.config.data.records}"
    run = Run(models.tiny_config(tmp_path, RECURRENT, records, "train.phases=[]"))
    run.train()
    model = Run(run.config).model
    assert int(model.global_step) == 0
    for weight, first in zip(model.weights, run.model.weights, strict=True):
        if "seed" not in weight.path:
            np.testing.assert_array_equal(weight, first)


def test_a_start_of_training_needs_training(tmp_path):
    with pytest.raises(ConfigError, match=r"train\.start: has no effect without phases"):
        models.tiny_config(tmp_path, "train.phases=[]", "train.start=cca")
