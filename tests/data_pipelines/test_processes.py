"""Shards are written by several processes, or on a cluster, as one process writes them."""

from __future__ import annotations

import json
import os
import pickle
import sys
import time
from dataclasses import replace

import datasets
import pytest

from data_pipelines import workers
from data_pipelines.errors import UserError
from data_pipelines.options import DataOptions, PrepareOptions
from data_pipelines.plugins import remove_plugins
from data_pipelines.prepare import prepare
from data_pipelines.shard_plan import ShardTask
from data_pipelines.shard_worker import write_with_setup
from data_pipelines.shards import RecordsError, StoppedError
from data_pipelines.sources import Problems, SourceError
from data_pipelines.workers import Processes, RayCluster, shared_setup

ANSWERS = """
import os, sys, time
from multiprocessing.connection import Connection
parent = Connection(int(sys.argv[1]))
while True:
    _, task = parent.recv()
    {work}
    parent.send([])
"""


@pytest.fixture
def options(tmp_path):
    """Photos of which one is broken."""
    source = datasets.csv_photos(tmp_path / "photos")
    (tmp_path / "photos" / "images" / "photo_003.jpg").write_bytes(b"no image")

    def make(name="records", **more):
        settings = {"images_per_shard": 5, "max_skipped": 0.2} | more
        return DataOptions(source=source, records=tmp_path / name, **settings)

    return make


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def task_of(options, limit=1):
    entries = [e for e in options.source.entries(Problems()) if e.split == "train"][:5]
    return ShardTask(options.records / "train-00000.tfrecord", entries, "fingerprint", limit)


@pytest.mark.slow
def test_several_processes_write_the_same_files(options):
    alone = prepare(options())
    together = prepare(options("others", prepare=PrepareOptions(workers=2)))
    assert files(together.folder) == files(alone.folder)
    assert together.manifest["problems"]["counts"] == {"unreadable image": 1}


def test_a_worker_answers_what_this_process_would_find(options):
    made = options()
    made.records.mkdir()
    counts = []
    setup, task = pickle.loads(pickle.dumps((shared_setup(made), task_of(made))))  # noqa: S301
    ((reason, what),) = write_with_setup(setup, task, counts.append)
    assert reason == "unreadable image"
    assert "photo_003.jpg" in what
    assert sum(counts) == 5
    # Once more it is finished, and of another fingerprint it is refused.
    assert write_with_setup(setup, task, counts.append) == [(reason, what)]
    other = replace(task, fingerprint="another")
    error = pickle.loads(pickle.dumps(write_with_setup(setup, other, counts.append)))  # noqa: S301
    assert isinstance(error, RecordsError)
    assert "other images or captions" in str(error)


def test_too_many_broken_images_leave_no_shard(options):
    made = options()
    made.records.mkdir()
    skipped = write_with_setup(shared_setup(made), task_of(made, limit=0), lambda count: None)
    assert len(skipped) == 1
    assert os.listdir(made.records) == []
    with pytest.raises(SourceError, match=r"1 of 24 images .*0 may be left(?s:.*)photo_003"):
        prepare(options(max_skipped=0))


