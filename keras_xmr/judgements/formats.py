"""Formats of files of judgements: CSV, public benchmarks, and Flickr8K's human judgements."""

from __future__ import annotations

import csv
import json
import logging
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from keras_xmr.judgements.reading import (
    JudgementsError,
    first_line,
    read_lines,
    read_rows,
    reading,
)
from keras_xmr.judgements.relation import Judgements
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.installing import install_command
from keras_xmr.utils.json_entries import fault

_LOGGER = logging.getLogger(__name__)
_SMALLEST, _LARGEST = 1e-30, 1e30

Row = tuple[str, tuple[str, str], float]
"""File and line of a judged pair, its image and its caption, and its grade."""

Unjudged = Literal["left_out", "wrong", "wrong_in_pool"]
"""The treatment of pairs that a file does not name: not judged, wrong, or wrong if the file names
both their image and their caption in any pairs."""


@dataclass(frozen=True)
class Layout:
    """The columns of a CSV file of judgements.

    Attributes:
        image: The column of the image, or of another retrieved item.
        caption: The column of the caption, or of its id.
        grade: The column of the grade; without it, every row is relevant.
        image_id: From the text of the image to its id.
        captions: From the text of the caption to the captions that it contains.
    """

    image: str
    caption: str
    grade: str = "grade"
    image_id: Callable[[str], str] = str
    captions: Callable[[str], Sequence[str]] = lambda text: [text]


def _coco_id(url: str) -> str:
    """Returns COCO's id of an image, from the name of its file; other names as they are."""
    match = re.search(r"(?:^|[/_])0*(\d+)\.jpg$", url)
    return match[1] if match else url


def _levels(hierarchy: str) -> list[str]:
    """Returns the captions of a hierarchy, the most general one first."""
    return [level.strip() for level in hierarchy.split("=>")]


STANDARD = Layout("image", "caption")

BENCHMARKS = (
    # HierarCaps (Alper and Averbuch-Elor 2024), data/hierarcaps_test.csv: id,captions,image_url,
    # where captions are "bird => blue bird => blue bird sitting on top of branch => ...".
    Layout("image_url", "captions", image_id=_coco_id, captions=_levels),
    # INQUIRE (Vendrow et al. 2024), inquire_annotations.csv: a row per relevant image of a query;
    # the texts of queries are in inquire_queries_*.csv.
    Layout("image_path", "query_id"),
    # Marqo-GS (Zhu et al. 2024), query_0_product_id_0.csv and the three like it: grades from 1
    # to 100.
    Layout("product_id", "query", "score_linear"),
)


def find_layout(path: Path) -> Layout:
    """Returns the layout of a CSV file by its first line: `STANDARD`, unless it is of a
    benchmark.
    """
    try:
        header = set(next(csv.reader([first_line(path)]), []))
    except csv.Error:
        return STANDARD  # An error when the file is read.
    layouts = (STANDARD, *BENCHMARKS)
    return next((one for one in layouts if {one.image, one.caption} <= header), STANDARD)


def read_csv(path: Path) -> Iterator[Row]:
    """Yields file and line, the ids of image and caption, and the grade of every row of a CSV file.

    Ids keep the blanks around them: `known_name` finds the id that is meant.

    Raises:
        JudgementsError: If the file has no columns `image,caption`, or of a benchmark, or a
            row is malformed.
    """
    layout = find_layout(path)
    for line, row in read_rows(path, (layout.image, layout.caption)):
        where, grade = f"{path}:{line}", row.get(layout.grade)
        number = 1.0 if grade is None else parse_grade(grade, where)
        image, caption = row[layout.image], row[layout.caption]
        if layout is STANDARD:
            yield where, (image, row.get("caption_id", caption)), number
            continue
        for each in layout.captions(caption.strip()):
            yield where, (layout.image_id(image.strip()), each), number


def parse_grade(text: str, where: str) -> float:
    """Returns a grade as a number from 0 on; `where` names the line in messages."""
    try:
        # Python reads 1_0 as 10.
        grade = math.nan if "_" in text else float(text)
    except ValueError:
        grade = math.nan
    # Grades are stored in float32, where others become infinite, or 0.
    if grade != 0 and not _SMALLEST <= grade <= _LARGEST:
        raise JudgementsError(
            f"{where}: the grade is {text!r}; a grade is 0 (wrong) or a number from "
            f"{_SMALLEST:g} to {_LARGEST:g}"
        )
    return grade


def read_circo(path: Path) -> Iterator[Row]:
    """Yields the relevant pairs of CIRCO.

    A query is an image and a text on the wanted changes (Baldrati et al. 2023); it has the id of
    the annotation in `annotations/val.json`. The test split has no answers.

    Raises:
        JudgementsError: If the file cannot be read, or has no such annotations.
    """
    with reading(path, "JSON"):
        content = json.loads(path.read_bytes())
    try:
        for annotation in content:
            for image in annotation["gt_img_ids"]:
                yield str(path), (str(image), str(annotation["id"])), 1.0
    except (KeyError, TypeError) as error:
        raise JudgementsError(
            f"{path} has no annotations of CIRCO's validation split: {fault(error)}"
        ) from None


EXTENDED_COCO = ("eccv_caption", "cxc")
"""ECCV Caption (Chun et al. 2022) and Crisscrossed Captions (Parekh et al. 2021)."""


