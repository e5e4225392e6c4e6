"""Memory that is free again is returned to the system."""

from __future__ import annotations

import resource

import numpy as np

from keras_xmr.utils import memory


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def test_freed_memory_goes_back_to_the_system():
    blocks = [np.ones(60_000, np.uint8) for _ in range(1000)]
    kept = blocks[::100]  # Memory behind them cannot simply be cut off.
    del blocks
    before = resident()
    memory.release_memory()
    assert resident() < before - 30e6
    assert all(block.all() for block in kept)


def test_without_the_c_library_of_gnu_nothing_happens(monkeypatch):
    def fails(name):
        raise OSError(name)

    monkeypatch.setattr(memory.ctypes, "CDLL", fails)
    memory.release_memory()
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: object())
    memory.release_memory()
