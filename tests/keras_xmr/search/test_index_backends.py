"""What every backend must do, whatever it is made of."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

from keras_xmr.search.backends import (
    BACKENDS,
    BackendError,
    Exact,
    backend_class,
    base,
)
from keras_xmr.utils.errors import UserError

WIDTH = 12
LIBRARIES = {
    "exact": (),
    "faiss_hnsw": ("faiss",),
    "faiss_ivf_pq": ("faiss",),
    "milvus": ("pymilvus", "milvus_lite"),
}


@pytest.fixture(params=BACKENDS)
def kind(request):
    for library in LIBRARIES[request.param]:
        pytest.importorskip(library, reason=f"the extra for {request.param} is not installed")
    return backend_class(request.param)


def vectors(count, rows=1, seed=0):
    found = np.random.default_rng(seed).normal(size=(count, rows, WIDTH))
    return (found / np.linalg.norm(found, axis=-1, keepdims=True)).astype(np.float32)


def filled(kind, folder, count=400, rows=1, **options):
    """A backend with items of the ids 10, 13, 16 and so on, which are not added in order."""
    backend = kind(folder / "vectors", (rows, WIDTH), **options)
    ids = 10 + 3 * np.random.default_rng(1).permutation(count)
    backend.add(ids, vectors(count, rows))
    return backend, ids


@pytest.mark.parametrize("values", [2, 1000])
@pytest.mark.parametrize("k", [1, 7, 60])
def test_the_best_of_blocks_are_those_of_all_with_ties_by_id(values, k):
    random = np.random.default_rng(values + k)
    ids = random.permutation(9000)
    scores = random.integers(0, values, 9000).astype(np.float32)
    kept = random.random(9000) < 0.7
    for only in (None, kept):
        found = base.Best(k)
        for begin in range(0, 9000, 500):
            block = slice(begin, begin + 500)
            found.add(ids[block], scores[block], None if only is None else only[block])
        some = np.arange(9000) if only is None else np.flatnonzero(only)
        order = some[np.lexsort((ids[some], -scores[some]))][:k]
        nearest = base.collect([found], k + 3)
        assert nearest.ids[0].tolist() == [*ids[order], -1, -1, -1]
        assert nearest.scores[0, :k].tolist() == scores[order].tolist()


def test_ties_of_the_graph_are_in_the_order_of_ids(tmp_path):
    """Also without a filter, where the results of faiss are taken as they are."""
    pytest.importorskip("faiss")
    backend = backend_class("faiss_hnsw")(tmp_path, (1, WIDTH))
    items = np.repeat(vectors(20), 5, axis=0)
    ids = np.random.default_rng(3).permutation(100)
    backend.add(ids, items)
    query = items[:1]
    every = backend.search(query, 5)
    same = np.isclose(every.scores[0], every.scores[0, 0])
    assert same.all()
    assert every.ids[0].tolist() == sorted(every.ids[0])
    assert backend._plain, "no filter, no selector"
    assert backend.search(query, 5, np.arange(100)).ids.tolist() == every.ids.tolist()
    backend.remove(every.ids[0, :2])
    assert set(every.ids[0, :2]).isdisjoint(backend.search(query, 5).ids[0])


def brute_force(ids, items, queries, k):
    scores = np.einsum("qad,nbd->qnab", queries, items).max(axis=(2, 3))
    return ids[np.argsort(-scores, axis=1)[:, :k]]


def recall(found, expected):
    return np.mean([np.isin(e, f).mean() for f, e in zip(found, expected, strict=True)])


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 3])
def test_it_finds_what_brute_force_finds(kind, rows, tmp_path):
    backend, ids = filled(kind, tmp_path, rows=rows)
    queries = vectors(20, rows=2, seed=5)
    found = backend.search(queries, 10)
    expected = brute_force(ids, vectors(400, rows), queries, 10)
    assert found.ids.shape == (20, 10)
    assert np.all(np.diff(found.scores, axis=1) <= 0)
    assert all(len(set(row)) == 10 for row in found.ids)
    if kind is Exact:
        np.testing.assert_array_equal(found.ids, expected)
    assert recall(found.ids, expected) >= {"faiss_ivf_pq": 0.3}.get(kind.NAME, 0.95)


@pytest.mark.slow
def test_one_item_is_an_index(kind, tmp_path):
    backend, ids = filled(kind, tmp_path, 1)
    backend.save()
    found = kind.open(tmp_path / "vectors").search(vectors(1, seed=5), 3)
    assert found.ids.tolist() == [[*ids, -1, -1]]


@pytest.mark.slow
def test_removed_items_are_gone_for_good(kind, tmp_path):
    backend, ids = filled(kind, tmp_path)
    queries = vectors(5, seed=5)
    first = backend.search(queries, 1).ids[:, 0]
    backend.remove(np.array([*first, 999_999]))
    assert not np.isin(first, backend.search(queries, 50).ids).any()
    backend.save()
    again = kind.open(tmp_path / "vectors")
    assert len(again) == 400 - len(set(first))
    assert not np.isin(first, again.search(queries, 400).ids).any()
    backend.remove(ids[: len(ids) * 3 // 4])
    backend.save()  # By now more are removed than are there.
    again = kind.open(tmp_path / "vectors")
    assert set(again.ids) == set(backend.ids) == set(ids[len(ids) * 3 // 4 :]) - set(first)
    assert set(again.search(queries, 400).ids.ravel()) <= {-1, *again.ids}


@pytest.mark.slow
def test_only_what_is_allowed_is_found(kind, tmp_path):
    backend, ids = filled(kind, tmp_path)
    allowed = np.sort(ids)[::40]
    found = backend.search(vectors(4, seed=5), 20, allowed=allowed)
    assert (found.ids >= 0).sum() >= 4 * 10 * (0.5 if kind.NAME == "faiss_ivf_pq" else 1)
    assert set(found.ids.ravel()) <= {-1, *allowed}
    assert (found.ids[:, 10:] == -1).all()
    assert np.isneginf(found.scores[:, 10:]).all()
    nothing = backend.search(vectors(4, seed=5), 3, allowed=np.empty(0, np.int64))
    assert (nothing.ids == -1).all()


@pytest.mark.slow
def test_what_was_not_saved_is_not_there(kind, tmp_path):
    backend, _ = filled(kind, tmp_path)
    backend.save()
    backend.add(np.array([1, 2]), vectors(2, seed=3))
    backend.remove(np.array([10]))
    assert set(backend.ids) >= {1, 2}
    assert set(kind.open(tmp_path / "vectors").ids) == set(range(10, 1210, 3))


@pytest.mark.slow
def test_two_readers_and_a_writer(kind, tmp_path):
    backend, _ = filled(kind, tmp_path)
    backend.save()
    readers = [kind.open(tmp_path / "vectors") for _ in range(2)]
    before = [reader.search(vectors(3, seed=5), 5).ids for reader in readers]
    for number in range(20):  # More than the exact one keeps apart.
        backend.add(np.array([5000 + number]), vectors(1, seed=number))
        backend.save()
    for reader, ids in zip(readers, before, strict=True):
        np.testing.assert_array_equal(reader.search(vectors(3, seed=5), 5).ids, ids)
    assert len(kind.open(tmp_path / "vectors")) == 420


@pytest.mark.slow
def test_damage_is_named(kind, tmp_path):
    backend, _ = filled(kind, tmp_path)
    backend.save()
    folder = tmp_path / "vectors"
    if kind.NAME == "milvus":  # Its files are its own; what counts is whether all rows are there.
        backend._client.delete(backend._name, filter="id in [10]")
        with pytest.raises(BackendError, match=r"has 399 items, not 400: it is damaged"):
            kind.open(folder)
    else:
        largest = max(folder.iterdir(), key=lambda path: path.stat().st_size)
        content = bytearray(largest.read_bytes())
        content[-3] ^= 0xFF
        largest.write_bytes(content)
        with pytest.raises(BackendError, match=f"{largest.name} is .*damaged"):
            kind.open(folder)
    backend.close()
    (folder / "manifest.json").write_text((folder / "manifest.json").read_text()[:-9])
    with pytest.raises(UserError, match=r"manifest.json is damaged"):
        kind.open(folder)
    shutil.rmtree(folder)
    with pytest.raises(UserError, match=r"holds no index"):
        kind.open(folder)


def test_what_cannot_be_added_is_refused(kind, tmp_path):
    backend, _ = filled(kind, tmp_path)
    for ids, items, message in (
        ([10, 1], vectors(2), "duplicate id"),
        ([1, 1], vectors(2), "duplicate id"),
        ([1, 2], vectors(2)[..., :3], "shape"),
        ([1, 2], np.full_like(vectors(2), np.inf), "not finite"),
        ([1, 2], 1e300 * vectors(2).astype(float), "not finite in float32"),
    ):
        with pytest.raises(BackendError, match=message):
            backend.add(np.array(ids), items)
    assert len(backend) == 400


PARAMETERS = {
    "faiss_hnsw": ("breadth", {"neighbours": 4, "construction": 8}, 400),
    "faiss_ivf_pq": ("probed", {"cells": 20, "pieces": 12}, 20),
    "milvus": ("breadth", {"neighbours": 4, "construction": 8}, 400),
}


@pytest.mark.slow
def test_search_parameters_are_honoured(kind, tmp_path):
    if kind is Exact:
        return  # It has none.
    queries = vectors(30, seed=5)
    expected = filled(Exact, tmp_path / "e", 1000)[0].search(queries, 10).ids
    option, narrow, wide = PARAMETERS[kind.NAME]
    backend, _ = filled(kind, tmp_path / "v", 1000, **narrow, **{option: 1})
    backend.save()
    again = kind.open(tmp_path / "v" / "vectors")
    assert again.options[option] == 1
    found = recall(again.search(queries, 10).ids, expected)
    again.options[option] = wide
    assert recall(again.search(queries, 10).ids, expected) > found + 0.03


@pytest.mark.parametrize("asked", [9, 1])
def test_blocks_change_nothing(asked, tmp_path, monkeypatch):
    backend, ids = filled(Exact, tmp_path, rows=2)
    backend.remove(ids[:7])
    queries, allowed = vectors(asked, rows=2, seed=5), np.sort(ids)[::3]
    whole = [backend.search(queries, k, some) for k in (1, 30) for some in (None, allowed)]
    monkeypatch.setattr(base, "_BLOCK", 24 * 50)
    parts = [backend.search(queries, k, some) for k in (1, 30) for some in (None, allowed)]
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(one.ids, other.ids)
        np.testing.assert_allclose(one.scores, other.scores, rtol=1e-5)


def test_blocks_that_are_added_are_in_memory_once(tmp_path, monkeypatch):
    monkeypatch.setattr(base, "_BLOCK", 1 << 14)
    backend, blocks = Exact(tmp_path / "vectors", (1, 64)), []
    random = np.random.default_rng(0)
    for size in (3000, 1, 3000, 2, 3000, 3000):
        blocks.append(random.standard_normal((size, 1, 64), np.float32))
    items = np.concatenate(blocks)
    tracemalloc.start()
    for number, block in enumerate(blocks):
        begin = sum(map(len, blocks[:number]))
        backend.add(np.arange(begin, begin + len(block)), block)
    backend.save()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.5 * items.nbytes
    again = Exact.open(tmp_path / "vectors", writing=True)
    again.add(np.array([20_000]), 9 * items[:1])
    again.remove(np.array([0, 3000, 11_000]))
    again.save()
    kept = np.setdiff1d(np.arange(len(items)), [0, 3000, 11_000])
    stored = np.concatenate([items[kept], 9 * items[:1]])[:, 0]
    right = np.append(kept, 20_000)[np.argmax(stored @ items[:50, 0].T, axis=0)]
    for opened in (again, Exact.open(tmp_path / "vectors")):
        np.testing.assert_array_equal(opened.search(items[:50], 1).ids[:, 0], right)
        assert len(opened) == len(items) - 2


_WRITER = """
COMMAND_LINE_OF_KERAS_XMR = True  # Which imports no TensorFlow.
import sys
from pathlib import Path
import numpy as np
from keras_xmr.search.backends import backend_class
kind, folder = backend_class(sys.argv[1]), Path(sys.argv[2])
backend = kind.open(folder, writing=True)
print("ready", flush=True)
number = 10_000
while True:
    backend.add(np.arange(number, number + 50), np.ones((50, 1, 12), np.float32))
    backend.save()
    number += 50
"""


@pytest.mark.slow
def test_a_killed_writer_leaves_a_whole_index(kind, tmp_path):
    backend, ids = filled(kind, tmp_path)
    backend.save()
    backend.close()
    arguments = [sys.executable, "-c", _WRITER, kind.NAME, str(tmp_path / "vectors")]
    writer = subprocess.Popen(arguments, stdout=subprocess.PIPE, env=os.environ)
    assert writer.stdout.readline() == b"ready\n"
    for _ in range(10):
        if kind.NAME == "milvus":
            with pytest.raises(BackendError, match=r"one process at a time .* server"):
                kind.open(tmp_path / "vectors")
            continue
        opened = kind.open(tmp_path / "vectors")
        assert len(opened) % 50 == 0
        assert set(ids) <= set(opened.ids)
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    writer.stdout.close()
    opened = kind.open(tmp_path / "vectors", writing=True)
    assert len(opened) % 50 == 0
    assert not list((tmp_path / "vectors").glob(".*"))


def test_an_unknown_backend_is_named():
    with pytest.raises(BackendError, match="unknown backend 'annoy'; use one of exact"):
        backend_class("annoy")
