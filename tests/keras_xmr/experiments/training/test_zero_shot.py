"""A config without phases of training keeps the model as it begins."""

from __future__ import annotations

import json
from types import SimpleNamespace

import models
import numpy as np
import projected_runs
import pytest
import tensorflow as tf

from keras_xmr.experiments.experiment import Experiment
from keras_xmr.experiments.training.callbacks import Validation
from keras_xmr.experiments.training.checkpoints import Progress


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_adapters_that_learn_nothing_better_end_as_they_began(trained, tmp_path):
    records = f"data.records={trained.config.data.records}"
    worse = ("train.phases=[{epochs: 1, learning_rate: 1.0e-30}]", "train.batch_size=40")
    adapter = "model.image.pooling=adapter"
    run = Experiment(models.tiny_config(tmp_path, records, *models.POINTS, adapter, *worse))
    run.train()
    assert json.loads(run.folder.done.read_text())["best_step"] == 0


def test_a_model_is_validated_before_its_first_step():
    kept, steps = [], iter([0.4, 0.4, 0.4])
    checkpoints = SimpleNamespace(progress=Progress(), save_best=lambda: kept.append("best"))

    def evaluate():
        metrics = SimpleNamespace(summary={"rsum": next(steps)})
        return SimpleNamespace(matchers=[SimpleNamespace(metrics=metrics)])

    validation = Validation(evaluate, checkpoints, "rsum", 1, 10, 30, 20, at_start=True)
    validation.begin(SimpleNamespace(global_step=tf.constant(0)))
    assert kept == ["best"]
    assert (checkpoints.progress.best, checkpoints.progress.best_step) == (0.4, 0)


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_what_a_start_computes_is_kept_where_nothing_is_trained(tmp_path):
    folder = projected_runs.prepared(tmp_path)
    heads = ("model.image.head=held_out_rank", "model.text.head=held_out_rank")
    run = projected_runs.run(folder, *heads, "train.start=cca", "train.phases=[]")
    run.train()
    model = Experiment(run.config).model.retriever
    assert int(model.global_step) == 0
    for weight, computed in zip(model.weights, run.retriever.weights, strict=True):
        if "seed" not in weight.path:
            np.testing.assert_array_equal(weight, computed)
    for tower in (model.image_tower, model.text_tower):
        assert (tower.get_layer("head").slope.numpy() != 0).any()
