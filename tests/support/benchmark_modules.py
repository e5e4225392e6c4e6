"""Modules of the folders of benchmarks and of studies, which are not packages."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def benchmark(name: str, folder: str = "benchmarks") -> Any:
    """A fixture that is a module of a folder; what that one imports can be imported, too."""

    @pytest.fixture(scope="module")
    def bench() -> Iterator[Any]:
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(ROOT / folder)
            yield importlib.import_module(name)

    return bench
