"""Reads, decodes and embeds the photos of a folder."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from data_pipelines.photo_files import UnreadableError, content_digest
from data_pipelines.pixels import stored_jpeg, stored_pixels
from keras_xmr.search.descriptions import describe
from keras_xmr.search.embedder import Embedder
from keras_xmr.search.photo_table import FileState, Photo, check_root, find_photos, read_photo
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.files import LockedError, replace_atomically
from keras_xmr.utils.installing import install_command
from keras_xmr.utils.processors import processor_count
from keras_xmr.utils.progress import Progress
from keras_xmr.utils.vectors import chunks, concatenate

if TYPE_CHECKING:
    from data_pipelines.features import FeatureStore, Writer

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


class Store:
    """Features of a frozen image encoder, which the training of a run has stored.

    Args:
        folder: The folder of the store.
        shape: L and F of the features of an image.
    """

    def __init__(self, folder: Path, shape: tuple[int, ...]) -> None:
        self.folder, self.shape = folder, shape

    @classmethod
    def of_embedder(cls, embedder: Embedder) -> Store | None:
        """Returns the store of the run of an embedder; None where it has none, or it is gone."""
        if embedder.features is None or not embedder.features[0].parent.is_dir():
            return None
        return cls(*embedder.features)

    def open(self) -> FeatureStore:
        """Opens the store as it is now.

        Raises:
            RecordsError: If it is damaged.
        """
        from data_pipelines.features import FeatureStore

        return FeatureStore(self.folder)

    def writing(self) -> Any:
        """Opens the store to add features; see `FeatureStore.writing`."""
        return self.open().writing("an image", "train.precompute_features")


class PhotoEmbedder:
    """Embeds photos of a folder, which threads read.

    With a store of features, a photo is embedded by these if its bytes are known, and otherwise
    its features are stored, too.

    Args:
        root: The folder of the photos.
        model: The embedder.
        store: The store; None computes all features.
    """

    def __init__(self, root: Path, model: Embedder, store: Store | None = None) -> None:
        self._root, self._model = root, model
        self._features = store

    def embed(
        self, files: Sequence[tuple[str, FileState]], bar: Progress, first_id: int = 0
    ) -> EmbeddedPhotos:
        """Embeds photos in order, and skips those that cannot be read.

        Args:
            files: Paths of the photos, and the states of their files.
            bar: Progress, updated per batch.
            first_id: The id of the first photo that can be read.
        """
        size = self._model.batch_size
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
            options = self._model.pixel_options
            jpeg = stored_jpeg(data, path, options.store_side)
            pixels = stored_pixels(jpeg, path, options)
            photo = describe(path, data, state, pixels)
            return photo, pixels, 0 if self._features is None else content_digest(jpeg)
        except UnreadableError as error:
            return error

    def _embed(
        self, pixels: np.ndarray, keys: np.ndarray, writer: Writer | None
    ) -> dict[str, np.ndarray]:
        """Embeds photos in order, by stored features if there are any."""
        if self._features is None:
            return self._model.embed_pixels(pixels)
        rows = self._store.rows(keys)
        new = np.flatnonzero(rows < 0)
        features = np.empty((len(keys), *self._features.shape), np.float32)
        for item in np.flatnonzero(rows >= 0):
            features[item] = self._store.read(rows[item])
        if len(new):
            computed = self._model.encode_pixels(pixels[new])
            if writer is not None:
                writer.add(keys[new], computed)
            features[new] = computed.astype(np.float16)
        return self._model.embed_features(features)

    @contextmanager
    def _writing(self) -> Iterator[Writer | None]:
        """Opens the store of features to add some; None where another process does, or none may."""
        writer = None
        with ExitStack() as stack:
            if self._features is not None:
                self._store = self._features.open()
                if math.prod(self._features.shape) <= _MOST_STORED:
                    with suppress(LockedError):
                        writer = stack.enter_context(self._features.writing())
            yield writer


def embed_folder(model: Embedder, images: Path, output: Path) -> EmbeddedPhotos:
    """Embeds all photos of a folder, and writes the embeddings.

    An `.npz` file has an array for each tensor of the embedding, such as `mean` (N, D) and
    `log_variance` (N, D), float32, with `paths` (N,) and the `fingerprint` of the model. A
    `.parquet` file has the column `path`, and one for each tensor, with lists of numbers.

    Args:
        model: The embedder.
        images: The folder of the photos.
        output: The file, `.npz` or `.parquet`; it appears whole or not at all.

    Raises:
        UserError: If nothing could be read or written.
    """
    if output.suffix != ".npz" and find_spec("pyarrow") is None:
        raise UserError(f"{output} needs pyarrow: {install_command('parquet')}, or take .npz")
    root, store = check_root(images), Store.of_embedder(model)
    files = list(find_photos(root))
    with Progress("embedding photos", len(files), "photos") as bar:
        embedded = PhotoEmbedder(root, model, store).embed(files, bar)
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
