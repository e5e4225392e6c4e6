"""Backends of the search: they keep vectors by id and find the largest inner products."""

from __future__ import annotations

from typing import Any

from keras_xmr.index.backends.base import Backend, BackendError, Found, Precision
from keras_xmr.index.backends.exact import Exact

__all__ = ["BACKENDS", "Backend", "BackendError", "Exact", "Found", "Precision", "backend_class"]

BACKENDS = ("exact", "faiss_hnsw", "faiss_ivf_pq")
"""The names of all backends; those of faiss need the extra `faiss`."""


def backend_class(name: str) -> Any:
    """The class of a backend.

    Raises:
        BackendError: If there is none of this name, or its library is not installed.
    """
    if name == "exact":
        return Exact
    if name not in BACKENDS:
        raise BackendError(f"{name!r} is no backend; there are {', '.join(BACKENDS)}")
    try:
        from keras_xmr.index.backends import faiss
    except ImportError:
        raise BackendError(
            f"the backend {name} needs faiss: pip install 'keras-xmr[faiss]'"
        ) from None
    return faiss.HNSW if name == "faiss_hnsw" else faiss.IVFPQ
