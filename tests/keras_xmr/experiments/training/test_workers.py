"""Several workers: they train as one process does, and no one loses what was done."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import command_line
import models
import numpy as np
import pytest
import tensorflow as tf
from clusters import cluster, two_workers
from command_line import PYTHONPATH, ROOT
from interruptions import last_weights

from keras_xmr.experiments.config.loader import dump_config
from keras_xmr.experiments.experiment import Experiment
from keras_xmr.experiments.runs.cluster import TF_CONFIG, Cluster, cluster_of
from keras_xmr.experiments.training.distribution import LOST, lost_worker, make_strategy
from keras_xmr.utils.errors import ConfigError, UserError

HOSTS = ["a:1", "b:1", "c:1"]


@contextmanager
def started(config: Path, *arguments: str) -> Iterator[list[subprocess.Popen]]:
    """Two workers on this machine."""
    command = [sys.executable, str(ROOT / "main.py"), *arguments, "--config", str(config)]
    streams: dict = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
    environment.pop("TF_CPP_MIN_LOG_LEVEL", None)  # Of whoever runs the tests; see _quiet.py.
    processes = [
        subprocess.Popen(command, env=environment | {TF_CONFIG: worker}, **streams)
        for worker in two_workers()
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    "killed", [False, pytest.param(True, marks=pytest.mark.heavy)], ids=["whole", "killed"]
)
def test_workers_train_as_one_process_does_even_if_one_is_killed(trained, tmp_path, killed):
    # test_replicas.py has Gaussians.
    records = f"data.records={trained.config.data.records}"
    overrides = (*models.POINTS, records, f"train.phases.0.epochs={1 + killed}")
    one, two = (
        Experiment(models.tiny_config(tmp_path, *overrides, f"name={name}"))
        for name in ("one", "two")
    )
    one.train()
    path = tmp_path / "two.yaml"
    path.write_text(dump_config(two.config), "utf-8")
    if killed:
        train_until_one_is_killed(path, two)

    with started(path, "train") as workers:
        says = [worker.communicate(timeout=240)[1] for worker in workers]
        assert [worker.returncode for worker in workers] == [0, 0], says[0][-3000:]
    assert ("resuming at step" in says[0]) == killed
    assert not [noise for noise in ("retracing", "deprecated", "CUDA error") if noise in says[0]]

    logs = [list(csv.DictReader(run.folder.training_log.open())) for run in (one, two)]
    assert [row.keys() for row in logs[0]] == [row.keys() for row in logs[1]]
    for alone, together in zip(*logs, strict=True):
        for name in ("step", "loss", "gradient_norm", "val_rsum"):
            assert float(together[name]) == pytest.approx(float(alone[name]), rel=1e-3), name
    expected, found = last_weights(one), last_weights(two)
    assert expected.keys() == found.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, atol=1e-3, err_msg=name)


def train_until_one_is_killed(path: Path, run: Experiment) -> None:
    """Kills the second of two workers after step 10, and hears what the chief says of it."""
    checkpoint = run.folder.checkpoints / "checkpoint"
    with started(path, "train") as (chief, other):
        deadline = time.monotonic() + 600
        while not (checkpoint.exists() and "ckpt-10" in checkpoint.read_text()):
            assert chief.poll() is None, chief.communicate()[1][-3000:]
            assert time.monotonic() < deadline, "they never came to step 10"
            time.sleep(0.01)
        other.send_signal(signal.SIGKILL)
        _, says = chief.communicate(timeout=120)
    assert chief.returncode == 1
    assert "error: another worker has ended" in says
    assert "start all of them again" in says.lower()
    assert not run.folder.done.exists()


def test_a_worker_that_has_ended_is_named():
    told = (
        "Connection reset.\nAdditional GRPC error from remote target /job:worker/replica:0/task:1"
    )
    error = tf.errors.UnavailableError(None, None, told)
    assert isinstance(error, LOST)
    says = str(lost_worker(error))
    assert says.startswith("another worker has ended (worker 1); ")
    assert "start all of them again" in says.lower()


def test_the_environment_says_which_worker_this_is():
    assert cluster_of({}) == cluster_of({TF_CONFIG: " "}) == Cluster()
    assert (Cluster().is_chief, Cluster().count) == (True, 1)
    found = [cluster_of({TF_CONFIG: cluster("worker", n, worker=HOSTS)}) for n in range(3)]
    hosts = {"chief": HOSTS[:1], "worker": HOSTS[1:]}
    tasks = (("chief", 0), ("worker", 0), ("worker", 1))
    with_chief = [cluster_of({TF_CONFIG: cluster(*task, **hosts)}) for task in tasks]
    for workers in (found, with_chief):
        assert [(w.number, w.is_chief, w.count) for w in workers] == [
            *((0, True, 3), (1, False, 3), (2, False, 3)),
        ]
        assert workers[2].addresses == tuple(HOSTS)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is not understood: {"),
        ("[]", "is such as"),
        ('{"cluster": {"worker": ["a:1"]}}', "is such as"),
        (cluster("worker", 3, worker=HOSTS), "the task is worker 3.* 3 of worker"),
        (cluster("chief", 0, worker=HOSTS), "the task is chief 0.* 0 of chief"),
        (cluster("worker", 0, worker=HOSTS, ps=["d:1"]), "the cluster has ps"),
        (cluster("chief", 0, chief=HOSTS), "several of chief"),
    ],
)
def test_a_cluster_that_makes_no_sense_is_refused(text, says):
    with pytest.raises(ConfigError, match=says):
        cluster_of({TF_CONFIG: text})


@pytest.mark.slow
def test_what_is_the_work_of_one_process_is_refused(tmp_path):
    environment = {TF_CONFIG: cluster("worker", 1, worker=HOSTS)}
    found = command_line.start("compare", cwd=tmp_path, environment=environment)
    assert found.returncode == 2
    assert "compare runs in one process; start it without TF_CONFIG" in found.stderr


def test_workers_must_share_a_batch_evenly_before_they_wait_for_each_other():
    with pytest.raises(UserError, match="64 pairs cannot be shared evenly by 3 devices; 63 or 66"):
        make_strategy(64, cluster=Cluster(0, tuple(HOSTS)))
    with pytest.raises(UserError, match=r"train.devices: 9 requested, but only"):
        make_strategy(63, 9, Cluster(0, tuple(HOSTS)))
