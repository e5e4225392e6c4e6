"""Relevance judgements: a sparse, graded, many-to-many relation."""

from __future__ import annotations

import operator
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral

import numpy as np
import scipy.sparse

from keras_xmr.utils.errors import ArgumentError
from keras_xmr.utils.foreign_arrays import as_array

# Punctuation of Unicode that is part of a word: "c#", "R&B", "50%".
_SPOKEN = frozenset("#&%@_")

_ROWS = 256


@dataclass(frozen=True, eq=False)
class Judgements:
    """The relevance of captions to images, and its grade.

    An image can have any number of relevant captions, a caption any number of relevant images,
    including none. A pair is relevant (with a grade), wrong, or not judged: the pairs that `judged`
    leaves out. Without `judged`, every pair was judged, and those without a grade are wrong.

    Attributes:
        grades: Sparse float32 (images, captions), in rows; a stored number is above 0.
        image_query_mask: Bool (images,): the images that are queries. The others are candidates
            only. None for all.
        caption_query_mask: Bool (captions,): the same of captions.
        judged: Sparse bool (images, captions): the judged pairs. The relevant ones are added.
            None if every pair was judged.
    """

    grades: scipy.sparse.csr_array
    image_query_mask: np.ndarray | None = None
    caption_query_mask: np.ndarray | None = None
    judged: scipy.sparse.csr_array | None = None

    def __post_init__(self) -> None:
        grades = _checked_grades(self.grades)
        _check_mask(self.image_query_mask, grades.shape[0])
        _check_mask(self.caption_query_mask, grades.shape[1])
        object.__setattr__(self, "grades", grades)
        if self.judged is not None:
            object.__setattr__(self, "judged", _checked_judged(self.judged, grades))

    @classmethod
    def from_grades(
        cls,
        pairs: np.ndarray,
        grades: np.ndarray,
        shape: tuple[int, int],
        fully_judged: bool = True,
    ) -> Judgements:
        """Returns judgements from graded pairs.

        Args:
            pairs: Image and caption of each pair, int (pairs, 2); each pair once.
            grades: The grade per pair, from 0 (wrong) on: (pairs,).
            shape: Images, captions.
            fully_judged: Whether all other pairs are wrong. Otherwise they were not judged, and
                only images and captions with a judged pair are queries.

        Raises:
            ArgumentError: If pairs, grades and shape are not valid, or a pair is outside the shape.
        """
        pairs, grades, shape = _checked_pairs(pairs, grades, shape)
        places = (pairs[:, 0], pairs[:, 1])
        unique, counts = np.unique(pairs, axis=0, return_counts=True)
        if len(unique) < len(pairs):
            image, caption = unique[counts.argmax()]
            raise ArgumentError(
                f"image {image} and caption {caption} have {counts.max()} grades; give each pair "
                "one grade"
            )
        if len(grades) and not grades.min() >= 0:
            raise ArgumentError("a grade is below 0 or NaN; a wrong pair has the grade 0")
        try:
            graded = scipy.sparse.csr_array((grades, places), shape=shape)
        except ValueError as error:
            raise ArgumentError(f"judgements cannot be of shape {shape}: {error}") from None
        if fully_judged:
            return cls(graded)
        judged = scipy.sparse.csr_array((np.ones(len(pairs), bool), places), shape=shape)
        images, captions = (
            np.bincount(n, minlength=count) > 0 for n, count in zip(places, shape, strict=True)
        )
        return cls(graded, images, captions, judged)

    @classmethod
    def from_pairs(cls, image_of_caption: np.ndarray, num_images: int) -> Judgements:
        """Returns judgements in which every caption is relevant for the image that it was
        written for.

        Args:
            image_of_caption: The image of each caption, int (captions,).
            num_images: Number of images.

        Raises:
            ArgumentError: If the image of a caption does not exist.
        """
        rows = as_array(image_of_caption, "image_of_caption")
        if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
            raise ArgumentError(
                f"image_of_caption names an image for each caption, not {image_of_caption!r}"
            )
        captions = np.arange(len(rows))
        pairs = np.stack([rows, captions], axis=1)
        return cls.from_grades(pairs, np.ones(len(captions)), (num_images, len(captions)))

    @classmethod
    def from_classes(cls, image_classes: np.ndarray, caption_classes: np.ndarray) -> Judgements:
        """Returns judgements in which every caption of a class is relevant for every image
        of the class.

        Args:
            image_classes: The class of each image, int (images,).
            caption_classes: The class of each caption, int (captions,).

        Raises:
            ArgumentError: If there is not one class for each.
        """
        given = {"image_classes": image_classes, "caption_classes": caption_classes}
        images, captions = (as_array(classes, name) for name, classes in given.items())
        for name, classes in zip(given, (images, captions), strict=True):
            if classes.ndim != 1:
                raise ArgumentError(
                    f"{name} has one class for each item, a list, not shape {classes.shape}; for "
                    "several labels each, use Judgements.from_labels"
                )
            if classes.dtype.kind not in "biufU":
                raise ArgumentError(
                    f"{name} are numbers or texts, and each item has one, not {classes.dtype}"
                )
        names, numbers = np.unique(np.concatenate([images, captions]), return_inverse=True)
        members = multi_hot(numbers[:, None], len(names))
        return cls(members[: len(images)] @ members[len(images) :].T)

    @classmethod
    def from_texts(
        cls, texts: Sequence[str], image_of_caption: np.ndarray, num_images: int
    ) -> Judgements:
        """Returns judgements in which a caption is relevant for every image with a caption
        of its words.

        Args:
            texts: The captions; capitals, punctuation and the Unicode form (NFC, NFD) do not
                matter. Vowel signs, emoji and symbols, as in "c++" and "c#", do.
            image_of_caption: The image that each caption was written for, int (captions,).
            num_images: Number of images.

        Raises:
            ArgumentError: If there are more or fewer texts than captions with an image, or an
                image does not exist.
        """
        pairs = cls.from_pairs(image_of_caption, num_images)
        is_list = isinstance(texts, Iterable) and not isinstance(texts, str)
        if not is_list or not all(isinstance(text, str) for text in texts):
            raise ArgumentError("texts must be a list of captions, not one text or other values")
        if len(texts) != pairs.shape[1]:
            given = f"{len(texts):,} texts"
            raise ArgumentError(
                f"{given}, but image_of_caption names the image of {pairs.shape[1]:,} captions; "
                "give both for the same captions"
            )
        names, number = np.unique([_words(text) for text in texts], return_inverse=True)
        same = multi_hot(number[:, None], len(names))
        grades = pairs.grades @ same @ same.T
        grades.data[:] = 1
        return cls(grades)

    @classmethod
    def from_labels(
        cls, image_labels: scipy.sparse.sparray, caption_labels: scipy.sparse.sparray, zeta: int
    ) -> Judgements:
        """Returns plausible matches: label vectors that differ in at most zeta entries.

        Items without any label match none, as in the released code (Chun et al. 2021, Sec. 4.1).

        Args:
            image_labels: Label vectors of 0 and 1, sparse (images, labels); see `multi_hot`.
            caption_labels: The same of captions, (captions, labels). A caption has the labels
                of its image.
            zeta: The number of entries in which they may differ.

        Raises:
            ArgumentError: If the labels are no matrices of one width, or zeta is no number.
        """
        for labels in (image_labels, caption_labels):
            is_matrix = getattr(labels, "ndim", 0) == 2 and labels.dtype.kind in "biuf"
            values = scipy.sparse.csr_array(labels).data if is_matrix else np.array([np.nan])
            if not np.isin(values, (0, 1)).all() or labels.shape[1] != image_labels.shape[1]:
                raise ArgumentError(
                    "image_labels and caption_labels are matrices of 0 and 1, (items, labels) with "
                    "the same labels, such as multi_hot makes"
                )
        if not isinstance(zeta, Integral) or zeta < 0:
            raise ArgumentError(f"zeta is a whole number from 0 on, not {zeta!r}")
        images = scipy.sparse.csr_array(image_labels, dtype=np.int32)
        captions = scipy.sparse.csr_array(caption_labels, dtype=np.int32).T.tocsc()
        image_sizes, caption_sizes = images.sum(axis=1), captions.sum(axis=0)
        known = caption_sizes > 0
        blocks = []
        for first in range(0, images.shape[0], _ROWS):
            rows = slice(first, first + _ROWS)
            shared = (images[rows] @ captions).toarray()
            differ = image_sizes[rows, None] + caption_sizes - 2 * shared
            match = (differ <= zeta) & known & (image_sizes[rows, None] > 0)
            blocks.append(scipy.sparse.csr_array(match.astype(np.float32)))
        return cls(scipy.sparse.vstack(blocks, format="csr"))

    @property
    def shape(self) -> tuple[int, int]:
        """Images, captions."""
        return self.grades.shape

    @property
    def fully_judged(self) -> bool:
        """True if every pair was judged, so that pairs without a grade are wrong."""
        return self.judged is None

    def with_pool_wrong(self) -> Judgements:
        """Returns the same, with pairs of the pool that were not judged as wrong ones.

        The pool has all images and all captions of which any pair was judged.
        """
        if self.judged is None:
            return self
        images, captions = (
            np.bincount(places, minlength=count) > 0
            for places, count in zip(self.judged.nonzero(), self.shape, strict=True)
        )
        pool = scipy.sparse.csr_array(images[:, None]) @ scipy.sparse.csr_array(captions[None])
        return Judgements(self.grades, self.image_query_mask, self.caption_query_mask, pool)

    def with_annotated(self, image_of_caption: np.ndarray) -> Judgements:
        """Returns the same, with annotated pairs as relevant ones.

        An annotated pair that was judged relevant keeps its grade; the others get the highest
        grade. Pairs of images or captions that are not queries, since no pair of them was judged,
        stay unchanged.

        Args:
            image_of_caption: The image that each caption was written for, int (captions,).
        """
        captions = np.arange(len(image_of_caption))
        if self.caption_query_mask is not None:
            captions = captions[self.caption_query_mask]
        if self.image_query_mask is not None:
            captions = captions[self.image_query_mask[image_of_caption[captions]]]
        image_of_caption = image_of_caption[captions]
        given = np.asarray(self.grades[image_of_caption, captions]).ravel()
        added = np.where(given > 0, 0, self.grades.data.max() if self.grades.nnz else 1.0)
        pairs = np.stack([image_of_caption, captions], axis=1)
        grades = self.grades + Judgements.from_grades(pairs, added, self.shape).grades
        return Judgements(grades, self.image_query_mask, self.caption_query_mask, self.judged)

    def transpose(self) -> Judgements:
        """Returns the same with captions as rows and images as columns."""
        return Judgements(
            self.grades.T.tocsr(),
            self.caption_query_mask,
            self.image_query_mask,
            None if self.judged is None else self.judged.T.tocsr(),
        )

    def counts(self) -> np.ndarray:
        """Returns the number of relevant captions per image, int (images,)."""
        return np.diff(self.grades.indptr)

    def candidate_counts(self) -> np.ndarray:
        """Returns the number of judged captions per image, int (images,)."""
        if self.judged is None:
            return np.full(self.shape[0], self.shape[1])
        return np.diff(self.judged.indptr)

    def queries(self) -> scipy.sparse.csr_array:
        """Returns the grades of the images that are queries: sparse (images, captions)."""
        if self.image_query_mask is None:
            return self.grades
        mask = scipy.sparse.dia_array(
            (self.image_query_mask[None].astype(np.float32), [0]), shape=(self.shape[0],) * 2
        )
        rows = (mask @ self.grades).tocsr()
        rows.eliminate_zeros()
        return rows

    def select(self, images: np.ndarray, captions: np.ndarray) -> Judgements:
        """Returns the judgements of some images and captions, in their order."""
        return Judgements(
            self.grades[images][:, captions],
            None if self.image_query_mask is None else self.image_query_mask[images],
            None if self.caption_query_mask is None else self.caption_query_mask[captions],
            None if self.judged is None else self.judged[images][:, captions],
        )


