"""Threads in which NumPy and SciPy multiply matrices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_FEW = 2_000
"""Number of rows of matrices that one thread multiplies soon enough."""


@contextmanager
def matrix_threads(rows: int) -> Iterator[None]:
    """Lets NumPy and SciPy compute with matrices of few rows in one thread.

    Threads of OpenBLAS wait for each other without giving their processor to others. Where other
    programs use it, or a container has less of it, small matrices take many times the work.

    Args:
        rows: Number of rows of the matrices; many rows are computed in as many threads as before.
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1 if rows <= _FEW else None):
        yield
