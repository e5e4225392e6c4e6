"""The study of the orders of an audit where the truth is known."""

from __future__ import annotations

import pytest
from benchmark_modules import benchmark

bench = benchmark("audit_orders", "studies")


@pytest.mark.slow
def test_orders_are_measured_by_the_truth(bench, trained, capsys):
    bench.main([f"--run={trained.folder.path}"])
    rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()[-5:]]
    assert [row[0] for row in rows] == [
        *("audit", "lead alone", "score alone", "score, standardised", "random")
    ]
    assert all(0 <= float(cell) <= 100 for row in rows for cell in row[1:])
