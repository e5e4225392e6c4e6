"""Threads in which NumPy and SciPy multiply matrices."""

from __future__ import annotations

import scipy.linalg  # noqa: F401, for its threads
from threadpoolctl import threadpool_info, threadpool_limits

from keras_xmr.utils.matrix_threads import matrix_threads


def test_matrices_of_few_rows_are_computed_in_one_thread():
    def threads() -> set[int]:
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    with threadpool_limits(2):
        with matrix_threads(542):
            assert threads() == {1}
        with matrix_threads(29_000):
            assert threads() == {2}
        assert threads() == {2}