def _checked_grades(grades: scipy.sparse.csr_array) -> scipy.sparse.csr_array:
    """Returns grades as a matrix in rows, without pairs that have none."""
    try:
        if np.iscomplexobj(grades):
            raise ArgumentError("grades are real numbers, not complex ones")
        matrix = scipy.sparse.csr_array(grades, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"grades are a sparse matrix (images, captions): {error}") from None
    if matrix.ndim != 2:
        raise ArgumentError(f"grades are a matrix (images, captions), not {matrix.shape}")
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    if matrix.nnz and not 0 < matrix.data.min() <= matrix.data.max() < np.inf:
        raise ArgumentError("a grade is below 0, infinite or NaN; wrong pairs have no grade")
    return matrix


def _check_mask(mask: np.ndarray | None, count: int) -> None:
    if mask is not None and np.shape(mask) != (count,):
        raise ArgumentError(f"a mask of shape {np.shape(mask)} is not one of {count} queries")
    if mask is not None and np.asarray(mask).dtype != bool:
        raise ArgumentError(
            "a mask has True or False for each query, not numbers; of row numbers, make one by "
            "np.isin(np.arange(queries), rows)"
        )


def _checked_judged(
    judged: scipy.sparse.csr_array, grades: scipy.sparse.csr_array
) -> scipy.sparse.csr_array:
    """Returns the judged pairs as a matrix in rows, with the relevant ones."""
    try:
        matrix = scipy.sparse.csr_array(judged, dtype=bool)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"judged pairs are a sparse matrix: {error}") from None
    if matrix.shape != grades.shape:
        raise ArgumentError(f"grades of shape {grades.shape}, judged pairs of {matrix.shape}")
    matrix = (matrix + (grades > 0)).tocsr()
    matrix.eliminate_zeros()
    return matrix


