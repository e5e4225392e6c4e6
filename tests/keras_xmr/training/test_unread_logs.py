"""Logs that are fetched by who reads them."""

from __future__ import annotations

from types import SimpleNamespace

import keras
import pytest

from keras_xmr.training.callbacks import EpochMeans, UnreadLogs


class Number:
    """A scalar of a step that counts how often it is fetched."""

    def __init__(self, value):
        self.value = value
        self.fetched = 0

    def __float__(self):
        self.fetched += 1
        return self.value


def test_logs_of_a_step_are_fetched_where_they_are_read():
    model = SimpleNamespace(global_step=keras.Variable(0, dtype="int64"))
    means = EpochMeans(None, steps_per_epoch=10)
    listed = UnreadLogs([means], model=model)
    listed.on_train_begin()
    losses = [Number(float(step)) for step in range(3)]
    for step, loss in enumerate(losses):
        listed.on_train_batch_begin(step)
        listed.on_train_batch_end(step, {"loss": loss})
    assert [loss.fetched for loss in losses] == [0, 0, 0]
    assert means.so_far() == {"loss": pytest.approx(2.0)}
    assert [loss.fetched for loss in losses] == [0, 0, 1]
