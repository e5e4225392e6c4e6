"""Whether TensorFlow optimises the graphs of tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


def optimize(on: bool) -> None:
    """Sets it, if TensorFlow has been imported. Small graphs are run sooner without."""
    if "tensorflow" in sys.modules:
        optimizer = sys.modules["tensorflow"].config.optimizer
        optimizer.set_experimental_options({"disable_meta_optimizer": not on})


@contextmanager
def optimized() -> Iterator[None]:
    """Graphs are optimised, as in a process of its own, whose numbers are the same to the bit."""
    optimize(True)
    try:
        yield
    finally:
        optimize(False)
