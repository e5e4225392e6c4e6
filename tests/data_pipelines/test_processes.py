"""Shards are written by several processes, or on a cluster, as one process writes them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace

import datasets
import pytest

from data_pipelines import workers
from data_pipelines.options import DataOptions, PrepareOptions
from data_pipelines.prepare import prepare
from data_pipelines.shard_worker import write_from_json
from data_pipelines.shards import RecordsError, ShardTask, StoppedError
from data_pipelines.sources import Problems, SourceError
from data_pipelines.workers import (
    Processes,
    RayCluster,
    options_to_json,
    skipped_from_json,
    task_to_json,
)
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.plugins import remove_plugins

ANSWERS = """
import json, sys
common = json.loads(sys.stdin.readline())
for line in sys.stdin:
    task = json.loads(line)
    {work}
    print(json.dumps({{"skipped": []}}), flush=True)
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
    answer = json.loads(
        json.dumps(
            write_from_json(options_to_json(made), task_to_json(task_of(made)), counts.append)
        )
    )
    ((reason, what),) = skipped_from_json(answer)
    assert reason == "unreadable image"
    assert "photo_003.jpg" in what
    assert sum(counts) == 5
    # Once more it is finished, and of another fingerprint it is refused.
    assert skipped_from_json(
        write_from_json(options_to_json(made), task_to_json(task_of(made)), counts.append)
    )
    other = task_to_json(replace(task_of(made), fingerprint="another"))
    with pytest.raises(RecordsError, match="other images or captions"):
        skipped_from_json(write_from_json(options_to_json(made), other, counts.append))


def test_too_many_broken_images_leave_no_shard(options):
    made = options()
    made.records.mkdir()
    task = task_to_json(task_of(made, limit=0))
    answer = write_from_json(options_to_json(made), task, lambda count: None)
    assert len(skipped_from_json(answer)) == 1
    assert os.listdir(made.records) == []
    with pytest.raises(SourceError, match=r"1 of 24 images .*0 may be left(?s:.*)photo_003"):
        prepare(options(max_skipped=0))


def test_plugins_come_along(options, tmp_path, monkeypatch):
    (tmp_path / "plugin_of_a_worker.py").write_text("class Nothing: ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    made = options()
    made.records.mkdir()
    shared = json.dumps(json.loads(options_to_json(made)) | {"plugins": ["plugin_of_a_worker"]})
    try:
        skipped_from_json(write_from_json(shared, task_to_json(task_of(made)), lambda count: None))
        assert json.loads(options_to_json(made))["plugins"] == ["plugin_of_a_worker"]
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
def test_a_worker_knows_the_sources_of_plugins(options, tmp_path):
    (tmp_path / "plugin_of_a_source.py").write_text(PLUGIN)
    made = options()
    made.records.mkdir()
    common = json.loads(options_to_json(made)) | {"plugins": ["plugin_of_a_source"]}
    common["options"]["source"] = {"name": "nowhere"}
    worker = subprocess.run(
        workers._COMMAND,
        input=f"{json.dumps(common)}\n{task_to_json(task_of(made, limit=5))}\n",
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
    )
    skipped = json.loads(worker.stdout.splitlines()[-1])["skipped"]
    assert skipped[0] == ["unreadable image", "photo_000.jpg is nowhere"]


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
        pool, task = started("print(json.dumps({'done': 3}), flush=True)")
        counts = []
        for _ in range(3):
            assert pool.write(task, counts.append) == []
        assert sum(counts) == 9
        assert len(pool._all) == 1
        pool.close()
        assert pool._all[0].poll() is not None

    def test_one_that_dies_is_told_of(self, started):
        pool, task = started("import os; os.kill(os.getpid(), 9)")
        with pytest.raises(RecordsError, match=r"ended \(killed, perhaps because memory"):
            pool.write(task, lambda count: None)
        pool.close()

    def test_one_that_dies_at_its_start_is_told_of(self, started, monkeypatch):
        pool, task = started("")
        monkeypatch.setattr(workers, "_COMMAND", (sys.executable, "-c", "raise SystemExit(3)"))
        pool._common = "x" * 10**6  # More than a pipe holds: it is written until the end is known.
        with pytest.raises(RecordsError, match=r"ended \(exit code 3\)"):
            pool.write(task, lambda count: None)
        pool.close()

    def test_half_an_answer_is_none(self, started):
        pool, task = started("print('{', end='', flush=True); import os; os._exit(3)")
        with pytest.raises(RecordsError, match="exit code 3"):
            pool.write(task, lambda count: None)
        pool.close()

    def test_one_that_is_no_longer_wanted_ends(self, started):
        pool, task = started(
            "print(json.dumps({'done': 1}), flush=True); import time; time.sleep(60)"
        )

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
        pool, task = started(
            "import os, pathlib; path = pathlib.Path(task['path']);"
            "path.with_name(f'.x.{os.getpid()}.1').touch(); os._exit(3)"
        )
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
    with pytest.raises(UserError, match=r"needs Ray; install it: pip install .*\[ray\]"):
        RayCluster(options(prepare=PrepareOptions(cluster="auto")))