def extended_coco(
    name: str, image_ids: Sequence[str | int], caption_ids: Sequence[str | int]
) -> Judgements:
    """Returns extended judgements of images and captions of COCO's test split (Karpathy's 5,000).

    The files come with the package `eccv_caption`. Only the judged images and captions are
    queries: 1,261 images and 1,332 captions in ECCV Caption. All are candidates. Relevant items
    outside of the candidates are left out: two captions of ECCV Caption are not in the test split.

    Args:
        name: One of `EXTENDED_COCO`.
        image_ids: COCO's ids of the images.
        caption_ids: COCO's ids of the captions.

    Raises:
        UserError: If the package is not installed, or the ids are not in COCO's test
            split.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # A warning about the missing `ujson`.
            from eccv_caption import Metrics
    except ImportError:
        raise UserError(
            f"the judgements {name!r} come with the package eccv_caption, which is not "
            f"installed; {install_command('eccv')}"
        ) from None
    files = Metrics()
    relation = files.eccv_gts if name == "eccv_caption" else files.cxc_gts
    image_ids, caption_ids = list(map(str, image_ids)), list(map(str, caption_ids))
    image_of = {id_: number for number, id_ in enumerate(image_ids)}
    caption_of = {id_: number for number, id_ in enumerate(caption_ids)}
    # Pairs of which both ends are queries are the same in both directions: one relation holds both.
    pairs = {(str(i), str(c)) for i, captions in relation["i2t"].items() for c in captions}
    pairs |= {(str(i), str(c)) for c, images in relation["t2i"].items() for i in images}
    places = [(image_of[i], caption_of[c]) for i, c in pairs if i in image_of and c in caption_of]
    if not places:
        raise UserError(
            f"the judgements {name!r} name none of the images and captions: they are for COCO's "
            f"test split and use COCO's ids, such as image {next(iter(relation['i2t']))} and "
            f"caption {next(iter(relation['t2i']))}, but there are {image_ids[0]!r} and "
            f"{caption_ids[0]!r}"
        )
    shape = (len(image_ids), len(caption_ids))
    right = Judgements.from_grades(np.array(places), np.ones(len(places)), shape)
    return Judgements(
        right.grades,
        _query_mask(relation["i2t"], image_ids),
        _query_mask(relation["t2i"], caption_ids),
    )


def _query_mask(queries: Mapping[int, Sequence[int]], ids: Sequence[str | int]) -> np.ndarray:
    names = set(map(str, queries))
    return np.array([id_ in names for id_ in ids])


_RATINGS = (
    "`photo<TAB>caption id<TAB>s1<TAB>s2<TAB>s3` with scores from 1 to 4 (ExpertAnnotations.txt), "
    "or `photo<TAB>caption id<TAB>share of yes<TAB>yes<TAB>no` (CrowdFlowerAnnotations.txt)"
)


def is_flickr8k(path: Path) -> bool:
    """Recognises these files by the first line: five columns, separated by tabs."""
    return first_line(path).count("\t") == 4


def read_grades(path: Path) -> Iterator[Row]:
    """Yields the photo, the caption id and the grade of the pairs that people rated in Flickr8K.

    By experts a pair is relevant if the median of their scores is 3 (minor mistakes, grade 1) or 4
    (describes the photo, grade 2). By the crowd it is relevant with more yes than no (grade 1), or
    without a no (grade 2); as many yes as no make it wrong. A pair that is in neither file was not
    judged, which does not make it wrong (Hodosh et al. 2013).

    Args:
        path: ExpertAnnotations.txt or CrowdFlowerAnnotations.txt, which differ in their columns.

    Raises:
        JudgementsError: If the file cannot be read, a line is malformed, or a pair is duplicate.
    """
    lines: dict[tuple[str, str], int] = {}
    by_experts, ties = None, 0
    for number, line in read_lines(path, _RATINGS):
        photo, _, rest = line.partition("\t")
        caption, *values = (field.strip() for field in rest.split("\t"))
        if by_experts is None:
            by_experts = _scores(values) is not None
        ratings = _scores(values) if by_experts else _votes(values)
        if ratings is None:
            text = " ".join(line.split())[:80]
            raise JudgementsError(f"{path}:{number}: {text!r} is not a line of {_RATINGS}")
        if (first := lines.setdefault((photo.strip(), caption), number)) != number:
            raise JudgementsError(
                f"{path}:{number}: the pair of {photo} and {caption} is in line {first} too"
            )
        if by_experts:
            grade = max(sorted(ratings)[1] - 2, 0)
        else:
            yes, no = ratings
            ties += yes == no
            grade = (yes > no) * (1 if no else 2)
        yield str(path), (photo.strip(), caption), float(grade)
    if not lines:
        raise JudgementsError(f"{path} has no lines; expected {_RATINGS}")
    if ties:
        _LOGGER.info("%s: %d pairs with as many yes as no count as wrong", path, ties)


def _scores(fields: Sequence[str]) -> tuple[int, ...] | None:
    """Returns scores of three experts; None if the fields are others."""
    is_scores = len(fields) == 3 and all(field in ("1", "2", "3", "4") for field in fields)
    return tuple(map(int, fields)) if is_scores else None


def _votes(fields: Sequence[str]) -> tuple[int, ...] | None:
    """Returns the numbers of yes and no, if the first field is the share of yes; None otherwise."""
    try:
        share, yes, no = float(fields[0]), int(fields[1]), int(fields[2])
    except (ValueError, IndexError):
        return None
    is_votes = len(fields) == 3 and min(yes, no) >= 0 and yes + no > 0
    return (yes, no) if is_votes and abs(share - yes / (yes + no)) < 1e-3 else None
