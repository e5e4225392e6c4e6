"""Human judgements of pairs of Flickr8K's test photos and captions, by number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from model_answers import SplitAnswers

from keras_xmr.judgements import Judgements
from keras_xmr.judgements.formats import read_ratings
from keras_xmr.utils.errors import UserError


@dataclass(frozen=True)
class Judged:
    """The judged pairs of one kind of people.

    Attributes:
        images: The number of the image of each pair, int (pairs,).
        captions: The number of the caption of each pair.
        values: Scores of the experts (pairs, 3), or votes of the crowd, yes and no (pairs, 2).
        grades: The grade of each pair, 0 is wrong, int (pairs,).
        own: Whether the caption was written for the image, bool (pairs,).
        shape: Images, captions.
    """

    images: np.ndarray
    captions: np.ndarray
    values: np.ndarray
    grades: np.ndarray
    own: np.ndarray
    shape: tuple[int, int]

    @property
    def right(self) -> np.ndarray:
        """True for relevant pairs, bool (pairs,)."""
        return self.grades > 0

    @property
    def spread(self) -> np.ndarray:
        """Disagreement of the people on each pair: the standard deviation, (pairs,)."""
        if self.values.shape[1] == 3:
            return self.values.std(axis=1)
        share = self.values[:, 0] / self.values.sum(axis=1)
        return np.sqrt(share * (1 - share))

    def relation(self, grades: np.ndarray | None = None) -> Judgements:
        """The judgements of these pairs alone, or other grades of them."""
        pairs = np.stack([self.images, self.captions], axis=1)
        values = self.grades if grades is None else grades
        return Judgements.from_grades(pairs, values, self.shape, fully_judged=False)

    def mean_per_query(self, values: np.ndarray, side: str, kept: np.ndarray) -> np.ndarray:
        """The mean of values of pairs over each image or caption; NaN where it has no pair.

        Args:
            values: A value of each pair (pairs,).
            side: "image" or "caption".
            kept: Which pairs count, bool (pairs,).
        """
        queries = (self.images if side == "image" else self.captions)[kept]
        count = self.shape[side == "caption"]
        sums = np.bincount(queries, values[kept], minlength=count)
        sizes = np.bincount(queries, minlength=count)
        return np.divide(sums, sizes, out=np.full(count, np.nan), where=sizes > 0)


def known_pairs(ratings: Any, images: Sequence[Any], captions: Sequence[Any]) -> np.ndarray:
    """Which ratings are of these images and captions, and of which, int (pairs, 3).

    Args:
        ratings: Ratings of pairs of ids.
        images: Ids of images.
        captions: Ids of captions.
    """
    rows, columns = ({str(id_): n for n, id_ in enumerate(ids)} for ids in (images, captions))
    found = [
        (number, rows[image], columns[caption])
        for number, (image, caption) in enumerate(ratings.pairs)
        if image in rows and caption in columns
    ]
    return np.array(found, int).reshape(-1, 3)


def read_judged(path: Path, test: SplitAnswers) -> Judged:
    """The judgements of a file, as far as they are of the images and captions of a split.

    Raises:
        UserError: If there are none.
    """
    ratings = read_ratings(path)
    kept, rows, columns = known_pairs(ratings, test.image_ids, test.caption_ids).T
    if not len(kept):
        raise UserError(f"{path} judges none of the photos and captions of the test split")
    return Judged(
        rows,
        columns,
        ratings.values[kept],
        ratings.grades()[kept],
        test.caption_image[columns] == rows,
        (len(test.image_ids), len(test.caption_ids)),
    )
