"""The benchmark of orders that look at no query."""

from __future__ import annotations

import numpy as np
import scipy.sparse
from benchmark_modules import benchmark

bench = benchmark("plain_orders")


def test_what_orders_reach(bench):
    # A caption that is true of all images, two of one image each, and one that is long and false.
    truth = scipy.sparse.csr_array(np.array([[1, 1, 0, 0], [1, 0, 0, 0], [1, 0, 1, 0]]))
    found = bench.reached(
        ["a thing", "one red thing", "one blue thing", "no thing is like it"], truth
    )
    shortest, vaguest = found["the shortest first"], found["the vaguest first"]
    assert shortest["i2t_recall_1"] == vaguest["i2t_recall_1"] == 1
    assert vaguest["t2i_recall_1"] < 1
    assert vaguest["t2i_r_precision"] > 0.3


def test_a_row_of_the_tiny_scenes(bench, trained, capsys):
    bench.main([str(trained.config.data.records)])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[0] for line in lines[-2:]] == [
        "| the shortest first",
        "| the vaguest first",
    ]
    assert all(0 <= float(cell) <= 600 for cell in lines[-1].strip("| ").split(" | ")[1:])