def _checked_pairs(
    pairs: np.ndarray, grades: np.ndarray, shape: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray, tuple[int, int]]:
    try:
        pairs, grades = np.asarray(pairs), np.asarray(grades)
        if grades.size and grades.dtype.kind not in "biuf":
            raise TypeError(f"grades are numbers, not {grades.dtype}")
        grades = grades.astype(np.float32)
        images, captions = map(operator.index, shape)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"pairs, their grades and the shape do not fit: {error}") from None
    is_whole = pairs.dtype.kind in "iu" or not pairs.size
    if grades.ndim != 1 or pairs.shape != (len(grades), 2) or not is_whole:
        raise ArgumentError(
            "pairs are whole numbers (pairs, 2), and each has a grade, but there are "
            f"{pairs.dtype} of shape {pairs.shape} and grades of shape {grades.shape}"
        )
    if pairs.size and (pairs.min() < 0 or (pairs.max(axis=0) >= (images, captions)).any()):
        raise ArgumentError(
            f"a pair is not of {images} images and {captions} captions; numbers begin at 0"
        )
    return pairs.astype(np.int64), grades, (images, captions)


def multi_hot(labels: Sequence[Sequence[int]] | np.ndarray, count: int) -> scipy.sparse.csr_array:
    """Returns label vectors of 0 and 1.

    Args:
        labels: The labels of each item, as numbers from 0.
        count: Number of labels.

    Returns:
        Sparse float32 (items, count).
    """
    starts = np.concatenate([[0], np.cumsum([len(n) for n in labels])]).astype(np.int64)
    columns = np.concatenate([np.asarray(n, np.int64) for n in labels] or [np.empty(0, int)])
    ones = np.ones(len(columns), np.float32)
    matrix = scipy.sparse.csr_array((ones, columns, starts), shape=(len(labels), count))
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return matrix


def _words(text: str) -> str:
    """Returns the words of a caption without capitals and punctuation, in Unicode's form NFC."""
    text = unicodedata.normalize("NFC", text)
    text = unicodedata.normalize("NFC", text.casefold())
    # Not `\w`: vowel signs of Hindi and Thai are marks, and an emoji is a symbol.
    kept = "".join(" " if _is_punctuation(character) else character for character in text)
    return " ".join(kept.split()) or text


def _is_punctuation(character: str) -> bool:
    """Returns whether a character says nothing; "#", "&" and the like are read as words."""
    if character in _SPOKEN:
        return False
    return character in "`\u00b4" or unicodedata.category(character).startswith("P")
