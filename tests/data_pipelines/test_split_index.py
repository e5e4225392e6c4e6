"""The index of a split: mapped columns that say what the sidecars say."""

from __future__ import annotations

import json
import os

import datasets
import numpy as np
import pytest
from safetensors.numpy import load_file

from data_pipelines.options import DataOptions
from data_pipelines.prepare import prepare
from data_pipelines.records import Records, read_index
from data_pipelines.split_index import SplitIndex, Strings, index_file, write_index


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    source = datasets.coco(folder / "data")
    options = DataOptions(source=source, records=folder / "records", images_per_shard=3)
    return prepare(options)


def sidecars(records, split):
    paths = sorted(records.folder.glob(f"{split}-*.json"))
    return [json.loads(path.read_bytes()) for path in paths]


def test_it_says_what_the_sidecars_say(records):
    split = records.split("train")
    items = [item for sidecar in sidecars(records, "train") for item in sidecar["items"]]
    assert split.image_keys == [item["key"] for item in items]
    assert split.labels == [tuple(item["labels"]) for item in items]
    captions = [tuple(caption) for item in items for caption in item["captions"]]
    assert [(caption.key, caption.text) for caption in split.captions] == captions
    assert split.texts == [text for _, text in captions]
    for name in ("offset", "length", "crc"):
        assert split.index.columns[name].tolist() == [item[name] for item in items]
    assert [f"{digest:016x}" for digest in split.index.columns["digest"]] == [
        item["digest"] for item in items
    ]


def test_it_is_mapped(records):
    """Only the used part of a large file is in memory."""
    for name, column in records.split("train").index.columns.items():
        while column.base is not None and isinstance(column.base, np.ndarray):
            column = column.base
        assert isinstance(column, np.memmap), name


def test_others_can_read_it(records):
    split = records.split("train")
    found = load_file(records.folder / index_file("train"))
    assert found.keys() == split.index.columns.keys()
    for name, column in found.items():
        np.testing.assert_array_equal(column, split.index.columns[name], err_msg=name)


def test_it_is_the_same_from_sidecars(records):
    mapped = records.split("train").index
    made = read_index(records.folder, records.manifest["splits"]["train"]["shards"])
    for name, column in made.columns.items():
        np.testing.assert_array_equal(column, mapped.columns[name], err_msg=name)


def test_records_without_an_index_open_as_before(records):
    """Those that were written before there was one."""
    files = {n: c for n, c in records.manifest["files"].items() if "index" not in n}
    older = Records(records.folder, records.manifest | {"files": files}).split("train")
    assert older.captions == records.split("train").captions
    assert older.read(2) == records.split("train").read(2)


def test_opening_reads_no_sidecar(records, monkeypatch):
    monkeypatch.setattr("data_pipelines.records.finished_sidecar", None)
    records.split("train")


def test_strings_are_a_sequence():
    texts = ["a", "", "höher", "狗", "e" * 9]
    content = np.frombuffer("".join(texts).encode(), np.uint8)
    first = np.cumsum([0, *(len(text.encode()) for text in texts)])
    strings = Strings(content, first)
    assert strings == texts
    assert strings != texts[:-1]
    assert strings != [*texts[:-1], "f"]
    assert [strings[i] for i in range(-5, 5)] == texts + texts
    assert strings[1:4] == texts[1:4]
    assert strings[::-2] == texts[::-2]
    assert strings[4:2] == []
    with pytest.raises(IndexError):
        strings[5]


def test_nothing_is_left_behind_by_an_interruption(records, tmp_path):
    def interrupted():
        yield sidecars(records, "train")[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_index(tmp_path / "index", interrupted())
    assert os.listdir(tmp_path) == []


def test_a_split_without_images_has_an_index():
    empty = SplitIndex.from_sidecars([{"items": []}])
    assert (len(empty.keys), len(empty.texts), empty.labels.longest) == (0, 0, 0)
    assert empty.labels.padded(np.zeros(0, np.int64), 2).shape == (0, 2)
