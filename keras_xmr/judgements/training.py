"""Judgements for training: pairs that people have judged as relevant or wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import scipy.sparse

from keras_xmr.judgements.formats import read_csv
from keras_xmr.judgements.reading import CaptionNames, JudgementsError, add_grade, known_name

Pair = tuple[str, str]


@dataclass(frozen=True)
class JudgedPairs:
    """Judged pairs of the training split.

    Attributes:
        grades: The grade of each pair, by the names of image and caption.
        new_captions: Texts that are not captions of the data set yet, by the images that they are
            relevant for: a new key, and the text.
        left_out: Number of pairs of images or captions of other splits.
    """

    grades: dict[Pair, float]
    new_captions: dict[str, list[Pair]] = field(default_factory=dict)
    left_out: int = 0


def read_training_judgements(
    path: Path,
    image_keys: Sequence[str],
    captions: Sequence[Pair],
    other_images: Sequence[str] = (),
    other_captions: Sequence[str] = (),
) -> JudgedPairs:
    """Reads judgements of training pairs from a CSV file `image,caption,grade`.

    A caption is named by its id or its text. A text that is not a caption yet becomes one of every
    image that it is relevant for, as in feedback on searches.

    Args:
        path: The file, as `read_judgements` reads it.
        image_keys: The images of the training split.
        captions: Ids and texts of its captions.
        other_images: Images of other splits; their pairs are left out.
        other_captions: Ids of captions of other splits, likewise.

    Raises:
        JudgementsError: If the file cannot be read, an image or a caption is unknown, a grade is
            not a number from 0 on, or a pair has contradicting grades.
    """
    images, elsewhere = set(image_keys), (set(other_images), set(other_captions))
    names = CaptionNames(captions)
    judged, new = JudgedPairs({}), set()
    by_number: dict[tuple[str, int], float] = {}
    left_out = 0
    known = images | elsewhere[0], {id_ for id_, _ in captions} | elsewhere[1]
    for where, ids, grade in read_csv(path):
        image, caption = (known_name(*pair) for pair in zip(ids, known, strict=True))
        if image in elsewhere[0] or (caption in elsewhere[1] and caption not in names):
            left_out += 1
            continue
        if image not in images:
            raise JudgementsError(f"{where}: the data set has no image {image!r}")
        if caption not in names:
            if not _is_text(caption):
                raise JudgementsError(
                    f"{where}: {caption!r} is neither the id nor the text of a caption; a "
                    "new caption has letters alone, or several words"
                )
            new.add(caption)
        add_grade(judged.grades, (image, caption), grade, where, (image, caption))
        # Other lines may name the same caption by its id and by its text.
        for number in names.numbers(caption):
            add_grade(by_number, (image, number), grade, where, (image, caption))
    for (image, caption), grade in judged.grades.items():
        if caption in new and grade > 0:
            of_image = judged.new_captions.setdefault(image, [])
            of_image.append((f"{image}#judged-{len(of_image)}", caption))
    return JudgedPairs(judged.grades, judged.new_captions, left_out)


def _is_text(name: str) -> bool:
    return name.isalpha() or len(name.split()) > 1


class BatchGrades:
    """The grades of the judged pairs of a batch.

    Args:
        grades: By the names of image and caption.
        image_keys: The images of the split.
        captions: Ids and texts of its captions, new ones among them.
    """

    def __init__(
        self, grades: Mapping[Pair, float], image_keys: Sequence[str], captions: Sequence[Pair]
    ) -> None:
        names, rows = CaptionNames(captions), {key: row for row, key in enumerate(image_keys)}
        by_place = {
            (rows[image], number): grade
            for (image, caption), grade in grades.items()
            for number in names.numbers(caption)
        }
        top = max([1.0, *grades.values()])
        # Stored numbers are above 0, to distinguish a grade of 0 from a pair without judgement.
        places = np.array(list(by_place), np.int64).reshape(-1, 2).T
        codes = np.array([1 + grade / top for grade in by_place.values()], np.float32)
        self._codes = scipy.sparse.csr_array(
            (codes, (places[0], places[1])), shape=(len(image_keys), len(captions))
        )

    def __call__(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        """Grades of some images and captions by number.

        Returns:
            Float32 (images, captions) from 0 to 1; NaN for pairs that were not judged.
        """
        codes = self._codes[images][:, captions].toarray()
        grades: np.ndarray = np.where(codes > 0, codes - 1, np.nan).astype(np.float32)
        return grades
