"""`metrics.json`: the figures of an evaluation, with a checksum of themselves."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from data_pipelines.files import atomic_write

_SUM = "sha256"


def write_figures_file(path: Path, figures: Mapping[str, Any]) -> None:
    """Writes figures, whole or not at all, and the checksum of them under `sha256`.

    Args:
        path: The file.
        figures: Plain data.
    """
    atomic_write(path, json.dumps({**figures, _SUM: _digest(figures)}, indent=1).encode())


def read_figures_file(path: Path) -> dict[str, Any]:
    """The figures of a file; files of older versions have no checksum.

    Args:
        path: The file.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it holds no figures, or the checksum differs.
    """
    figures = json.loads(path.read_bytes())
    if not isinstance(figures, dict):
        raise ValueError(f"{path} holds no figures")
    if _SUM in figures and figures.pop(_SUM) != _digest(figures):
        raise ValueError(f"the checksum of {path} differs")
    return figures


def _digest(figures: Mapping[str, Any]) -> str:
    # Numbers and the order of keys come back from JSON as they were.
    return hashlib.sha256(json.dumps(figures).encode()).hexdigest()
