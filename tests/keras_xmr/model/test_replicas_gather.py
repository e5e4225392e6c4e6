"""What replicas say to each other in a step."""

from __future__ import annotations

import keras
import models
import numpy as np
import pytest
import tensorflow as tf

from keras_xmr.losses import Diversity, Triplet
from keras_xmr.model import replicas, retriever
from keras_xmr.model.objective import Objective


class Second:
    """The context of the second of two replicas, the first of which has the same items."""

    replica_id_in_sync_group = 1

    def __init__(self) -> None:
        self.gathered: list[tf.Tensor] = []
        self.reduced: list[int] = []

    def all_gather(self, value, axis):
        assert axis == 0
        self.gathered.append(value)
        # The first column is whose items they are.
        first = tf.concat([tf.zeros_like(value[:, :1]), value[:, 1:]], axis=1)
        return tf.concat([first, value], axis=0)

    def all_reduce(self, operation, values):
        assert operation == tf.distribute.ReduceOp.SUM
        self.reduced.append(len(tf.nest.flatten(values)))
        return values


@pytest.fixture
def second(monkeypatch):
    context = Second()
    monkeypatch.setattr(tf.distribute, "get_replica_context", lambda: context)
    monkeypatch.setattr(replicas, "num_replicas", lambda: 2)
    monkeypatch.setattr(retriever, "num_replicas", lambda: 2)
    return context


@pytest.mark.slow
def test_a_step_gathers_once_and_adds_up_once(second):
    model, (x, y) = models.pcme(), models.batch(4)
    with tf.GradientTape() as tape:
        loss, log = model._objective(model(x, training=True), x, y, training=True)
    gradients = tape.gradient(loss, model.trainable_variables)
    # Whose the items are, means and log-variances of both sides, and four pieces of which image.
    assert [tensor.shape[1] for tensor in second.gathered] == [1 + 4 * 6 + 4]
    model._add_up(loss, log, gradients)
    # The gradient by what was gathered, and then all gradients and all numbers of the log.
    assert second.reduced == [1, len(gradients) + 1]


def test_what_nothing_reads_is_not_gathered():
    names = ("points", "residuals", "features")
    image = {name: tf.zeros((3, 2, 6)) for name in names}
    assert set(Objective([Triplet()], [1.0]).select_gathered(image)) == {"points"}
    objective = Objective([Triplet(), Diversity()], [1.0, 1.0])
    assert set(objective.select_gathered(image)) == {"points", "residuals"}


def test_what_is_gathered_comes_back_as_it_was(second):
    tree = {
        "tokens": tf.reshape(tf.range(24.0), (2, 3, 4)),
        "ratio": tf.constant([0.25, 0.5]),
        "labels": tf.constant([[-7], [2**40 + 1]], tf.int64),
        "numbers": tf.constant([[2**31 - 1, 0], [-1, 5]], tf.int32),
        "mask": tf.constant([True, False]),
    }
    found, part = replicas.gather(tree)
    assert (int(part.first), int(part.size)) == (2, 2)
    for name, tensor in tree.items():
        assert found[name].dtype == tensor.dtype
        np.testing.assert_array_equal(found[name], tf.concat([tensor, tensor], axis=0))
        np.testing.assert_array_equal(part.take(found[name]), tensor)


@pytest.mark.slow
def test_gradient_caching_goes_with_several_replicas(second):
    model, (x, y) = models.points(), models.batch(4)
    model.compile(keras.optimizers.SGD(0.1))
    y = {name: values + 9 for name, values in y.items()}
    _, _, plain = model._gradients(x, y)
    model.gradient_caching = 3
    _, _, cached = model._gradients(x, y)
    for found, expected in zip(cached, plain, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
