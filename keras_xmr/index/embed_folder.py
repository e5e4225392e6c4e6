"""Writes the embeddings of a folder of photos, for other search engines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data_pipelines.errors import UserError
from data_pipelines.files import replace_atomically
from data_pipelines.progress import Progress
from keras_xmr.index.photo_embedding import PhotoEmbedder
from keras_xmr.index.photos import check_root, find_photos
from keras_xmr.index.run_model import RunModel


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
    write = _writer(output)
    root, model = check_root(images), RunModel(run)
    paths = [path for path, _ in find_photos(root)]
    with (
        Progress("embedding photos", len(paths), "photos") as bar,
        PhotoEmbedder(root, model) as embedder,
    ):
        embedded = EmbeddedPhotos(*embedder.embed(paths, bar, lambda path, *_: path))
    if not embedded.paths:
        raise UserError(f"{images} has no photo that can be read")
    output.parent.mkdir(parents=True, exist_ok=True)
    with replace_atomically(output, output.suffix) as temporary:
        write(temporary, embedded, model.fingerprint)
    return embedded


def _writer(output: Path) -> Any:
    """The function that writes a file of this format; checked before any photo is embedded."""
    if output.suffix == ".npz":
        return _write_npz
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise UserError(f"{output} needs pyarrow: pip install pyarrow, or take .npz") from None

    def write(path: Path, embedded: EmbeddedPhotos, fingerprint: str) -> None:
        columns: dict[str, Any] = {"path": embedded.paths}
        columns |= {name: list(v.reshape(len(v), -1)) for name, v in embedded.arrays.items()}
        metadata = {"fingerprint": fingerprint}
        parquet.write_table(arrow.table(columns).replace_schema_metadata(metadata), path)

    return write


def _write_npz(path: Path, embedded: EmbeddedPhotos, fingerprint: str) -> None:
    arrays: dict[str, Any] = {"paths": np.array(embedded.paths), **embedded.arrays}
    np.savez(path, fingerprint=fingerprint, **arrays)
