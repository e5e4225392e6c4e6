"""What is said to TensorFlow before it computes anything."""

import logging

import pytest
import tensorflow as tf

from keras_xmr.experiments.training.distribution import limit_threads


@pytest.fixture
def told(monkeypatch):
    """The numbers of threads that TensorFlow is told."""
    found = []
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)
    monkeypatch.setattr(tf.config.threading, "set_intra_op_parallelism_threads", found.append)
    return found


def test_threads_are_those_of_the_config_unless_the_environment_has_others(told, monkeypatch):
    limit_threads(None)
    assert told == []
    limit_threads(3)
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "2")
    limit_threads(1)
    assert told == [3]


def test_threads_that_come_too_late_are_reported(monkeypatch, caplog):
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)
    tf.constant(1.0)
    with caplog.at_level(logging.INFO):
        limit_threads(tf.config.threading.get_intra_op_parallelism_threads() + 1)
    assert "train.operation_threads has no effect" in caplog.text
