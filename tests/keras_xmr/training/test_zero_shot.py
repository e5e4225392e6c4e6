"""A config without phases of training keeps the model as it begins."""

from __future__ import annotations

import models
import numpy as np
import projected_runs
import pytest
from tiny_runs import RECURRENT

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


@pytest.mark.slow
def test_what_a_start_computes_is_kept(tmp_path):
    folder = projected_runs.prepared(tmp_path)
    heads = ("model.image.head=laplace", "model.text.head=laplace")
    run = projected_runs.run(folder, *heads, "train.start=cca", "train.phases=[]")
    run.train()
    model = Run(run.config).model
    for tower, first in (
        (model.image_tower, run.model.image_tower),
        (model.text_tower, run.model.text_tower),
    ):
        head = tower.get_layer("head")
        assert (head.output_variance.numpy() != 1).all()
        for weight, computed in zip(head.weights, first.get_layer("head").weights, strict=True):
            np.testing.assert_array_equal(weight, computed)
