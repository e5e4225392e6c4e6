"""Backends of the search, which store vectors by id and find the largest inner products."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from keras_xmr.search.backends.base import Backend, BackendError, DamagedError, Exact, Neighbours
from keras_xmr.utils.installing import install_command

BACKENDS = ("exact", "faiss_hnsw", "faiss_ivf_pq", "milvus")
"""The names of all backends; all but the first need the extra `faiss` or `milvus`."""

_CLASSES = {"faiss_hnsw": "HNSW", "faiss_ivf_pq": "IVFPQ", "milvus": "Milvus"}


def backend_class(name: str) -> Any:
    """Returns the class of a backend.

    Raises:
        BackendError: If the name is unknown, or the library is not installed.
    """
    if name == "exact":
        return Exact
    if name not in BACKENDS:
        raise BackendError(f"unknown backend {name!r}; use one of {', '.join(BACKENDS)}")
    extra = name.partition("_")[0]
    try:
        module = import_module(f"{__name__}.{extra}")
    except ImportError:
        raise BackendError(f"the backend {name} needs {extra}: {install_command(extra)}") from None
    return getattr(module, _CLASSES[name])
