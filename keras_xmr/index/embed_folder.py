"""Writes the embeddings of a folder of photos, for engines of others."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data_pipelines.errors import UserError
from data_pipelines.files import atomic_replace, temporary_path
from data_pipelines.progress import Progress
from keras_xmr.index.model import RunModel
from keras_xmr.index.photos import check_root, find_photos
from keras_xmr.index.reading import Readers


@dataclass(frozen=True, eq=False)
class Embedded:
    """What was embedded.

    Attributes:
        paths: Under the folder.
        arrays: The tensors of the embedding by name, with a row for each photo.
        broken: Photos that could not be read, and why, by path.
    """

    paths: list[str]
    arrays: dict[str, np.ndarray]
    broken: dict[str, str]


def embed_folder(run: Path, images: Path, output: Path) -> Embedded:
    """Embeds all photos of a folder, and writes what the model makes of them.

    An `.npz` file has an array for each tensor of the embedding, such as `mean` (N, D) and
    `log_variance` (N, D), float32, beside `paths` (N,) and `fingerprint`, that of the model. A
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
    found = _embed(model, root)
    if not found.paths:
        raise UserError(f"{images} has no photo that can be read")
    output.parent.mkdir(parents=True, exist_ok=True)
    aside = temporary_path(output, output.suffix)
    try:
        write(aside, found, model.fingerprint)
        atomic_replace(aside, output)
    finally:
        aside.unlink(missing_ok=True)
    return found


def _embed(model: RunModel, root: Path) -> Embedded:
    paths = [path for path, _ in find_photos(root)]
    kept: list[str] = []
    broken: dict[str, str] = {}
    with Progress("embedding photos", len(paths), "photos") as bar, Readers(root, model) as readers:
        arrays = readers.embed(paths, bar, lambda path, *_: kept.append(path), broken.__setitem__)
    return Embedded(kept, arrays, broken)


def _writer(output: Path) -> Any:
    """What writes a file of this kind; asked for before any work is done."""
    if output.suffix == ".npz":
        return _write_npz
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise UserError(f"{output} needs pyarrow: pip install pyarrow, or take .npz") from None

    def write(path: Path, found: Embedded, fingerprint: str) -> None:
        columns: dict[str, Any] = {"path": found.paths}
        columns |= {name: list(v.reshape(len(v), -1)) for name, v in found.arrays.items()}
        told = {"fingerprint": fingerprint}
        parquet.write_table(arrow.table(columns).replace_schema_metadata(told), path)

    return write


def _write_npz(path: Path, found: Embedded, fingerprint: str) -> None:
    own = {"paths": np.array(found.paths), "fingerprint": fingerprint}
    arrays: dict[str, Any] = {**own, **found.arrays}
    np.savez(path, **arrays)
