"""A server of Milvus as it is deployed, from the package `milvus`, which needs the package alone.

pip install milvus==2.3.5
pytest -m heavy tests/keras_xmr/search/test_milvus_server.py
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec

import milvus_server
import numpy as np
import pytest

from keras_xmr.search.backends import backend_class

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(find_spec("milvus") is None, reason="the package milvus is not installed"),
]
VECTORS, WIDTH, QUERIES, K = 100_000, 128, 20, 10
SEARCH = """
import json, sys
from pathlib import Path
import numpy as np
from keras_xmr.search.backends import backend_class
backend = backend_class("milvus").open(Path(sys.argv[1]))
queries = np.load(sys.argv[2])
print(json.dumps([backend.search(queries, int(sys.argv[3])).ids.tolist() for _ in range(20)]))
backend.close()
"""


@pytest.fixture
def server(tmp_path):
    server = milvus_server.Server(tmp_path / "milvus")
    server.start()
    yield server
    server.kill()


def test_a_server_indexes_survives_a_kill_and_has_two_searchers(server, tmp_path):
    random = np.random.default_rng(0)
    # Of few directions, as embeddings are: a graph finds few neighbours of independent numbers.
    vectors = random.normal(size=(VECTORS, 1, 16)) @ random.normal(size=(16, WIDTH))
    vectors = vectors.astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=2, keepdims=True)
    queries = vectors[:QUERIES] + random.normal(scale=0.01, size=(QUERIES, 1, WIDTH))
    queries = queries.astype(np.float32)
    best = np.argsort(-(queries[:, 0] @ vectors[:, 0].T), axis=1)[:, :K]
    folder, asked = tmp_path / "index", tmp_path / "queries.npy"
    np.save(asked, queries)

    backend = backend_class("milvus")(folder, (1, WIDTH), uri=server.uri)
    backend.add(np.arange(VECTORS), vectors)
    backend.save()
    found = backend.search(queries, K).ids
    assert (found[:, 0] == best[:, 0]).all()
    assert np.mean([np.isin(f, b).mean() for f, b in zip(found, best, strict=True)]) > 0.8
    backend.close()

    server.kill()
    server.start()
    command = [sys.executable, "-c", SEARCH, str(folder), str(asked), str(K)]
    searchers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for searcher in searchers:
        answers = json.loads(searcher.communicate()[0])
        assert not searcher.returncode
        assert all((np.array(answer)[:, 0] == best[:, 0]).all() for answer in answers)
