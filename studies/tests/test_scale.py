"""The study of growth: its table, its fits, and a measurement."""

from __future__ import annotations

import pytest

from studies import scale
from studies.scale import Line


def test_a_power_law_is_found():
    factor, exponent = scale.power([10, 100, 1000], [7e-3 * n**1.5 for n in (10, 100, 1000)])
    assert (factor, exponent) == pytest.approx((7e-3, 1.5))
    assert scale.project((factor, exponent), 1e8) == pytest.approx(7e9)


def test_fits_are_of_the_two_largest_sizes():
    lines = [
        Line("exact", size, "query", 1.0, seconds, disk=8.0 * size)
        for size, seconds in ((10, 5.0), (100, 1.0), (1000, 10.0))
    ]
    found = scale.fits([*lines, Line("hnsw", 10, "query", 1.0)])
    assert found.keys() == {("exact", "query", "processor"), ("exact", "query", "disk")}
    assert found["exact", "query", "processor"] == pytest.approx((0.01, 1.0))
    text = scale.report(lines)
    assert "1e+06 s" in text.replace("1,000,000", "1e+06")
    assert "0.8 GB" in text
    steps = [Line("info_nce", n, "step", 1.0, memory=5.0 * n**2) for n in (100, 1000)]
    assert "80 GB at 126,491 items" in scale.report(steps)


def test_the_table_is_read_as_it_was_written(tmp_path):
    lines = [
        Line("evaluation", 10, "ranks", 1.5, memory=3.0, value=500.0),
        Line("exact", 10, "query", 0.25),
    ]
    scale.write(lines, tmp_path / "scale.csv")
    read = scale.read(tmp_path / "scale.csv")
    assert [line.part for line in read] == ["exact", "evaluation"]
    assert list(map(repr, read)) == list(map(repr, lines[::-1]))
    assert scale.read(tmp_path / "nothing.csv") == []


def test_vectors_are_measured():
    lines = scale.PARTS["exact"][0]("exact", 300)
    assert [line.what for line in lines] == [
        *("build", "open", "query", "candidates", "add 1,000", "delete 1,000")
    ]
    assert lines[0].disk > 300 * 4 * scale.WIDTH
    assert lines[2].value == lines[3].value == 1.0
