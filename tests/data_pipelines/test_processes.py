"""Shards are written by several processes, or on a cluster, as one process writes them."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import datasets
import numpy as np
import odd_source
import pytest

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


@pytest.mark.slow
def test_several_processes_write_the_same_files(options):
    alone = prepare(options())
    together = prepare(options("others", prepare=PrepareOptions(workers=2)))
    assert files(together.folder) == files(alone.folder)
    assert together.manifest["problems"]["counts"] == {"unreadable image": 1}


def test_a_source_is_sent_without_its_mapped_arrays(tmp_path):
    made = DataOptions(source=datasets.regions(tmp_path), records=tmp_path / "records")
    features = np.load(tmp_path / "train_ims.npy")
    (entry,) = (e for e in made.source.entries(SimpleNamespace()) if e.key == "train/2")
    assert len(pickle.dumps(made)) < features.nbytes
    sent = copy.deepcopy(made).source
    np.testing.assert_array_equal(sent.read(entry).features, features[2])


@pytest.mark.slow
def test_a_process_that_dies_is_told(tmp_path):
    with pytest.raises(RecordsError, match=r"has ended .* memory was used up"):
        odd_source.prepare_odd(tmp_path, "dies")
    assert not list((tmp_path / "records").glob(".*"))


@pytest.mark.slow
def test_processes_that_are_no_longer_needed_stop(tmp_path):
    options = odd_source.odd_options(tmp_path, "waits")
    plan = plan_shards(options.source.entries(Problems()), tmp_path, 4, Problems())
    pool = Workers(options, 5, lambda count: None, 1, processes=True)
    first, *_, last = map(pool.submit, plan["train"])
    odd_source.wait_for_process(tmp_path)
    pool.close()
    assert isinstance(first.exception(), StoppedError)
    assert last.cancelled()
    assert not list(tmp_path.glob("*.npz"))


@pytest.mark.slow
def test_processes_end_with_one_that_is_killed(tmp_path):
    call = f"import odd_source; odd_source.prepare_odd({str(tmp_path)!r}, 'waits')"
    path = os.pathsep.join([str(Path(odd_source.__file__).parent), *sys.path])
    process = subprocess.Popen([sys.executable, "-c", call], env=os.environ | {"PYTHONPATH": path})
    worker = odd_source.wait_for_process(tmp_path)
    process.kill()
    process.wait()
    deadline = time.monotonic() + 60
    while Path("/proc", worker, "exe").exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)


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
