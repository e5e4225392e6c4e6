"""Checks that the parts of a config fit together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ByteSize

from keras_xmr.config.messages import cut
from keras_xmr.config.model_compatibility import Mistake, check_model
from keras_xmr.config.run_compatibility import check_run

if TYPE_CHECKING:
    from keras_xmr.config.schema import Config

LARGEST = 2**31 - 1
"""The largest whole number of a config."""


def check(config: Config) -> Iterator[Mistake]:
    """Yields the key and the explanation of every combination that cannot work."""
    yield from _numbers(config, ())
    yield from check_model(config)
    yield from check_run(config)


def _numbers(value: Any, key: tuple[str | int, ...]) -> Iterator[Mistake]:
    """Integers that overflow the int32 of TensorFlow."""
    if isinstance(value, BaseModel | dict):
        for name, inner in dict(value).items():
            yield from _numbers(inner, (*key, name))
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from _numbers(inner, (*key, number))
    elif isinstance(value, int) and not isinstance(value, ByteSize) and abs(value) > LARGEST:
        yield key, f"got {cut(str(value))}; whole numbers go to {LARGEST:,}"
