"""The human judgements of Flickr8K's test photos, as they were released (Hodosh et al. 2013).

A pair that is in neither file was not judged, which does not make it wrong.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from keras_xmr.judgements.reading import JudgementsError, first_line, read_lines

_LOGGER = logging.getLogger(__name__)
_LAYOUTS = (
    "`photo<TAB>caption id<TAB>s1<TAB>s2<TAB>s3` with scores from 1 to 4 (ExpertAnnotations.txt), "
    "or `photo<TAB>caption id<TAB>share of yes<TAB>yes<TAB>no` (CrowdFlowerAnnotations.txt)"
)


@dataclass(frozen=True, eq=False)
class Ratings:
    """Ratings of pairs of a photo and a caption by several people.

    Attributes:
        pairs: The photo and the id of the caption of each pair.
        values: Of experts the scores, from 1 (unrelated) to 4 (describes the photo), int
            (pairs, 3); of the crowd the number of yes and of no, int (pairs, 2).
    """

    pairs: list[tuple[str, str]]
    values: np.ndarray

    @property
    def by_experts(self) -> bool:
        """True for scores of experts, false for votes of the crowd."""
        return self.values.shape[1] == 3

    def grades(self) -> np.ndarray:
        """The grade of each pair, int (pairs,): 0 is wrong.

        By experts a pair is relevant if the median is 3 (minor mistakes, grade 1) or 4 (describes
        the photo, grade 2). By the crowd it is relevant with more yes than no (grade 1), or
        without a no (grade 2); as many yes as no make it wrong.
        """
        if self.by_experts:
            grades: np.ndarray = np.maximum(np.median(self.values, axis=1).astype(int) - 2, 0)
            return grades
        yes, no = self.values.T
        return (yes > no).astype(int) + ((yes > 0) & (no == 0))

    @property
    def ties(self) -> int:
        """The number of pairs with as many yes as no."""
        yes, no = self.values[:, 0], self.values[:, 1]
        return 0 if self.by_experts else int(np.count_nonzero(yes == no))


def is_flickr8k(path: Path) -> bool:
    """Recognises these files by the first line: five columns, separated by tabs."""
    return first_line(path).count("\t") == 4


def read_ratings(path: Path) -> Ratings:
    """Reads ExpertAnnotations.txt or CrowdFlowerAnnotations.txt, which differ in their columns.

    Raises:
        JudgementsError: If the file cannot be read, a line is malformed, or a pair is duplicate.
    """
    pairs: dict[tuple[str, str], int] = {}
    values: list[tuple[int, ...]] = []
    for number, line in read_lines(path, _LAYOUTS):
        fields = [field.strip() for field in line.split("\t")]
        ratings = _scores(fields[2:]) or _votes(fields[2:])
        if ratings is None or (values and len(ratings) != len(values[0])):
            raise JudgementsError(
                f"{path}:{number}: {' '.join(fields)[:80]!r} is not a line of {_LAYOUTS}"
            )
        if (first := pairs.setdefault((fields[0], fields[1]), number)) != number:
            raise JudgementsError(
                f"{path}:{number}: the pair of {fields[0]} and {fields[1]} is in line {first} too"
            )
        values.append(ratings)
    if not values:
        raise JudgementsError(f"{path} has no lines; expected {_LAYOUTS}")
    return Ratings(list(pairs), np.array(values))


def read_grades(path: Path) -> Iterator[tuple[int, tuple[str, str], float]]:
    """Yields a number, the photo and the caption id, and the grade of every judged pair."""
    ratings = read_ratings(path)
    if ratings.ties:
        _LOGGER.info("%s: %d pairs with as many yes as no count as wrong", path, ratings.ties)
    for number, (pair, grade) in enumerate(zip(ratings.pairs, ratings.grades(), strict=True)):
        yield number, pair, float(grade)


def _scores(fields: Sequence[str]) -> tuple[int, ...] | None:
    """Scores of three experts; None if the fields are others."""
    is_scores = len(fields) == 3 and all(field in ("1", "2", "3", "4") for field in fields)
    return tuple(map(int, fields)) if is_scores else None


def _votes(fields: Sequence[str]) -> tuple[int, ...] | None:
    """The numbers of yes and no, if the first field is the share of yes; None otherwise."""
    try:
        share, yes, no = float(fields[0]), int(fields[1]), int(fields[2])
    except (ValueError, IndexError):
        return None
    is_votes = len(fields) == 3 and min(yes, no) >= 0 and yes + no > 0
    return (yes, no) if is_votes and abs(share - yes / (yes + no)) < 1e-3 else None
