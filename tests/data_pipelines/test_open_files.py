"""Many files are read, and few are open."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import datasets
import pytest

from data_pipelines import records
from data_pipelines.options import DataOptions
from data_pipelines.prepare import prepare
from data_pipelines.records import OpenFiles


@pytest.fixture
def paths(tmp_path):
    """Files that hold their own number, three times."""
    found = [tmp_path / f"{number}.bin" for number in range(20)]
    for number, path in enumerate(found):
        path.write_bytes(bytes([number] * 3))
    return found


def open_in(folder: Path) -> int:
    """How many files of a folder this process has open."""
    links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    targets = [os.readlink(link) for link in links if os.path.lexists(link)]
    return sum(target.startswith(str(folder)) for target in targets)


def test_few_files_stay_open(paths, tmp_path):
    files = OpenFiles(limit=3)
    for _ in range(2):
        for number, path in enumerate(paths):
            assert files.read(path, 2, 1) == bytes([number] * 2)
            assert open_in(tmp_path) <= 3
    del files
    assert open_in(tmp_path) == 0


def test_a_file_is_not_closed_while_another_thread_reads_it(paths, monkeypatch):
    files, pread, waiting, go = OpenFiles(limit=1), os.pread, threading.Event(), threading.Event()

    def slow(number: int, length: int, offset: int) -> bytes:
        if length == 3:
            waiting.set()
            go.wait(10)
        return pread(number, length, offset)

    monkeypatch.setattr(os, "pread", slow)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(files.read, paths[0], 3, 0)
        waiting.wait(10)
        for number, path in enumerate(paths[1:], 1):
            assert files.read(path, 1, 0) == bytes([number])
        go.set()
        assert first.result() == bytes(3)


def test_threads_read_what_they_ask_for(paths):
    files = OpenFiles(limit=2)
    with ThreadPoolExecutor(8) as pool:
        numbers = [number % 20 for number in range(400)]
        found = list(pool.map(lambda number: files.read(paths[number], 3, 0), numbers))
    assert found == [bytes([number] * 3) for number in numbers]


def test_the_shards_of_a_split_are_not_all_open(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "OpenFiles", lambda: OpenFiles(limit=2))
    source = datasets.csv_photos(tmp_path / "photos")
    folder = tmp_path / "records"
    split = prepare(DataOptions(source=source, records=folder, images_per_shard=2)).split("train")
    for number in range(len(split)):
        split.read(number)
    assert len(split.shards) == 8
    assert open_in(folder) == 2 + 1  # The index is mapped.
