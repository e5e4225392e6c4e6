"""The number of processors respects the CPU affinity and the limits of containers."""

from __future__ import annotations

import pytest

from keras_xmr.utils import processors
from keras_xmr.utils.processors import processor_count


@pytest.fixture(autouse=True)
def uncached():
    processor_count.cache_clear()
    yield
    processor_count.cache_clear()


@pytest.mark.parametrize(
    ("own", "parent", "limit"),
    [
        ("150000 100000", "max 100000", 1.5),
        ("max 100000", "400000 100000", 4),
        ("800000 100000", "200000 100000", 2),
        ("max 100000", "max 100000", None),
        ("damaged", "", None),
    ],
)
def test_limit_of_a_container_is_the_smallest_of_its_groups(tmp_path, own, parent, limit):
    root = tmp_path / "cgroup"
    (root / "service" / "job").mkdir(parents=True)
    (root / "service" / "job" / "cpu.max").write_text(own)
    (root / "service" / "cpu.max").write_text(parent)
    membership = tmp_path / "membership"
    membership.write_text("3:cpu:/elsewhere\n0::/service/job\n")
    assert processors._quota(membership, root) == limit


def test_group_of_a_container_is_mounted_as_the_root(tmp_path):
    (tmp_path / "cpu.max").write_text("50000 100000")
    membership = tmp_path / "membership"
    membership.write_text("0::/\n")
    assert processors._quota(membership, tmp_path) == 0.5
    assert processors._quota(tmp_path / "missing", tmp_path) is None


@pytest.mark.parametrize(("limit", "count"), [(0.5, 1), (1.5, 2), (64.0, 8), (None, 8)])
def test_fraction_of_a_processor_is_rounded_up(monkeypatch, limit, count):
    monkeypatch.setattr(processors, "_affinity", lambda: 8)
    monkeypatch.setattr(processors, "_quota", lambda *_: limit)
    assert processor_count() == count
