"""What is said to TensorFlow before it computes anything."""

import ctypes
import logging
import subprocess
import sys

import pytest
import tensorflow as tf

from keras_xmr.training.distribution import limit_threads


@pytest.fixture
def told(monkeypatch):
    """The numbers of threads that TensorFlow is told."""
    found = []
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)
    monkeypatch.setattr(tf.config.threading, "set_intra_op_parallelism_threads", found.append)
    return found


def test_threads_are_those_of_the_config(told):
    limit_threads(None)
    assert told == []
    limit_threads(3)
    assert told == [3]


def test_the_environment_takes_precedence(told, monkeypatch):
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "2")
    limit_threads(1)
    assert told == []


def test_threads_that_come_too_late_are_reported(monkeypatch, caplog):
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)
    tf.constant(1.0)
    with caplog.at_level(logging.INFO):
        limit_threads(tf.config.threading.get_intra_op_parallelism_threads() + 1)
    assert "train.operation_threads has no effect" in caplog.text


KEEP = """
import sys
from unittest.mock import MagicMock
import numpy as np
sys.modules["tensorflow"] = MagicMock()  # It takes seconds to import, and allocates nothing here.
from keras_xmr.training.distribution import keep_freed_memory

def resident():
    with open("/proc/self/statm") as file:
        return 4096 * int(file.read().split()[1])

if sys.argv[1] == "keep":
    keep_freed_memory()
before = resident()
freed = np.ones(25_000_000)
del freed
print((resident() - before) / 200e6)
"""


@pytest.mark.slow
@pytest.mark.skipif(
    not sys.platform.startswith("linux") or not hasattr(ctypes.CDLL(None), "mallopt"),
    reason="the C library has no mallopt",
)
def test_freed_memory_is_kept():
    kept, returned = (
        float(subprocess.check_output([sys.executable, "-c", KEEP, word], text=True))
        for word in ("keep", "return")
    )
    assert returned < 0.1
    assert kept > 0.9
