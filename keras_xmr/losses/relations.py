"""The relations of the pairs of a batch: which match, and how relevant they are."""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from keras_xmr.embeddings.kinds import Tensor
from keras_xmr.embeddings.validation import to_numpy
from keras_xmr.judgements.accepted_forms import check_image_ids
from keras_xmr.layers.backend import backend, in_inference_mode, is_concrete
from keras_xmr.layers.operations import ops
from keras_xmr.parts.keras_state import default_device
from keras_xmr.utils.errors import ArgumentError
from keras_xmr.utils.foreign_arrays import as_array

Relations = dict[str, Tensor]
"""Relations of the pairs of a batch: `positives`, boolean (N, M), true where an image and a caption
match; for losses that need it `relevance`, float32 (N, M), from 0; where pairs were judged,
`targets`, float32 (N, M), how far an image and a caption match, from 0 to 1; and where each caption
matches one image, perhaps `pairs`, int32 (2, M), the rows and columns of all matches. Where caption
i is known to match image i and no other, `diagonal` is true."""


def checked_matches(
    image_ids: ArrayLike | None, positives: object, images: int | None, captions: int | None
) -> dict[str, Any]:
    """Checks which pairs match: `positives`, `image_ids`, int32 (M,), or `diagonal`.

    Values are checked unless they are in a graph.

    Args:
        image_ids: The row of each caption's image, or None.
        positives: Which pairs match, or None.
        images: N.
        captions: M.

    Raises:
        ArgumentError: If both or neither are given, or a shape or value is wrong.
    """
    if positives is not None:
        if image_ids is not None:
            raise ArgumentError(
                "image_ids and positives both define the matching pairs; pass one of them"
            )
        return {"positives": _matrix(positives, "positives", (images, captions), "bool")}
    if images is None or captions is None:
        raise ArgumentError("the first axis of embeddings is of a known size; set it in the graph")
    if image_ids is None:
        check_image_ids(None, images, captions)
        return {"diagonal": True}
    if callable(image_ids):
        raise ArgumentError(
            "the third argument is image_ids; give a matcher by its name, matcher=..."
        )
    if is_concrete(image_ids):
        image_ids = check_image_ids(to_numpy(image_ids), images, captions)
        if images == captions and (image_ids == np.arange(images)).all():
            return {"diagonal": True}
    rows = ops.convert_to_tensor(image_ids, "int32")
    if tuple(rows.shape) != (captions,):
        raise ArgumentError(
            f"image_ids is the row of the image of each of the {captions} captions, not of "
            f"shape {tuple(rows.shape)}"
        )
    return {"image_ids": rows}


def with_positives(checked: Relations, images: Any, captions: Any) -> Relations:
    """Makes `positives`, boolean (N, M), and `pairs`, where each caption has one image.

    Args:
        checked: What `checked_matches` returns, and other relations.
        images: N.
        captions: M.
    """
    if "positives" in checked:
        return checked
    relations = dict(checked)
    if "diagonal" in relations:
        # PyTorch alone computes all of it in each call.
        is_kept = backend() == "torch" and is_concrete(None) and not in_inference_mode()
        make = _kept_diagonal if is_kept else _diagonal
        return relations | make(captions, default_device())
    rows, columns = relations.pop("image_ids"), ops.arange(captions, dtype="int32")
    relations["positives"] = ops.equal(ops.arange(images, dtype="int32")[:, None], rows[None, :])
    return relations | {"pairs": ops.stack([rows, columns])}


def _diagonal(count: int, device: str) -> Relations:
    """Makes the relations of pairs in order; what is kept of them is kept for each device."""
    columns = ops.arange(count, dtype="int32")
    positives = ops.equal(columns[:, None], columns)
    return {"positives": positives, "pairs": ops.stack([columns, columns])}


_kept_diagonal = lru_cache(maxsize=16)(_diagonal)


def relevance_matrix(loss: str, relevance: object, shape: tuple[Any, ...]) -> Tensor:
    """Checks the relevance of captions to images, float32 (N, M).

    Raises:
        ArgumentError: If it is missing, of another shape, negative or not finite.
    """
    if relevance is None:
        raise ArgumentError(
            f"{loss} learns from how relevant captions are to images: give relevance, float "
            f"{shape}, such as keras_xmr.relevance.cider(captions, image_ids)"
        )
    matrix = _matrix(relevance, "relevance", shape, "float32")
    if is_concrete(matrix) and ops.convert_to_numpy(ops.amin(matrix)) < 0:
        raise ArgumentError("relevance is from 0 on, and some of it is negative")
    return matrix


def _matrix(values: object, name: str, shape: tuple[int | None, ...], dtype: str) -> Tensor:
    """Returns finite numbers of all images and captions, as a tensor of this shape."""
    if is_concrete(values):
        values = as_array(to_numpy(values), name)
        if values.dtype.kind not in "biuf" or not np.isfinite(values).all():
            raise ArgumentError(f"{name}: a matrix of finite numbers is needed, not {values.dtype}")
        if dtype == "bool" and not np.isin(values, (0, 1)).all():
            raise ArgumentError(
                f"{name} says of each pair whether it matches, true or false; the rows of images "
                "are image_ids"
            )
        if dtype == "bool" and values.size and not values.any():
            warnings.warn("positives: no pair of the batch matches", stacklevel=5)
    tensor = ops.convert_to_tensor(values, dtype)
    if tuple(tensor.shape) != shape:
        raise ArgumentError(
            f"{name} are of {shape[0]} images and {shape[1]} captions, so of shape {shape}, not "
            f"{tuple(tensor.shape)}"
        )
    return tensor
