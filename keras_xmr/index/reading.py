"""Reads and decodes photos in threads, and embeds them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from data_pipelines.processors import processor_count
from data_pipelines.progress import Progress
from data_pipelines.sources import UnreadableError
from keras_xmr.index.calibration import join
from keras_xmr.index.kept_photos import KeptPhotos
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
        self._kept = KeptPhotos(model)
        self._pool = ThreadPoolExecutor(max(2, processor_count()))

    def read(self, paths: Sequence[str]) -> Iterator[tuple[str, Seen]]:
        """Some photos in order: the path of each, and what gives it once it was read."""
        jobs = [self._pool.submit(self._one, path) for path in paths]
        for path, job in zip(paths, jobs, strict=True):
            yield path, job.result

    def embed(
        self,
        paths: Sequence[str],
        bar: Progress,
        keep: Callable[[str, bytes, np.ndarray], None],
        pass_over: Callable[[str, str], None],
    ) -> dict[str, np.ndarray]:
        """Embeds photos in order, and passes over those that cannot be read.

        Args:
            paths: Of the photos.
            bar: Told of each batch.
            keep: Called with the path, the bytes and what the model sees of each that is embedded.
                What it raises as `UnreadableError` has the photo passed over.
            pass_over: Called with the path of each that is not, and why.

        Returns:
            Their embeddings; nothing if none could be read.
        """
        size = self._model.config.evaluation.batch_size
        found = []
        for start in range(0, len(paths), size):
            batch = paths[start : start + size]
            files, pixels = [], []
            for path, read in self.read(batch):
                try:
                    data, seen = read()
                    keep(path, data, seen)
                except UnreadableError as error:
                    pass_over(path, str(error))
                    continue
                files.append(data)
                pixels.append(seen)
            if pixels:
                found.append(self._kept.embed(files, pixels))
            bar.update(len(batch))
        return join(found) if found else {}

    def _one(self, path: str) -> tuple[bytes, np.ndarray]:
        data = read_photo(self._root, path)
        return data, self._model.pixels(data, path)

    def __enter__(self) -> Readers:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)
