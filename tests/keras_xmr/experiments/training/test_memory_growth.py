"""Training for long, and evaluation again and again, in memory that stays as it is."""

from __future__ import annotations

import ctypes
import gc
import resource
from collections.abc import Callable
from contextlib import suppress

import keras
import models
import numpy as np
import pytest
import tensorflow as tf

from keras_xmr.experiments.evaluation.arrays import evaluate

STEPS = 25
MEGABYTE = 2**20


@pytest.fixture(autouse=True)
def little_garbage() -> None:
    """What other tests have left is not looked at, which would take seconds."""
    gc.collect()
    gc.freeze()


def held() -> tuple[int, int]:
    """Bytes of memory, and Python objects, that this process holds."""
    for _ in range(3):  # What is freed may free more.
        gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as file:
        resident = int(file.read().split()[1]) * resource.getpagesize()
    return resident, len(gc.get_objects())


def growth(work: Callable[[], object], warm_up: int, times: int) -> tuple[int, int]:
    """By how much both grow while something is done again and again."""
    for _ in range(warm_up):
        work()
    before = held()
    for _ in range(times):
        work()
    after = held()
    return after[0] - before[0], after[1] - before[1]


def of_training(times: int) -> tuple[int, int]:
    """What comes on top in so many times `STEPS` steps."""
    model = models.points(clip_norm=1.0)
    model.compile(keras.optimizers.Adam(1e-3))
    data = tf.data.Dataset.from_tensors(models.batch(8)).repeat()
    return growth(lambda: model.fit(data, steps_per_epoch=STEPS, verbose=0), 3, times)


def of_evaluation(times: int) -> tuple[int, int]:
    """What comes on top in so many evaluations."""
    model, (x, _) = models.points(), models.batch(20)
    return growth(lambda: evaluate(model, x["image"], x["caption"], batch_size=8), 3, times)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("grown", "times", "megabytes"),
    [
        (of_training, 8, 4),
        (of_evaluation, 8, 4),
        pytest.param(of_training, 2000 // STEPS, 8, marks=pytest.mark.heavy),
        pytest.param(of_evaluation, 200, 8, marks=pytest.mark.heavy),
    ],
)
def test_memory_does_not_grow(grown, times, megabytes):
    size, objects = grown(times)
    assert size < megabytes * MEGABYTE
    assert objects < 300


def test_what_is_kept_is_found():
    kept: list[object] = []
    size, objects = growth(lambda: kept.append([np.ones(MEGABYTE), [[] for _ in range(999)]]), 1, 4)
    assert size > 4 * MEGABYTE
    assert objects > 300
