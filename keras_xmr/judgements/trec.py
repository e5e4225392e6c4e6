"""Files of TREC: judgements (qrels), and the lines of runs."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from keras_xmr.judgements.formats import Row
from keras_xmr.judgements.reading import JudgementsError, first_line, read_lines
from keras_xmr.judgements.relation import Judgements
from keras_xmr.utils.files import atomic_write


def is_qrels(path: Path) -> bool:
    """Recognises qrels by the first line: four words, the last of them a number."""
    words = first_line(path).split()
    return len(words) == 4 and words[3].removeprefix("-").isdecimal()


def read_qrels(path: Path, image_ids: Iterable[str], caption_ids: Iterable[str]) -> Iterator[Row]:
    """Yields file and line, the ids of image and caption, and the grade of every judged pair.

    A negative grade marks a pair as not judged, as in trec_eval.

    Args:
        path: The file.
        image_ids: The ids of the images.
        caption_ids: The ids of the captions.

    Raises:
        JudgementsError: If a line is malformed, or the queries are not all images or all captions.
    """
    ids = frozenset(image_ids), frozenset(caption_ids)
    for line, turned, words in read_trec_pairs(path, 4, "query 0 document grade", *ids):
        query, _, document, grade = words
        where = f"{path}:{line}"
        if not grade.removeprefix("-").isdecimal() or len(grade) > 10:
            raise JudgementsError(f"{where}: the grade {grade[:20]!r} is not a whole number")
        if int(grade) >= 0:
            yield where, (document, query) if turned else (query, document), float(grade)


def write_qrels(
    path: Path, judgements: Judgements, query_ids: Sequence[str], document_ids: Sequence[str]
) -> None:
    """Writes judgements as qrels: the judged pairs, with a grade of 0 where they are wrong.

    If every pair was judged, only the relevant ones are written: trec_eval takes the others for
    wrong, except for bpref.

    Args:
        path: The file.
        judgements: The judgements, of queries as rows: `judgements.transpose()` for captions.
        query_ids: The id of each row.
        document_ids: The id of each column.

    Raises:
        JudgementsError: If a grade is not a whole number, or an id has blanks.
    """
    check_ids([*query_ids, *document_ids])
    grades = judgements.queries()
    if not np.array_equal(grades.data, np.round(grades.data)):
        raise JudgementsError(f"{path.name}: qrels have whole numbers as grades; round them")
    pairs = grades if judgements.judged is None else judgements.judged
    mask = judgements.image_query_mask
    rows = np.repeat(np.arange(pairs.shape[0]), np.diff(pairs.indptr))
    known = np.asarray(grades[rows, pairs.indices]).ravel().astype(int)
    lines = [
        f"{query_ids[row]} 0 {document_ids[column]} {grade}\n"
        for row, column, grade in zip(rows.tolist(), pairs.indices.tolist(), known, strict=True)
        if mask is None or mask[row]
    ]
    atomic_write(path, "".join(lines).encode("utf-8"))


def read_trec_lines(path: Path, count: int, layout: str) -> Iterator[tuple[int, list[str]]]:
    """Yields the number and the words of every line of a file of TREC that is not blank.

    Args:
        path: The file.
        count: Number of words of a line.
        layout: Meaning of the words, for messages.

    Raises:
        JudgementsError: If the file cannot be read, or a line has more or fewer words.
    """
    for number, line in read_lines(path, f"`{layout}`"):
        words = line.split()
        if len(words) != count:
            raise JudgementsError(
                f"{path}:{number}: {len(words)} words, expected {count}: `{layout}`. Ids have no "
                "blanks in files of TREC"
            )
        yield number, words


def read_trec_pairs(
    path: Path, count: int, layout: str, images: Container[str], captions: Container[str]
) -> Iterator[tuple[int, bool, list[str]]]:
    """Yields the number, whether captions are the queries, and the words, of every line.

    The first and the third word are query and document. Lines that fit one direction alone decide.

    Args:
        path: The file.
        count: Number of words of a line.
        layout: Meaning of the words, for messages.
        images: The ids of the images.
        captions: The ids of the captions.

    Raises:
        JudgementsError: As `read_trec_lines`; also if some queries are images and others captions,
            or every line fits both directions.
    """
    turned, decided = None, 0
    undecided: list[tuple[int, list[str]]] = []
    for number, words in read_trec_lines(path, count, layout):
        fits = _directions(words, images, captions)
        if len(fits) == 1 and turned is None:
            turned, decided = fits.pop(), number
            yield from ((line, turned, pair) for line, pair in undecided)
        elif len(fits) == 1 and turned not in fits:
            item, other = (
                ("a caption", "an image") if turned is False else ("an image", "a caption")
            )
            raise JudgementsError(
                f"{path}:{number}: the query {words[0]!r} is {item}, but in line "
                f"{decided} it is {other}; write a file per direction"
            )
        if turned is None:
            undecided.append((number, words))
        else:
            yield number, turned, words
    if turned is not None:
        return
    for number, words in undecided:
        if words[0] != words[2] and len(_directions(words, images, captions)) == 2:
            raise JudgementsError(
                f"{path}:{number}: {words[0]!r} and {words[2]!r} are ids of images and of "
                "captions, so the queries may be either; give captions other ids than images"
            )
        yield number, True, words


def _directions(
    words: Sequence[str], images: Container[str], captions: Container[str]
) -> set[bool]:
    """Returns whether captions can be the queries: one answer, both, or none."""
    query, document = words[0], words[2]
    fits = {False} if query in images and document in captions else set()
    return fits | ({True} if query in captions and document in images else set())


def check_ids(ids: Iterable[str]) -> None:
    """Refuses ids that files of TREC cannot hold.

    Raises:
        JudgementsError: If an id has blanks, or is empty.
    """
    for id_ in ids:
        if id_.split() != [id_]:
            raise JudgementsError(
                f"the id {id_[:60]!r} has blanks, which files of TREC cannot hold; give captions "
                "ids without blanks, in CSV by a column caption_id"
            )
