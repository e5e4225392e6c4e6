"""Reads, decodes and embeds the photos of a folder."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from data_pipelines.errors import UserError
from data_pipelines.files import replace_atomically
from data_pipelines.processors import processor_count
from data_pipelines.progress import Progress
from data_pipelines.records import Records, SplitRecords
from data_pipelines.sources import UnreadableError
from data_pipelines.vectors import chunks, concatenate
from keras_xmr.index.photos import check_root, find_photos, read_photo
from keras_xmr.index.run_model import RunModel
from keras_xmr.runs.frozen_features import kept_image_features

_LOGGER = logging.getLogger(__name__)

Item = TypeVar("Item")


class PhotoEmbedder:
    """Embeds photos of a folder, which threads read.

    A photo with the same bytes as one of the records of the run is embedded by the features that
    are stored there, where they are.

    Args:
        root: The folder of the photos.
        model: The model of the run.
    """

    def __init__(self, root: Path, model: RunModel) -> None:
        self._root, self._model = root, model
        self._stored = _stored_features(model)

    def embed(
        self,
        paths: Sequence[str],
        bar: Progress,
        describe: Callable[[str, bytes, np.ndarray], Item],
    ) -> tuple[list[Item], dict[str, str], dict[str, np.ndarray]]:
        """Embeds photos in order, and skips those that cannot be read.

        Args:
            paths: Paths of the photos.
            bar: Progress, updated per batch.
            describe: Describes a photo by its path, its bytes and the pixels of the model. A photo
                for which it raises `UnreadableError` is skipped.

        Returns:
            The descriptions of the embedded photos, the reasons for skipped ones by path, and the
            embeddings, which are empty if no photo could be read.
        """
        size = self._model.config.evaluation.batch_size
        items: list[Item] = []
        broken: dict[str, str] = {}
        embeddings = []
        with ThreadPoolExecutor(max(2, processor_count())) as pool:
            for batch in chunks(paths, size):
                files, pixels = [], []
                for path, photo in zip(batch, pool.map(self._read, batch), strict=True):
                    try:
                        if isinstance(photo, UnreadableError):
                            raise photo
                        items.append(describe(path, *photo))
                    except UnreadableError as error:
                        broken[path] = str(error)
                        continue
                    files.append(photo[0])
                    pixels.append(photo[1])
                if files:
                    embeddings.append(self._embed(files, pixels))
                bar.update(len(batch))
        return items, broken, concatenate(embeddings) if embeddings else {}

    def _read(self, path: str) -> tuple[bytes, np.ndarray] | UnreadableError:
        try:
            data = read_photo(self._root, path)
            return data, self._model.pixels(data, path)
        except UnreadableError as error:
            return error

    def _embed(self, files: Sequence[bytes], pixels: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Embeds photos, by stored features those that have them, in order."""
        rows: dict[SplitRecords | None, list[tuple[int, int]]] = {}
        for row, data in enumerate(files):
            digest = int(hashlib.sha256(data).hexdigest()[:16], 16)  # As records store it.
            split, number = self._stored.get(digest, (None, row))
            rows.setdefault(split, []).append((row, number))
        parts, order = [], []
        for split, places in rows.items():
            numbers = np.array([number for _, number in places])
            if split is None:
                parts.append(self._model.embed_pixels(np.stack([pixels[n] for n in numbers])))
            else:
                parts.append(self._model.embed_records(split, numbers))
            order += [row for row, _ in places]
        back = np.argsort(order)
        return {name: values[back] for name, values in concatenate(parts).items()}


def _stored_features(model: RunModel) -> dict[int, tuple[SplitRecords, int]]:
    """Splits with stored features, and the number of the image there, by digest of the image."""
    places: dict[int, tuple[SplitRecords, int]] = {}
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


@dataclass(frozen=True, eq=False)
class EmbeddedPhotos:
    """Photos of a folder and their embeddings.

    Attributes:
        paths: Paths of the photos in the folder.
        broken: Reasons for photos that could not be read, by path.
        arrays: The tensors of the embedding by name, with a row per photo.
    """

    paths: list[str]
    broken: dict[str, str]
    arrays: dict[str, np.ndarray]


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
    paths = [path for path, _ in find_photos(root)]
    embedder = PhotoEmbedder(root, model)
    with Progress("embedding photos", len(paths), "photos") as bar:
        embedded = EmbeddedPhotos(*embedder.embed(paths, bar, lambda path, *_: path))
    if not embedded.paths:
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
