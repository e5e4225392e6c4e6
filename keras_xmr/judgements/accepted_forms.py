"""The forms in which functions take judgements: rows of images, matrices, and `Judgements`."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike

from keras_xmr.judgements.relation import Judgements
from keras_xmr.utils.errors import ArgumentError
from keras_xmr.utils.foreign_arrays import as_array


def check_image_ids(image_ids: ArrayLike | None, images: int, captions: int) -> np.ndarray:
    """Checks the image of each caption; returns it as int64 (captions,).

    Args:
        image_ids: The row of each caption's image, from 0; None if caption i is of image i.
        images: Number of images.
        captions: Number of captions.

    Raises:
        ArgumentError: If it is not a valid image of every caption.
    """
    if image_ids is None:
        if images != captions:
            raise ArgumentError(
                f"{images} images and {captions} captions: give image_ids, the row of each "
                "caption's image, such as [0, 0, 1] for two captions of image 0 and one of image 1"
            )
        return np.arange(images)
    rows = as_array(image_ids, "image_ids")
    if rows.shape == (images,) and images > captions and rows.dtype.kind in "iu":
        raise ArgumentError(
            f"image_ids has {images} numbers, one per caption, and there are {images} images and "
            f"{captions} captions: the sides look transposed. Images come first, and scores are "
            "(images, captions)"
        )
    if rows.shape != (captions,) or not np.issubdtype(rows.dtype, np.integer):
        hint = ""
        if rows.dtype.kind in "OSTU":
            hint = (
                ". np.unique(ids, return_inverse=True) numbers ids that are texts, in the order of "
                "its first array"
            )
        raise ArgumentError(
            f"image_ids is the row of the image of each of the {captions} captions: whole "
            f"numbers of shape ({captions},), not {rows.dtype} of shape {rows.shape}{hint}"
        )
    outside = np.flatnonzero((rows < 0) | (rows >= images))
    if len(outside):
        first = outside[0]
        raise ArgumentError(
            f"image_ids[{first}] is {rows[first]}, but there are {images} images, with the rows "
            f"0 to {images - 1}"
        )
    return rows.astype(np.int64)


def as_judgements(judgements: Any, shape: tuple[int, ...]) -> Judgements:
    """Converts judgements in any of the supported forms.

    Args:
        judgements: `Judgements`; the row of each caption's image, int (captions,); a matrix
            (images, captions) of grades, or of true and false, dense or sparse, where NaN is a
            pair that was not judged; or None if caption i is of image i.
        shape: Images, captions.

    Raises:
        ArgumentError: If it has another form or shape.
    """
    if len(shape) != 2:
        raise ArgumentError(f"scores are a matrix (images, captions), not of shape {tuple(shape)}")
    images, captions = shape
    if not isinstance(judgements, Judgements):
        if judgements is None or as_array(judgements, "judgements").ndim == 1:
            rows = check_image_ids(judgements, images, captions)
            return Judgements.from_pairs(rows, images)
        judgements = _convert_matrix(judgements)
    if judgements.shape != (images, captions):
        hint = ""
        if judgements.shape == (captions, images):
            hint = ": the scores look transposed, they are (images, captions)"
        raise ArgumentError(
            f"scores of {images} images and {captions} captions, but judgements of shape "
            f"{judgements.shape}{hint}"
        )
    return judgements


def _convert_matrix(grades: object) -> Judgements:
    if not scipy.sparse.issparse(grades):
        grades = as_array(grades, "judgements")
        if grades.ndim != 2 or grades.dtype.kind not in "biuf":
            raise ArgumentError(
                "judgements are Judgements, the row of each caption's image, or a matrix (images, "
                f"captions) of grades, not {grades.dtype} of shape {grades.shape}"
            )
    try:
        if isinstance(grades, np.ndarray) and (judged := ~np.isnan(grades)).sum() < grades.size:
            pairs, shape = np.argwhere(judged), (grades.shape[0], grades.shape[1])
            return Judgements.from_grades(pairs, grades[judged], shape, fully_judged=False)
        return Judgements(scipy.sparse.csr_array(grades))
    except ValueError as error:
        raise ArgumentError(f"judgements: {error}") from None
