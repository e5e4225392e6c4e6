"""Shards are written by several processes, or on a cluster, as one process writes them."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import datasets
import pytest
from slow_source import BROKEN, SlowSource

from data_pipelines import prepare as prepare_module
from data_pipelines import workers
from data_pipelines.options import DataOptions, PrepareOptions
from data_pipelines.prepare import prepare
from data_pipelines.shard_plan import plan_shards
from data_pipelines.shards import RecordsError, StoppedError
from data_pipelines.sources import Problems
from data_pipelines.workers import RayCluster, Workers
from keras_xmr.utils.errors import UserError


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


def without_guard(folder, monkeypatch):
    """Lets this process be a script without `if __name__ == "__main__"`; returns what it writes.

    Processes that begin would run it again.
    """
    script, ran = folder / "script.py", folder / "ran"
    script.write_text(f"open({str(ran)!r}, 'w').close()\n")
    main = sys.modules["__main__"]
    monkeypatch.setattr(main, "__file__", str(script), raising=False)
    monkeypatch.setattr(main, "__spec__", None)
    return ran


@pytest.mark.slow
def test_a_process_writes_the_same_files_and_stops_where_it_is_no_longer_needed(
    tmp_path, monkeypatch
):
    source = SlowSource(root=tmp_path / "data")
    source.root.mkdir()

    def planned(name):
        made = DataOptions.model_construct(source=source, records=tmp_path / name)
        made.records.mkdir()
        return made, plan_shards(source.entries(Problems()), made.records, 4, Problems())["train"]

    made, tasks = planned("threads")
    pool = Workers(made, 5, lambda count: None, 1, processes=False)
    assert pool.submit(tasks[0]).result() == BROKEN
    pool.close()
    alone = files(made.records)
    ran = without_guard(tmp_path, monkeypatch)
    made, tasks = planned("processes")
    done: list[int] = []
    pool = Workers(made, 5, done.append, 1, processes=True)
    assert pool.submit(tasks[0]).result() == BROKEN
    assert files(made.records) == alone
    assert done == [4]
    assert not ran.exists(), "a process has run the script that it belongs to"
    (source.root / "slow").touch()
    first, *_, last = map(pool.submit, tasks[1:])
    while not (source.root / "is_read").exists():
        time.sleep(0.1)
    pool.close()
    assert isinstance(first.exception(), StoppedError)
    assert last.cancelled()
    assert files(made.records) == alone


@pytest.mark.parametrize(
    ("workers", "images", "is_process"),
    [(2, 5, True), (1, 5000, False), (None, 5, False), (None, 3000, True)],
)
def test_processes_write_large_data_sets_or_where_they_are_asked_for(
    options, monkeypatch, workers, images, is_process
):
    monkeypatch.setattr("data_pipelines.prepare.processor_count", lambda: 2)
    made = options(prepare=PrepareOptions(workers=workers))
    tasks = [SimpleNamespace(path=made.records / f"{n}.tfrecord", images=images) for n in range(2)]
    pool = prepare_module._workers(tasks, made, 5, print)
    pool.close()
    assert isinstance(pool._pool, ProcessPoolExecutor) == is_process


def test_a_source_is_sent_without_its_mapped_arrays(tmp_path):
    made = DataOptions(source=datasets.regions(tmp_path), records=tmp_path / "records")
    assert len(list(made.source.entries(Problems()))) == 14
    assert b"numpy" not in pickle.dumps(made)


class Broken:
    """Workers of which one has died."""

    broken = Workers.broken

    def submit(self, task):
        future = Future()
        future.set_exception(BrokenExecutor("a process was terminated abruptly"))
        return future

    def close(self):
        pass


def test_a_process_that_dies_is_told(options, monkeypatch):
    monkeypatch.setattr("data_pipelines.prepare._workers", lambda *_: Broken())
    with pytest.raises(RecordsError, match=r"has ended \(a process .*\), perhaps because memory"):
        prepare(options())


HOLDS = """
import multiprocessing, os, time
from concurrent.futures import ProcessPoolExecutor
from data_pipelines.worker_process import start_process

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(1, context, start_process, (os.getcwd(), context.Event()))
    print(pool.submit(os.getpid).result(), flush=True)
    pool.submit(time.sleep, 600).result()
"""


def test_a_process_ends_with_one_that_is_killed(tmp_path):
    (tmp_path / "holds.py").write_text(HOLDS)
    process = subprocess.Popen(
        [sys.executable, tmp_path / "holds.py"],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    with process:
        worker = process.stdout.readline().decode().strip()
        process.kill()
    for _ in range(600):
        if not Path("/proc", worker, "exe").exists():
            return
        time.sleep(0.1)
    pytest.fail("it goes on")


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
        RayCluster(options(prepare=PrepareOptions(cluster="auto")), 5, print)


def test_an_error_of_a_cluster_is_that_of_the_shard(options, monkeypatch):
    made = options()
    prepare(made)
    other = made.model_copy(update={"images_per_shard": 4})
    monkeypatch.chdir(made.records)
    (task,) = [SimpleNamespace(path=made.records / "train-00000.tfrecord", fingerprint="another")]
    error = workers._write_remotely(str(made.records), other, 5, task)
    assert isinstance(error, RecordsError)
    assert "other images or captions" in str(error)
