"""Loads matrices from `.npy` and `.npz` files, and scores embeddings."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from data_pipelines.errors import UserError
from data_pipelines.files import NO_ARRAY

_ROWS = 512

_EQUAL_CAPTIONS = (
    ". Equal captions in a CSV file are one column; a further column caption_id keeps them apart"
)

Similarity = Literal["cosine", "dot"]


class ScoresError(UserError):
    """A matrix cannot be read or has another shape; the message says what was expected."""


def load_matrix(path: Path) -> np.ndarray:
    """A matrix of numbers: a memory map of a `.npy` file, or the only array of a `.npz` file.

    Raises:
        ScoresError: If the file holds no such matrix.
    """
    try:
        found = np.load(path, mmap_mode="r")
        if not isinstance(found, np.ndarray):
            names = list(found)
            if len(names) != 1:
                raise ScoresError(
                    f"{path} holds {len(names)} arrays ({', '.join(names)}), and it is not clear "
                    "which is meant; save the one alone"
                )
            found = found[names[0]]
    except FileNotFoundError:
        raise ScoresError(f"{path} does not exist") from None
    except NO_ARRAY as error:
        raise ScoresError(
            f"{path} is not an array as numpy.save or numpy.savez writes it ({error})"
        ) from None
    if found.ndim != 2 or found.dtype.kind not in "fiu":
        raise ScoresError(
            f"{path} holds {found.dtype} of shape {found.shape}; a matrix of numbers is expected"
        )
    return found


def load_scores(path: Path, shape: tuple[int, int], described_by: Path) -> np.ndarray:
    """A matrix (images, captions), such as scores.

    Args:
        path: The file.
        shape: Images, captions.
        described_by: The file that says so, for the error message.

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
    """Embeddings of all images or of all captions, as a matrix with a row for each.

    Args:
        path: The file.
        kind: "images" or "captions".
        count: How many there are.
        described_by: The file that says so, for the error message.

    Raises:
        ScoresError: If there are more or fewer.
    """
    found = load_matrix(path)
    if len(found) != count:
        raise ScoresError(
            f"{path} is {_size(found)}, but {described_by} has {count:,} {kind}: a row for each "
            "is expected, in its order"
        )
    return found


def similarity(images: np.ndarray, captions: np.ndarray, kind: Similarity = "cosine") -> np.ndarray:
    """Scores all images (N) with all captions (M).

    Args:
        images: Embeddings (N, D).
        captions: Embeddings (M, D).
        kind: "cosine" or "dot", the inner product. A cosine with a vector of zeros is 0.

    Returns:
        Float32 (N, M).

    Raises:
        ScoresError: If the embeddings differ in width.
    """
    if images.shape[1] != captions.shape[1]:
        raise ScoresError(
            f"the image embeddings have {images.shape[1]} numbers, those of captions "
            f"{captions.shape[1]}; they must be of one space"
        )
    columns = _prepared(captions, kind).T
    scores = np.empty((len(images), len(captions)), np.float32)
    for first in range(0, len(images), _ROWS):
        rows = slice(first, first + _ROWS)
        np.matmul(_prepared(images[rows], kind), columns, out=scores[rows])
    return scores


def _prepared(embeddings: np.ndarray, kind: Similarity) -> np.ndarray:
    vectors = np.asarray(embeddings, np.float32)
    if kind == "dot":
        return vectors
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms != 0)


def _size(matrix: np.ndarray) -> str:
    return " x ".join(f"{size:,}" for size in matrix.shape)
