"""Modules of the folder of benchmarks, which is no package."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


def benchmark(name: str) -> Any:
    """A fixture that is the module of a benchmark; what that one imports can be imported, too."""

    @pytest.fixture(scope="module")
    def bench() -> Iterator[Any]:
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(FOLDER)
            yield importlib.import_module(name)

    return bench
