"""Photos that are those of the records of a run, whose features are kept."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from data_pipelines.errors import UserError
from data_pipelines.options import MANIFEST
from data_pipelines.records import Records, SplitRecords
from data_pipelines.sources import SPLITS
from keras_xmr.index.calibration import join
from keras_xmr.training.kept_features import kept_image_features

if TYPE_CHECKING:
    from keras_xmr.index.model import RunModel

_LOGGER = logging.getLogger(__name__)


class KeptPhotos:
    """Embeds photos, and those that are in the records of the run by their features.

    A photo is one of the records if its file has the bytes that these have.

    Args:
        model: The model of the run.
    """

    def __init__(self, model: RunModel) -> None:
        self._model = model
        self._places: dict[int, tuple[SplitRecords, int]] = {}
        try:
            if (model.config.data.records / MANIFEST).exists():
                self._find(Records.open(model.config.data.records))
        except UserError as error:
            _LOGGER.warning("photos of the records are embedded from their pixels: %s", error)

    def _find(self, records: Records) -> None:
        features = kept_image_features(records, self._model, self._model.config)
        if features is None:
            return
        for name in (split for split in SPLITS if split in features.splits):
            part, digests = features.split(name), records.split(name).index.columns["digest"]
            for number, digest in enumerate(digests.tolist()):
                self._places[digest] = (part, number)

    def embed(self, files: Sequence[bytes], pixels: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """The embeddings of some photos, a row each.

        Args:
            files: The bytes of their files.
            pixels: What the model sees of each, uint8 (size, size, 3).
        """
        rows: dict[SplitRecords | None, list[tuple[int, int]]] = {}
        for row, data in enumerate(files):
            part, number = self._places.get(_digest(data), (None, row))
            rows.setdefault(part, []).append((row, number))
        found, order = [], []
        for part, places in rows.items():
            numbers = np.array([number for _, number in places])
            if part is None:
                found.append(self._model.embed_pixels(np.stack([pixels[n] for n in numbers])))
            else:
                found.append(self._model.embed_records(part, numbers))
            order += [row for row, _ in places]
        back = np.argsort(order)
        return {name: values[back] for name, values in join(found).items()}


def _digest(data: bytes) -> int:
    """The digest that records have of an image with these bytes."""
    return int(hashlib.sha256(data).hexdigest()[:16], 16)
