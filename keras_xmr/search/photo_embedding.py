"""Reads, decodes and embeds the photos of a folder."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from data_pipelines.features import Writer
from data_pipelines.photo_files import UnreadableError
from data_pipelines.pixels import stored_jpeg, stored_pixels
from data_pipelines.shards import content_digest
from keras_xmr.experiments.runs.frozen_features import ImageEncoder, stores_image_features
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
from keras_xmr.utils.files import LockedError, replace_atomically
from keras_xmr.utils.installing import install_command
from keras_xmr.utils.processors import processor_count
from keras_xmr.utils.progress import Progress
from keras_xmr.utils.vectors import chunks, concatenate

_LOGGER = logging.getLogger(__name__)

_MOST_STORED = 1 << 15
"""Maximum number of features of a photo that are stored: 100,000 photos take at most 6.6 GB."""


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


class PhotoEmbedder:
    """Embeds photos of a folder, which threads read.

    Where the run stores features of a frozen encoder, a photo is embedded by these if its bytes
    are known, and otherwise its features are stored, too.

    Args:
        root: The folder of the photos.
        model: The model of the run.
    """

    def __init__(self, root: Path, model: RunModel) -> None:
        self._root, self._model = root, model
        self._encoder = _image_encoder(model)

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
        with (
            self._writing() as writer,
            ThreadPoolExecutor(max(2, processor_count())) as pool,
        ):
            for batch in chunks(files, size):
                pixels, keys = [], []
                for (path, _), result in zip(batch, pool.map(self._read, batch), strict=True):
                    if isinstance(result, UnreadableError):
                        broken[path] = str(result)
                        continue
                    photos.append(replace(result[0], id=first_id + len(photos)))
                    pixels.append(result[1])
                    keys.append(result[2])
                if pixels:
                    some = np.stack(pixels), np.array(keys, np.uint64)
                    embeddings.append(self._embed(*some, writer))
                bar.update(len(batch))
        return EmbeddedPhotos(photos, broken, concatenate(embeddings) if embeddings else {})

    def _read(self, file: tuple[str, FileState]) -> tuple[Photo, np.ndarray, int] | UnreadableError:
        """Returns a photo, its pixels, and the key of its features."""
        path, state = file
        try:
            data = read_photo(self._root, path)
            options = self._model.config.data.image
            jpeg = stored_jpeg(data, path, options.store_side)
            pixels = stored_pixels(jpeg, path, options)
            photo = describe(path, data, state, pixels)
            return photo, pixels, 0 if self._encoder is None else content_digest(jpeg)
        except UnreadableError as error:
            return error

    def _embed(
        self, pixels: np.ndarray, keys: np.ndarray, writer: Writer | None
    ) -> dict[str, np.ndarray]:
        """Embeds photos in order, by stored features if there are any."""
        if self._encoder is None:
            return self._model.embed_pixels(pixels)
        rows = self._store.rows(keys)
        new = np.flatnonzero(rows < 0)
        features = np.empty((len(keys), *self._encoder.shape), np.float32)
        for item in np.flatnonzero(rows >= 0):
            features[item] = self._store.read(rows[item])
        if len(new):
            computed = self._encoder.encode(pixels[new]).numpy()
            if writer is not None:
                writer.add(keys[new], computed)
            features[new] = computed.astype(np.float16)
        return self._model.embed_image_features(features)

    @contextmanager
    def _writing(self) -> Iterator[Writer | None]:
        """Opens the store of features to add some; None where another process does, or none may."""
        writer = None
        with ExitStack() as stack:
            if self._encoder is not None:
                self._store = self._encoder.store()
                if math.prod(self._encoder.shape) <= _MOST_STORED:
                    with suppress(LockedError):
                        writer = stack.enter_context(self._encoder.writing())
            yield writer


def _image_encoder(model: RunModel) -> ImageEncoder | None:
    """Returns the frozen encoder of images of a run that stores their features, or None."""
    config = model.config
    if not (config.data.is_prepared and stores_image_features(config)):
        return None
    try:
        encoder = ImageEncoder(model.image_tower, config.data.records, config)
        encoder.store()
        return encoder
    except UserError as error:
        _LOGGER.warning("all photos are embedded from their pixels: %s", error)
        return None


def embed_folder(run: Path, images: Path, output: Path) -> EmbeddedPhotos:
    """Embeds all photos of a folder, and writes the embeddings.

    An `.npz` file has an array for each tensor of the embedding, such as `mean` (N, D) and
    `log_variance` (N, D), float32, with `paths` (N,) and the `fingerprint` of the model. A
    `.parquet` file has the column `path`, and one for each tensor, with lists of numbers.

    Args:
        run: The folder of a finished run.
        images: The folder of the photos.
        output: The file, `.npz` or `.parquet`; it appears whole or not at all.

    Raises:
        UserError: If the run is not finished, or nothing could be read or written.
    """
    if output.suffix != ".npz" and find_spec("pyarrow") is None:
        raise UserError(f"{output} needs pyarrow: {install_command('parquet')}, or take .npz")
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
