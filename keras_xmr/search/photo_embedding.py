"""Reads, decodes and embeds the photos of a folder."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from data_pipelines.images import to_jpeg
from data_pipelines.processors import processor_count
from data_pipelines.records import Records, SplitRecords
from data_pipelines.shards import content_digest
from data_pipelines.sources import UnreadableError
from keras_xmr.runs.frozen_features import kept_image_features
from keras_xmr.search.photos import (
    FileState,
    Photo,
    check_root,
    describe,
    find_photos,
    read_photo,
)
from keras_xmr.search.run_model import RunModel
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.files import replace_atomically
from keras_xmr.utils.progress import Progress
from keras_xmr.utils.vectors import chunks, concatenate, select

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class EmbeddedPhotos:
    """Photos of a folder and their embeddings.

    Attributes:
        photos: Descriptions of the photos that could be read.
        broken: Reasons for photos that could not be read, by path.
        arrays: The tensors of the embedding by name, with a row per photo; empty without photos.
    """

    photos: list[Photo]
    broken: dict[str, str]
    arrays: dict[str, np.ndarray]

    @property
    def paths(self) -> list[str]:
        """Paths of the photos in the folder."""
        return [photo.path for photo in self.photos]


_Place = tuple[SplitRecords | None, int]
"""A split with stored features, and the number of an image there; None for other images."""


_NOWHERE: _Place = (None, -1)


class PhotoEmbedder:
    """Embeds photos of a folder, which threads read.

    A photo that is in the records of the run, as their bytes say, is embedded by the features that
    are stored there, if there are any.

    Args:
        root: The folder of the photos.
        model: The model of the run.
    """

    def __init__(self, root: Path, model: RunModel) -> None:
        self._root, self._model = root, model
        self._stored = _stored_features(model)

    def embed(
        self, files: Sequence[tuple[str, FileState]], bar: Progress, first_id: int = 0
    ) -> EmbeddedPhotos:
        """Embeds photos in order, and skips those that cannot be read.

        Args:
            files: Paths of the photos, and the states of their files.
            bar: Progress, updated per batch.
            first_id: The id of the first photo that can be read.
        """
        size = self._model.config.evaluation.batch_size
        photos: list[Photo] = []
        broken: dict[str, str] = {}
        embeddings = []
        with ThreadPoolExecutor(max(2, processor_count())) as pool:
            for batch in chunks(files, size):
                pixels, places = [], []
                for (path, _), result in zip(batch, pool.map(self._read, batch), strict=True):
                    if isinstance(result, UnreadableError):
                        broken[path] = str(result)
                        continue
                    photos.append(replace(result[0], id=first_id + len(photos)))
                    pixels.append(result[1])
                    places.append(result[2])
                if pixels:
                    embeddings.append(self._embed(pixels, places))
                bar.update(len(batch))
        return EmbeddedPhotos(photos, broken, concatenate(embeddings) if embeddings else {})

    def _read(
        self, file: tuple[str, FileState]
    ) -> tuple[Photo, np.ndarray, _Place] | UnreadableError:
        """Returns a photo, its pixels, and where its features are stored, if they are."""
        path, state = file
        try:
            data = read_photo(self._root, path)
            jpeg = to_jpeg(data, path)
            pixels = self._model.decode(jpeg)
            photo = describe(path, data, state, pixels)
            if not self._stored:
                return photo, pixels, _NOWHERE
            if side := self._model.config.data.image.store_side:
                jpeg = to_jpeg(data, path, side)
            return photo, pixels, self._stored.get(int(content_digest(jpeg), 16), _NOWHERE)
        except UnreadableError as error:
            return error

    def _embed(self, pixels: list[np.ndarray], places: list[_Place]) -> dict[str, np.ndarray]:
        """Embeds photos, by stored features those that have them, in order."""
        parts, order = [], []
        for split in dict.fromkeys(split for split, _ in places):
            rows = [row for row, (own, _) in enumerate(places) if own is split]
            if split is None:
                parts.append(self._model.embed_pixels(np.stack([pixels[row] for row in rows])))
            else:
                numbers = np.array([places[row][1] for row in rows])
                parts.append(self._model.embed_records(split, numbers))
            order += rows
        return select(concatenate(parts), np.argsort(order))


def _stored_features(model: RunModel) -> dict[int, _Place]:
    """Returns the places of stored features, by digest of the image."""
    places: dict[int, _Place] = {}
    if not model.config.data.is_prepared:
        return places
    try:
        records = Records.open(model.config.data.records)
        features = kept_image_features(records, model, model.config)
        for split in [] if features is None else map(features.split, features.splits):
            digests = records.split(split.split).index.columns["digest"].tolist()
            places |= {digest: (split, number) for number, digest in enumerate(digests)}
    except UserError as error:
        _LOGGER.warning("photos of the records are embedded from their pixels: %s", error)
    return places


def embed_folder(run: Path, images: Path, output: Path) -> EmbeddedPhotos:
    """Embeds all photos of a folder, and writes the embeddings.

    An `.npz` file has an array for each tensor of the embedding, such as `mean` (N, D) and
    `log_variance` (N, D), float32, with `paths` (N,) and `fingerprint`, that of the model. A
    `.parquet` file has the column `path`, and one for each tensor, with lists of numbers.

    Args:
        run: The folder of a finished run.
        images: The folder of the photos.
        output: The file, `.npz` or `.parquet`; it appears whole or not at all.

    Raises:
        UserError: If the run is not finished, or nothing could be read or written.
    """
    if output.suffix != ".npz" and find_spec("pyarrow") is None:
        raise UserError(f"{output} needs pyarrow: pip install pyarrow, or take .npz")
    root, model = check_root(images), RunModel(run)
    files = list(find_photos(root))
    with Progress("embedding photos", len(files), "photos") as bar:
        embedded = PhotoEmbedder(root, model).embed(files, bar)
    if not embedded.photos:
        raise UserError(f"{images} has no photo that can be read")
    output.parent.mkdir(parents=True, exist_ok=True)
    with replace_atomically(output, output.suffix) as temporary:
        _write(temporary, embedded, model.fingerprint)
    return embedded


def _write(path: Path, embedded: EmbeddedPhotos, fingerprint: str) -> None:
    if path.suffix == ".npz":
        arrays: dict[str, Any] = {"paths": np.array(embedded.paths), **embedded.arrays}
        np.savez(path, fingerprint=fingerprint, **arrays)
        return
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    columns: dict[str, Any] = {"path": embedded.paths}
    columns |= {name: list(v.reshape(len(v), -1)) for name, v in embedded.arrays.items()}
    metadata = {"fingerprint": fingerprint}
    parquet.write_table(arrow.table(columns).replace_schema_metadata(metadata), path)
