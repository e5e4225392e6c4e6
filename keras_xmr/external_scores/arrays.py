"""Loads matrices from `.npy` and `.npz` files, and scores embeddings."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from data_pipelines.errors import UserError
from data_pipelines.files import NO_ARRAY, bytes_after

_ROWS = 512

_EQUAL_CAPTIONS = (
    ". Equal captions in a CSV file are one column; a column caption_id distinguishes them"
)

Similarity = Literal["cosine", "dot"]


class ScoresError(UserError):
    """A matrix cannot be read or has another shape; the message has the expected one."""


def load_matrix(path: Path) -> np.ndarray:
    """A matrix of numbers: a memory map of a `.npy` file, or the only array of a `.npz` file.

    Raises:
        ScoresError: If the file holds no such matrix.
    """
    try:
        matrix = np.load(path, mmap_mode="r")
        if not isinstance(matrix, np.ndarray):
            names = list(matrix)
            if len(names) != 1:
                raise ScoresError(
                    f"{path} holds {len(names)} arrays ({', '.join(names)}), and it is not "
                    "clear which is meant; save a single one"
                )
            matrix = matrix[names[0]]
    except FileNotFoundError:
        raise ScoresError(f"{path} does not exist") from None
    except NO_ARRAY as error:
        raise ScoresError(
            f"{path} is not an array as numpy.save or numpy.savez writes it ({error})"
        ) from None
    if surplus := bytes_after(matrix, path):
        raise ScoresError(f"{path} has {surplus:,} bytes after its array; save one array alone")
    if matrix.ndim != 2 or matrix.dtype.kind not in "fiu":
        raise ScoresError(
            f"{path} holds {matrix.dtype} of shape {matrix.shape}; a matrix of numbers is expected"
        )
    return matrix


def load_scores(path: Path, shape: tuple[int, int], described_by: Path) -> np.ndarray:
    """A matrix (images, captions), such as scores.

    Args:
        path: The file.
        shape: Images, captions.
        described_by: The file of the ground truth, for error messages.

    Raises:
        ScoresError: If it has another shape.
    """
    scores = load_matrix(path)
    if scores.shape != shape:
        turned = scores.shape == shape[::-1]
        raise ScoresError(
            f"{path} is {_size(scores)}, but {described_by} has {shape[0]:,} images and "
            f"{shape[1]:,} captions: rows are images and columns are captions, in its order"
            + ("; save its transpose" if turned else "")
            + (_EQUAL_CAPTIONS if described_by.suffix == ".csv" and not turned else "")
        )
    return scores


def load_embeddings(path: Path, kind: str, count: int, described_by: Path) -> np.ndarray:
    """Embeddings of all images or of all captions, a matrix with one row per item.

    Args:
        path: The file.
        kind: "images" or "captions".
        count: Number of items.
        described_by: The file of the ground truth, for error messages.

    Raises:
        ScoresError: If there are more or fewer.
    """
    embeddings = load_matrix(path)
    if len(embeddings) != count:
        raise ScoresError(
            f"{path} is {_size(embeddings)}, but {described_by} has {count:,} {kind}: one row per "
            "item is expected, in its order"
        )
    return embeddings


def similarity(images: np.ndarray, captions: np.ndarray, kind: Similarity = "cosine") -> np.ndarray:
    """Scores all images (N) with all captions (M).

    Args:
        images: Embeddings (N, D).
        captions: Embeddings (M, D).
        kind: "cosine" or "dot", the inner product. A cosine with a vector of zeros is 0.

    Returns:
        Float32 (N, M).

    Raises:
        ScoresError: If the embeddings differ in dimension, have none, or are not finite, or an
            inner product overflows float32.
    """
    if images.shape[1] != captions.shape[1]:
        raise ScoresError(
            f"the image embeddings have {images.shape[1]} numbers, those of captions "
            f"{captions.shape[1]}; they must have one dimension"
        )
    if not images.shape[1]:
        raise ScoresError("the embeddings have no numbers: their width is 0")
    columns = _prepared(captions, kind, "caption").T
    scores = np.empty((len(images), len(captions)), np.float32)
    for first in range(0, len(images), _ROWS):
        rows = slice(first, first + _ROWS)
        np.matmul(_prepared(images[rows], kind, "image"), columns, out=scores[rows])
        if not np.isfinite(scores[rows]).all():
            raise ScoresError(
                "the embeddings are too large for an inner product in float32; divide them by a "
                "constant, which keeps all rankings, or use --similarity=cosine"
            )
    return scores


def _prepared(embeddings: np.ndarray, kind: Similarity, item: str) -> np.ndarray:
    if not np.isfinite(embeddings).all():
        raise ScoresError(f"some {item} embeddings are NaN or infinite")
    if kind == "dot":
        with np.errstate(over="ignore"):
            return np.asarray(embeddings, np.float32)
    if embeddings.dtype.kind != "f":
        embeddings = np.asarray(embeddings, np.float32)
    # Norms of numbers of any magnitude would overflow or vanish; those of numbers to 1 do not.
    largest = np.abs(embeddings).max(axis=1, keepdims=True)
    zeros = np.zeros(embeddings.shape, np.float32)
    vectors = np.divide(embeddings, largest, out=zeros, where=largest != 0, casting="same_kind")
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, norms, out=vectors, where=norms != 0)


def _size(matrix: np.ndarray) -> str:
    return " x ".join(f"{size:,}" for size in matrix.shape)
