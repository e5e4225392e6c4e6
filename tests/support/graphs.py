"""Whether TensorFlow makes graphs in tests, and optimises them."""

from __future__ import annotations

import sys
import warnings
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


@contextmanager
def eager() -> Iterator[None]:
    """Functions run as Python does; those of input pipelines are graphs all the same."""
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*does not apply to tf.data functions")
        try:
            yield
        finally:
            tf.config.run_functions_eagerly(False)
