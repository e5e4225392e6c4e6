"""Reads files of judgements."""

from __future__ import annotations

import csv
import itertools
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import scipy.sparse

from data_pipelines.files import NO_ARRAY
from data_pipelines.json_entries import fault
from keras_xmr.judgements.benchmarks import (
    EXTENDED_COCO,
    OWN,
    Layout,
    extended_coco,
    find_layout,
)
from keras_xmr.judgements.flickr8k import is_flickr8k, read_grades
from keras_xmr.judgements.reading import (
    CaptionNames,
    JudgementsError,
    known_name,
    read_rows,
    reading,
)
from keras_xmr.judgements.relation import Judgements
from keras_xmr.judgements.trec import is_qrels, read_qrels

_COLUMNS = ("image", "caption")
_NOTHING_WRONG = (
    "has no wrong pairs, so nothing can be measured if all other pairs are left out; use "
    "`unjudged: wrong`"
)
_SMALLEST, _LARGEST = 1e-30, 1e30


Unjudged = Literal["left_out", "wrong", "wrong_in_pool"]
"""The treatment of pairs that a file does not name: not judged, wrong, or wrong if the file names
both their image and their caption in any pairs."""


def find_judgements(
    source: str,
    image_ids: Sequence[str],
    caption_ids: Sequence[str],
    texts: Sequence[str] = (),
    unjudged: Unjudged | None = None,
) -> Judgements:
    """Judgements by a name or from a file.

    Args:
        source: "eccv_caption" or "cxc", or a file as `read_judgements` takes.
        image_ids: The ids of the images.
        caption_ids: The ids of the captions.
        texts: The texts of the captions, if known.
        unjudged: See `read_judgements`.
    """
    if source not in EXTENDED_COCO:
        return read_judgements(Path(source), image_ids, caption_ids, texts, unjudged)
    if unjudged not in (None, "wrong"):
        raise JudgementsError(f"{source!r} {_NOTHING_WRONG}")
    return extended_coco(source, image_ids, caption_ids)


def read_judgements(
    path: Path,
    image_ids: Sequence[str],
    caption_ids: Sequence[str],
    texts: Sequence[str] = (),
    unjudged: Unjudged | None = None,
) -> Judgements:
    """Reads judgements from a file.

    A CSV file has the columns `image,caption` and perhaps `grade`, a row per judged pair,
    in any order; a grade of 0 means that a pair is wrong, as its omission does by default. A
    caption is named by its id, or by its text, which names all captions with this text. A column
    `caption_id` names captions in place of the column `caption`. A `.npz` file is a sparse matrix
    (images, captions) of `scipy.sparse.save_npz`.

    Files of public benchmarks are supported: the annotations of CIRCO (`val.json`), and the CSV
    files of HierarCaps, INQUIRE and Marqo-GS, which are recognised by their columns. Judgements
    beyond these images and captions are left out, and of several grades of a pair the highest
    counts. Captions are named by the id of the query in CIRCO and INQUIRE, and by their text in
    the others; images by COCO's ids in CIRCO and HierarCaps. The two files of Flickr8K's human
    judgements are supported too, see `keras_xmr.judgements.flickr8k`, and so are qrels of TREC,
    see `keras_xmr.judgements.trec`.

    Args:
        path: The file.
        image_ids: The ids of the images, as the column `image` names them.
        caption_ids: The ids of the captions.
        texts: The texts of the captions, if known.
        unjudged: The treatment of pairs that the file does not name; see `Unjudged`. By default
            "left_out" for Flickr8K's files, and "wrong" for all others.

    Raises:
        JudgementsError: If the file has another format, an unknown id, a grade that is not a
            number from 0 on, contradicting grades of a pair, or no relevant pair; or a benchmark
            has none of the images and captions; or pairs that are not named are to be left out
            and no pair is named as wrong.
    """
    unjudged = unjudged or ("left_out" if is_flickr8k(path) else "wrong")
    judgements = _read(path, image_ids, caption_ids, texts, unjudged == "wrong")
    if unjudged == "wrong_in_pool":
        judgements = judgements.with_pool_wrong()
    if judgements.judged is not None and judgements.judged.nnz == judgements.grades.nnz:
        raise JudgementsError(f"{path} {_NOTHING_WRONG}")
    return check_some_right(path, judgements)


def check_some_right(path: Path, judgements: Judgements) -> Judgements:
    """Refuses judgements without a relevant pair: every metric of them would be 0.

    Raises:
        JudgementsError: If no pair is relevant.
    """
    if not judgements.grades.nnz:
        raise JudgementsError(
            f"{path} has no relevant pair, so nothing can be measured; it needs rows with a grade "
            "above 0, or no column grade"
        )
    return judgements