def test_plugins_come_along(options, tmp_path, monkeypatch):
    (tmp_path / "plugin_of_a_worker.py").write_text("class Nothing: ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    made = options()
    made.records.mkdir()
    folder, _, section = shared_setup(made)
    setup = folder, ("plugin_of_a_worker",), section
    try:
        assert len(write_with_setup(setup, task_of(made), lambda count: None)) == 1
        assert shared_setup(made) == setup
    finally:
        remove_plugins(["plugin_of_a_worker"])


PLUGIN = """
from typing import Literal
from data_pipelines.sources import Caption, Entry, Source, UnreadableError

class Nowhere(Source):
    name: Literal["nowhere"] = "nowhere"

    def entries(self, problems):
        yield Entry("a", "train", (Caption("a#0", "a dog"),))

    def read(self, entry):
        raise UnreadableError(f"{entry.key} is nowhere")
"""


@pytest.mark.slow
def test_a_worker_knows_the_sources_of_plugins(options, tmp_path, monkeypatch):
    (tmp_path / "plugin_of_a_source.py").write_text(PLUGIN)
    made = options()
    made.records.mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    pool = Processes(made, 1)
    section = made.model_dump(mode="json") | {"source": {"name": "nowhere"}}
    pool._setup = pool._setup[0], ("plugin_of_a_source",), json.dumps(section)
    skipped = pool.write(task_of(made, limit=5), lambda count: None)
    pool.close()
    assert skipped[0] == ("unreadable image", "photo_000.jpg is nowhere")


class TestProcesses:
    """Failing processes; none of these imports TensorFlow."""

    @pytest.fixture
    def started(self, options, monkeypatch):
        def start(work):
            made = options()
            made.records.mkdir()
            script = ANSWERS.format(work=work)
            monkeypatch.setattr(workers, "_COMMAND", (sys.executable, "-c", script))
            return Processes(made, 2), task_of(made)

        return start

    def test_one_process_writes_many_shards(self, started):
        pool, task = started("parent.send(3)")
        counts = []
        for _ in range(3):
            assert pool.write(task, counts.append) == []
        assert sum(counts) == 9
        assert len(pool._all) == 1
        pool.close()
        assert pool._all[0][0].poll() is not None

    def test_one_that_dies_is_told_of(self, started):
        pool, task = started("os.kill(os.getpid(), 9)")
        with pytest.raises(RecordsError, match=r"ended \(killed, perhaps because memory"):
            pool.write(task, lambda count: None)
        pool.close()

    def test_one_that_dies_at_its_start_is_told_of(self, started, monkeypatch):
        pool, task = started("")
        monkeypatch.setattr(workers, "_COMMAND", (sys.executable, "-c", "raise SystemExit(3)"))
        pool._setup = "x" * 10**6  # More than a pipe holds: it is written until the end is known.
        with pytest.raises(RecordsError, match=r"ended \(exit code 3\)"):
            pool.write(task, lambda count: None)
        pool.close()

    def test_half_an_answer_is_none(self, started):
        pool, task = started("os.write(parent.fileno(), bytes([0, 0, 0, 9, 1])); os._exit(3)")
        with pytest.raises(RecordsError, match="exit code 3"):
            pool.write(task, lambda count: None)
        pool.close()

    def test_one_that_is_no_longer_wanted_ends(self, started):
        pool, task = started("parent.send(1); time.sleep(60)")

        def stopped(count):
            raise StoppedError

        with pytest.raises(StoppedError):
            pool.write(task, stopped)
        begin = time.monotonic()
        pool.close()
        assert time.monotonic() - begin < 10
        with pytest.raises(RecordsError, match="stopped"):
            pool.write(task, stopped)

    def test_what_it_left_aside_is_removed(self, started):
        pool, task = started("task.path.with_name(f'.x.{os.getpid()}.1').touch(); os._exit(3)")
        with pytest.raises(RecordsError, match="exit code 3"):
            pool.write(task, lambda count: None)
        assert len(os.listdir(task.path.parent)) == 1
        pool.close()
        assert os.listdir(task.path.parent) == []


@pytest.mark.heavy
def test_a_ray_cluster_writes_the_same_files(options, monkeypatch):
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'keras-xmr[ray]'")
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    alone = prepare(options())
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        cluster.add_node(num_cpus=1)
        ray.init(address=cluster.address, log_to_driver=False)
        together = prepare(options("others", prepare=PrepareOptions(cluster="auto")))
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert files(together.folder) == files(alone.folder)


def test_without_ray_its_extra_is_named(options, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"needs Ray; install it: pip install 'keras-xmr\[ray\]'"):
        RayCluster(options(prepare=PrepareOptions(cluster="auto")))
