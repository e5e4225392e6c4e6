"""Brings the vectors of an index, which a backend searches, up to date with its photos."""

from __future__ import annotations

import shutil

import numpy as np

from keras_xmr.search.backends import Backend, DamagedError
from keras_xmr.search.embedder import Embedder
from keras_xmr.search.manifests import MANIFEST
from keras_xmr.search.photo_index import PhotoIndex
from keras_xmr.utils.vectors import chunks


def update_vectors(
    index: PhotoIndex, model: Embedder, backend: type[Backend], uri: str = ""
) -> bool:
    """Removes the vectors of photos that are gone, and adds missing ones.

    Args:
        index: The index.
        model: The embedder of the index.
        backend: The backend.
        uri: Address of a server, for a backend that has one.

    Returns:
        Whether the vectors could be read; if not, all are computed again.
    """
    folder = index.vectors_path
    vectors: Backend | None = None
    is_whole = True
    if (folder / MANIFEST).exists():
        try:
            vectors = backend.open(folder, writing=True)
            vectors.remove(np.setdiff1d(vectors.ids, index.ids))
        except DamagedError:
            shutil.rmtree(folder)
            is_whole = False
    missing = np.setdiff1d(index.ids, [] if vectors is None else vectors.ids)

    def sample(size: int) -> np.ndarray:
        drawn = np.random.default_rng(0).choice(missing, size, replace=False)
        return _compute_vectors(index, model, np.sort(drawn))

    for ids in chunks(missing, 1 << 16):
        added = _compute_vectors(index, model, ids)
        if vectors is None:
            options = {"uri": uri} if uri else {}
            vectors = backend(folder, added.shape[1:], **options)
            vectors.begin(len(missing), sample)
        vectors.add(ids, added)
    if vectors is not None:
        vectors.save()
        vectors.close()
    return is_whole


def _compute_vectors(index: PhotoIndex, model: Embedder, ids: np.ndarray) -> np.ndarray:
    embedded = (model.prepare(index.embeddings(some), "image") for some in chunks(ids, 1024))
    return np.concatenate([index.augmentation.gallery_vectors(some) for some in embedded])
