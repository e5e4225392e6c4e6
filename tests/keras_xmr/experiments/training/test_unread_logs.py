"""Logs of steps: who fetches them, and when they are written."""

from __future__ import annotations

from types import SimpleNamespace

import keras
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from keras_xmr.experiments.training.callbacks import EpochMeans, TensorBoard, UnreadLogs


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


@pytest.mark.parametrize(("epochs", "steps", "written"), [(1, 25, [20]), (3, 15, [15, 20, 40])])
def test_a_training_of_fewer_steps_than_between_two_entries_has_its_loss(
    tmp_path, epochs, steps, written
):
    board = TensorBoard(
        tmp_path, SimpleNamespace(steps=steps, batch_size=4, UNIT="pairs"), 20, None
    )
    board.set_model(
        SimpleNamespace(
            global_step=keras.Variable(0, dtype="int64"),
            last_values=keras.Variable([0.5]),
            watched=["loss"],
            optimizer=keras.optimizers.SGD(0.1),
            matcher=None,
            recalls=[],
        )
    )
    board.on_train_begin()
    for _ in range(epochs):
        for step in range(steps):
            board.on_train_batch_end(step)
        board.on_epoch_end(0)
    board._writer.close()
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    for name in ("train/loss", "train/pairs_per_second"):
        assert [event.step for event in events.Tensors(name)] == written
