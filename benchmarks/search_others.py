"""Searches of faiss and hnswlib, called directly: the process that `search.py` asks.

Reads the vectors and the queries of a folder, and the names of works: the library, and how many
candidates a search in the graph keeps. Both graphs have as many links as ours, and are built with
as many candidates.

    TORCH_PYTHON benchmarks/search_others.py FOLDER NEIGHBOURS CONSTRUCTION
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any

import faiss
import hnswlib
import numpy as np
from measuring import answer

K = 10
BREADTHS = (16, 32, 64, 128, 256, 512)


def main(folder: Path, neighbours: int, construction: int) -> None:
    """Answers."""
    vectors, queries = (np.load(folder / f"{name}.npy")[:, 0] for name in ("vectors", "queries"))
    size = vectors.shape[1]

    @cache
    def flat() -> Any:
        index = faiss.IndexFlatIP(size)
        index.add(vectors)
        return index

    @cache
    def graph_of_faiss() -> Any:
        index = faiss.IndexHNSWFlat(size, neighbours, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = construction
        index.add(vectors)
        return index

    @cache
    def graph_of_hnswlib() -> Any:
        index = hnswlib.Index(space="ip", dim=size)
        index.init_index(len(vectors), M=neighbours, ef_construction=construction)
        index.add_items(vectors)
        return index

    def by_faiss(index: Callable[[], Any], breadth: int = 0) -> list[list[int]]:
        if breadth:
            index().hnsw.efSearch = breadth
        return [index().search(query[None], K)[1][0].tolist() for query in queries]

    def by_hnswlib(breadth: int) -> list[list[int]]:
        graph_of_hnswlib().set_ef(breadth)
        return [graph_of_hnswlib().knn_query(query, K)[0][0].tolist() for query in queries]

    works: dict[str, Callable[[], Any]] = {"faiss": partial(by_faiss, flat)}
    for breadth in BREADTHS:
        works[f"faiss {breadth}"] = partial(by_faiss, graph_of_faiss, breadth)
        works[f"hnswlib {breadth}"] = partial(by_hnswlib, breadth)
    versions = {"faiss": faiss.__version__, "hnswlib": metadata.version("hnswlib")}
    answer(lambda: works, **versions)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
