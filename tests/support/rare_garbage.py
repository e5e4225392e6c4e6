"""Python looks for garbage less often in tests: a twentieth of their time."""

from __future__ import annotations

import gc

# What modules make when they are imported is no garbage.
gc.disable()


def pytest_collection_finish() -> None:
    """What tests are made of need not be looked at, again and again."""
    gc.collect()
    gc.freeze()
    # Graphs and models make many objects, and Python would look at all of them at every turn.
    gc.set_threshold(10_000, 10, 10)
    gc.enable()
