"""Reference numbers: the fixtures `golden` and `random`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
# The second folder has the numbers whose captions are not ours to publish.
GOLDEN = (
    ROOT / "tests" / "golden",
    Path(os.environ.get("KERAS_XMR_GOLDEN", ROOT.parent / "shared" / "golden")),
)


class Golden:
    """Reference numbers of one case: `golden["in_x"]`, float32 as it is fed."""

    def __init__(self, path: Path) -> None:
        self.folder = path.parent
        self._arrays = dict(np.load(path))

    def __getitem__(self, key: str) -> np.ndarray:
        return self._arrays[key]

    def __iter__(self):
        return iter(self._arrays)

    def f32(self, key: str) -> np.ndarray:
        return self._arrays[key].astype(np.float32)


@pytest.fixture
def golden() -> Callable[[str], Golden]:
    """Loads a case of reference numbers; skips the test where there are none."""

    def load(case: str) -> Golden:
        for folder in GOLDEN:
            if (folder / f"{case}.npz").exists():
                return Golden(folder / f"{case}.npz")
        pytest.skip(f"the reference numbers {case}.npz are not on this machine")

    return load


@pytest.fixture
def random() -> np.random.Generator:
    """A seeded source of random numbers."""
    return np.random.default_rng(7)