def _read(
    path: Path,
    image_ids: Sequence[str],
    caption_ids: Sequence[str],
    texts: Sequence[str],
    fully_judged: bool,
) -> Judgements:
    if path.suffix == ".npz":
        return _read_matrix(path, (len(image_ids), len(caption_ids)), fully_judged)
    is_benchmark = path.suffix == ".json" or is_flickr8k(path) or is_qrels(path)
    if is_benchmark or _layout(path) is not OWN:
        return _read_benchmark(path, image_ids, caption_ids, fully_judged)
    images = {id_: number for number, id_ in enumerate(image_ids)}
    captions = CaptionNames(list(zip(caption_ids, texts or caption_ids, strict=True)))
    graded: dict[tuple[int, int], float] = {}
    for line, ids, grade in read_csv(path):
        image = images.get(known_name(ids[0], images))
        numbers = ([] if image is None else [image], captions.numbers(ids[1]))
        for kind, id_, places, known in zip(
            _COLUMNS, ids, numbers, (image_ids, caption_ids), strict=True
        ):
            if not places:
                first = ", ".join(map(repr, known[:3]))
                raise JudgementsError(
                    f"{path}:{line}: unknown {kind} {id_!r}; there are {len(known):,}, the first "
                    f"{first}"
                )
        for key in itertools.product(*numbers):
            if graded.setdefault(key, grade) != grade:
                raise JudgementsError(
                    f"{path}:{line}: image {ids[0]!r} and caption {ids[1]!r} are judged "
                    f"{graded[key]:g} above and {grade:g} here; keep one of the two lines"
                )
    pairs = np.array(list(graded), np.int64).reshape(-1, 2)
    grades = np.array(list(graded.values()))
    return Judgements.from_grades(pairs, grades, (len(image_ids), len(caption_ids)), fully_judged)


def _read_benchmark(
    path: Path, image_ids: Sequence[str], caption_ids: Sequence[str], fully_judged: bool
) -> Judgements:
    """Judgements of a benchmark, restricted to these images and captions."""
    image_of = {id_: number for number, id_ in enumerate(image_ids)}
    caption_of = {id_: number for number, id_ in enumerate(caption_ids)}
    grades: dict[tuple[int, int], float] = {}
    example = ("none", "none")
    rows: Iterator[tuple[int, tuple[str, str], float]]
    if is_flickr8k(path):
        rows = read_grades(path)
    elif is_qrels(path):
        rows = read_qrels(path, image_ids, caption_ids)
    else:
        rows = _read_circo(path) if path.suffix == ".json" else read_csv(path)
    for _, example, grade in rows:
        image, caption = image_of.get(example[0]), caption_of.get(example[1])
        if image is not None and caption is not None:
            grades[image, caption] = max(grade, grades.get((image, caption), 0.0))
    if not grades:
        raise JudgementsError(
            f"{path} has none of the images and captions, such as {image_ids[0]!r} "
            f"and {caption_ids[0]!r}; it has, for instance, {example[0]!r} and {example[1]!r}"
        )
    shape = (len(image_ids), len(caption_ids))
    pairs, values = np.array(list(grades)), np.array(list(grades.values()))
    return Judgements.from_grades(pairs, values, shape, fully_judged)


def _read_circo(path: Path) -> Iterator[tuple[int, tuple[str, str], float]]:
    """The relevant pairs of CIRCO, as `read_csv` yields them.

    A query is an image and a text on the wanted changes (Baldrati et al. 2023); its id is that of
    the annotation in `annotations/val.json`. The test split has no answers.
    """
    with reading(path, "JSON"):
        content = json.loads(path.read_bytes())
    try:
        for number, annotation in enumerate(content):
            for image in annotation["gt_img_ids"]:
                yield number, (str(image), str(annotation["id"])), 1.0
    except (KeyError, TypeError) as error:
        raise JudgementsError(
            f"{path} has no annotations of CIRCO's validation split: {fault(error)}"
        ) from None


def _layout(path: Path) -> Layout:
    """The layout of a CSV file; errors of reading it are raised when it is read."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return find_layout(next(csv.reader(file), []))
    except (OSError, UnicodeDecodeError, csv.Error):
        return OWN


def _read_matrix(path: Path, shape: tuple[int, int], fully_judged: bool) -> Judgements:
    try:
        matrix = scipy.sparse.csr_array(scipy.sparse.load_npz(path), dtype=np.float32)
        matrix.check_format(full_check=True)
    except FileNotFoundError:
        raise JudgementsError(f"{path} does not exist") from None
    except (*NO_ARRAY, KeyError, TypeError, AttributeError) as error:
        raise JudgementsError(
            f"{path} is not a sparse matrix of scipy.sparse.save_npz ({error})"
        ) from None
    if matrix.shape != shape:
        raise JudgementsError(
            f"{path} judges {matrix.shape[0]:,} images and {matrix.shape[1]:,} captions, but "
            f"there are {shape[0]:,} and {shape[1]:,}"
        )
    pairs = np.stack([np.repeat(np.arange(shape[0]), np.diff(matrix.indptr)), matrix.indices], 1)
    try:
        return Judgements.from_grades(pairs, matrix.data, shape, fully_judged)
    except ValueError as error:
        raise JudgementsError(f"{path}: {error}") from None


def read_csv(path: Path) -> Iterator[tuple[int, tuple[str, str], float]]:
    """Yields the line, the ids of image and caption, and the grade of every row of a CSV file.

    Ids keep the blanks around them: `known_name` finds the id that is meant.

    Raises:
        JudgementsError: If the file has no columns `image,caption`, or those of a benchmark, or a
            row is malformed.
    """
    layout = _layout(path)
    for line, row in read_rows(path, (layout.image, layout.caption)):
        grade = row.get(layout.grade)
        number = 1.0 if grade is None else parse_grade(grade, f"{path}:{line}")
        image, caption = row[layout.image], row[layout.caption]
        if layout is OWN:
            yield line, (image, row.get("caption_id", caption)), number
            continue
        for each in layout.captions(caption.strip()):
            yield line, (layout.image_id(image.strip()), each), number


def parse_grade(text: str, where: str) -> float:
    """A grade as a number from 0 on; `where` names the line in messages."""
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
