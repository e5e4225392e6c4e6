"""What counts as a right answer: a sparse, graded, many-to-many relation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse


@dataclass(frozen=True)
class Judgements:
    """Which captions are right for which images, and how right.

    An image can have any number of right captions, a caption any number of right images, and
    either may have none. Whatever is not named is wrong.

    Attributes:
        grades: Sparse float32 (images, captions), in rows; a stored number is above 0.
    """

    grades: scipy.sparse.csr_array

    def __post_init__(self) -> None:
        grades = scipy.sparse.csr_array(self.grades, dtype=np.float32)
        grades.sum_duplicates()
        grades.eliminate_zeros()
        if grades.nnz and grades.data.min() < 0:
            raise ValueError("a grade is below 0; what is wrong is not named at all")
        object.__setattr__(self, "grades", grades)

    @classmethod
    def from_pairs(cls, image_of_caption: np.ndarray, num_images: int) -> Judgements:
        """Every caption is right for the image that it was written for.

        Args:
            image_of_caption: The image of each caption, int (captions,).
            num_images: How many images there are.
        """
        captions = np.arange(len(image_of_caption))
        ones = np.ones(len(captions), np.float32)
        shape = (num_images, len(captions))
        return cls(scipy.sparse.csr_array((ones, (image_of_caption, captions)), shape=shape))

    @classmethod
    def from_classes(cls, image_classes: np.ndarray, caption_classes: np.ndarray) -> Judgements:
        """Every caption of a class is right for every image of the class.

        Args:
            image_classes: The class of each image, int (images,).
            caption_classes: The class of each caption, int (captions,).
        """
        names = np.unique(np.concatenate([image_classes, caption_classes]))

        def one_hot(classes: np.ndarray) -> scipy.sparse.csr_array:
            columns = np.searchsorted(names, classes)
            rows = np.arange(len(columns))
            ones = np.ones(len(rows), np.float32)
            shape = (len(rows), len(names))
            return scipy.sparse.csr_array((ones, (rows, columns)), shape=shape)

        return cls(one_hot(image_classes) @ one_hot(caption_classes).T)

    @property
    def shape(self) -> tuple[int, int]:
        """Images, captions."""
        return self.grades.shape

    def transpose(self) -> Judgements:
        """The same with captions as rows and images as columns."""
        return Judgements(self.grades.T.tocsr())

    def counts(self) -> np.ndarray:
        """How many right captions each image has, int (images,)."""
        return np.diff(self.grades.indptr)

    def select(self, images: np.ndarray, captions: np.ndarray) -> Judgements:
        """The judgements of some images and captions, in their order."""
        return Judgements(self.grades[images][:, captions])
