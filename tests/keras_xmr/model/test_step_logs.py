"""The logs of a step of several workers."""

from __future__ import annotations

from typing import Any

import keras
import models
import pytest
import tensorflow as tf

from keras_xmr.model.replicas import StepLogs


def fitted(strategy: tf.distribute.Strategy, monkeypatch) -> tuple[dict, list[dict]]:
    """The logs of `fit`, and what its steps have returned."""
    returned = []
    step_logs = StepLogs.step_logs

    def noted(model: StepLogs) -> dict[str, Any]:
        returned.append(step_logs(model))
        return returned[-1]

    with strategy.scope():
        model = models.points()
        model.compile(optimizer=keras.optimizers.SGD(0.05))
    with monkeypatch.context() as patch:
        patch.setattr(StepLogs, "step_logs", noted)
        logs = model.fit(tf.data.Dataset.from_tensors(models.batch(4)), verbose=0).history
    return {name: values[-1] for name, values in logs.items()}, returned


@pytest.mark.slow
def test_workers_reduce_all_logs_of_a_step_at_once(monkeypatch):
    one, _ = fitted(tf.distribute.get_strategy(), monkeypatch)
    # Without a cluster it is the strategy of one worker.
    many, returned = fitted(tf.distribute.MultiWorkerMirroredStrategy(), monkeypatch)
    assert [len(logs) for logs in returned] == [1]
    assert many == pytest.approx(one)
    assert {"loss", "gradient_norm"} <= set(one)
