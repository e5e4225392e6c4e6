"""Whether TensorFlow makes graphs in tests, compiles parts, and optimises graphs."""

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


_LAYERS = "keras_xmr.layers.compiled"
_NEVER = 10**9
_usual: dict[str, int] = {}


def compile_parts(on: bool) -> None:
    """Sets whether TensorFlow compiles losses and matchers that are called a third time.

    That takes longer than the few calls of a test. Others than TensorFlow compile as ever.
    """
    if _LAYERS in sys.modules:
        calls = sys.modules[_LAYERS]._CALLS_BEFORE
        usual = _usual.setdefault("tensorflow", calls["tensorflow"])
        calls["tensorflow"] = usual if on else _NEVER


@contextmanager
def compiled_parts() -> Iterator[None]:
    """Losses and matchers are compiled, as in a process of its own."""
    compile_parts(True)
    try:
        yield
    finally:
        compile_parts(False)


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
