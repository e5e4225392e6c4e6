"""Reads and decodes photos in threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from keras_xmr.index.photos import read_photo

if TYPE_CHECKING:
    from keras_xmr.index.model import RunModel

Seen = Callable[[], tuple[bytes, np.ndarray]]
"""The bytes of a photo and what a model sees of it; raises `UnreadableError` if it is broken."""


class Readers:
    """Threads that read photos. A context manager.

    Args:
        root: The folder of the photos.
        model: What looks at them.
    """

    def __init__(self, root: Path, model: RunModel) -> None:
        self._root, self._model = root, model
        self._pool = ThreadPoolExecutor(max(2, os.cpu_count() or 1))

    def read(self, paths: Sequence[str]) -> Iterator[tuple[str, Seen]]:
        """Some photos in order: the path of each, and what gives it once it was read."""
        jobs = [self._pool.submit(self._one, path) for path in paths]
        for path, job in zip(paths, jobs, strict=True):
            yield path, job.result

    def _one(self, path: str) -> tuple[bytes, np.ndarray]:
        data = read_photo(self._root, path)
        return data, self._model.pixels(data, path)

    def __enter__(self) -> Readers:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)
