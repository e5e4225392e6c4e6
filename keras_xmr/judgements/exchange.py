"""Judgements and runs of other programs: nested dictionaries, rows of data sets, BEIR folders.

ranx, ir_measures and pytrec_eval take judgements as `{query: {document: grade}}` (qrels) and scores
as `{query: {document: score}}` (a run).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from keras_xmr.judgements.formats import Row, parse_grade
from keras_xmr.judgements.reading import (
    JudgementsError,
    first_line,
    read_lines,
    reading,
)
from keras_xmr.judgements.relation import Judgements
from keras_xmr.utils.directions import DIRECTIONS
from keras_xmr.utils.errors import ArgumentError
from keras_xmr.utils.files import atomic_write
from keras_xmr.utils.json_entries import fault, identifier, parse_json, string

Direction = Literal["image_to_text", "text_to_image"]
"""Which side the queries are: images, or captions."""

Qrels = dict[str, dict[str, int | float]]
"""Grades by query and document."""

_LOGGER = logging.getLogger(__name__)
_BEIR = ("query-id", "corpus-id", "score")


def to_qrels(
    judgements: Judgements,
    image_ids: Sequence[object],
    caption_ids: Sequence[object],
    direction: Direction = "text_to_image",
) -> Qrels:
    """Converts judgements to grades by query and document, as ranx and ir_measures take them.

    If every pair was judged, the relevant ones are listed alone; otherwise wrong ones have the
    grade 0. Grades that are whole numbers become `int`.

    Args:
        judgements: The judgements (images, captions).
        image_ids: The id of each image.
        caption_ids: The id of each caption.
        direction: "text_to_image" if captions are queries, "image_to_text" if images are.

    Raises:
        ArgumentError: If there are more or fewer ids than items, an id occurs twice, or the
            direction is another.
    """
    relation, queries, documents = _of_queries(judgements, image_ids, caption_ids, direction)
    grades = relation.queries()
    pairs = grades if relation.judged is None else relation.judged
    mask, qrels = relation.image_query_mask, Qrels()
    for row, query in enumerate(queries):
        columns = pairs.indices[pairs.indptr[row] : pairs.indptr[row + 1]]
        if not len(columns) or (mask is not None and not mask[row]):
            continue
        known = np.asarray(grades[row, columns].todense()).ravel().tolist()
        qrels[query] = {
            documents[column]: int(grade) if grade.is_integer() else grade
            for column, grade in zip(columns.tolist(), known, strict=True)
        }
    return qrels


def from_qrels(
    qrels: object,
    image_ids: Sequence[object],
    caption_ids: Sequence[object],
    direction: Direction = "text_to_image",
    *,
    fully_judged: bool = True,
) -> Judgements:
    """Makes judgements of grades by query and document.

    Pairs of other images and captions are left out, and a negative grade marks a pair as not
    judged, as in trec_eval.

    Args:
        qrels: `{query: {document: grade}}`; an object with `to_dict()`, such as `ranx.Qrels`; rows
            with `query-id`, `corpus-id` and `score`, such as a split of a data set of Hugging Face
            in the form of BEIR and MTEB; or `Qrel`s of ir_measures.
        image_ids: The id of each image; numbers are compared as texts.
        caption_ids: The id of each caption.
        direction: "text_to_image" if captions are queries, "image_to_text" if images are.
        fully_judged: Whether pairs without a grade are wrong; otherwise they were not judged.

    Raises:
        ArgumentError: If a row has another form, a pair has two grades, a grade is not a finite
            number, or no pair is of these images and captions.
    """
    images, captions = numbers_of_ids(image_ids, "image"), numbers_of_ids(caption_ids, "caption")
    turned = is_turned(direction)
    grades: dict[tuple[int, int], float] = {}
    count = 0
    for query, document, grade in entries(qrels):
        count += 1
        image, caption = (document, query) if turned else (query, document)
        if image not in images or caption not in captions or grade < 0:
            continue
        pair = images[image], captions[caption]
        if grades.setdefault(pair, grade) != grade:
            raise ArgumentError(f"{query!r} and {document!r} have two grades; keep one of them")
    if not grades:
        raise ArgumentError(
            f"none of {count:,} judgements is of these images and captions, such as "
            f"{next(iter(images), None)!r} and {next(iter(captions), None)!r}; queries are "
            f"{'captions' if turned else 'images'}: see `direction`"
        )
    pairs = np.array(list(grades), np.int64)
    shape = (len(images), len(captions))
    return Judgements.from_grades(pairs, np.array(list(grades.values())), shape, fully_judged)


@dataclass(frozen=True)
class Beir:
    """A split of a BEIR folder.

    Attributes:
        judgements: The judgements (images, captions).
        image_ids: The ids of the images.
        caption_ids: The ids of the captions.
        texts: The texts of the captions.
    """

    judgements: Judgements
    image_ids: list[str]
    caption_ids: list[str]
    texts: list[str]


def write_beir(
    folder: Path | str,
    judgements: Judgements,
    image_ids: Sequence[object],
    caption_ids: Sequence[object],
    texts: Sequence[str],
    direction: Direction = "text_to_image",
    split: str = "test",
) -> list[Path]:
    """Writes `corpus.jsonl`, `queries.jsonl` and `qrels/<split>.tsv`, as BEIR has them.

    Images have their id and an empty text.

    Args:
        folder: The folder; it is created.
        judgements: The judgements (images, captions).
        image_ids: The id of each image.
        caption_ids: The id of each caption.
        texts: The text of each caption.
        direction: "text_to_image" if captions are queries and images the corpus.
        split: The name of the split.

    Returns:
        The files.

    Raises:
        ArgumentError: As `to_qrels`; also if there are more or fewer texts than captions, an id
            has a tab or a line break, or a grade is not a whole number.
    """
    qrels = to_qrels(judgements, image_ids, caption_ids, direction)
    if len(texts) != len(caption_ids):
        raise ArgumentError(f"{len(caption_ids)} captions, but {len(texts)} texts")
    images = [{"_id": str(id_), "title": "", "text": ""} for id_ in image_ids]
    captions = [
        {"_id": str(id_), "title": "", "text": text}
        for id_, text in zip(caption_ids, texts, strict=True)
    ]
    queries, corpus = (captions, images) if is_turned(direction) else (images, captions)
    lines = ["\t".join(_BEIR)]
    for query, documents in qrels.items():
        for document, grade in documents.items():
            if not isinstance(grade, int):
                raise ArgumentError(f"BEIR has whole numbers as grades, not {grade}; round them")
            for id_ in (query, document):
                if "\t" in id_ or len(id_.splitlines()) != 1:
                    raise ArgumentError(f"the id {id_!r} has a tab or a line break")
            lines.append(f"{query}\t{document}\t{grade}")
    folder = Path(folder)
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    contents = {
        folder / "corpus.jsonl": map(json.dumps, corpus),
        folder / "queries.jsonl": map(json.dumps, queries),
        folder / "qrels" / f"{split}.tsv": lines,
    }
    for path, content in contents.items():
        atomic_write(path, "".join(f"{line}\n" for line in content).encode("utf-8"))
    return list(contents)


def read_beir(
    folder: Path | str,
    direction: Direction = "text_to_image",
    split: str = "test",
    *,
    fully_judged: bool = True,
) -> Beir:
    """Reads a split of a folder of BEIR.

    All of the corpus are candidates. `queries.jsonl` has the queries of all splits; the judged ones
    of this split are read. Judgements of ids that these files lack are left out, with a warning.

    Args:
        folder: The folder.
        direction: "text_to_image" if captions are queries and images the corpus.
        split: The name of the split.
        fully_judged: Whether pairs that the split does not name are wrong; otherwise they were not
            judged.

    Raises:
        JudgementsError: If a file is missing, a line is malformed, or an `_id` occurs twice.
        ArgumentError: As `from_qrels`.
    """
    folder, turned = Path(folder), is_turned(direction)
    rows = list(read_beir_qrels(folder / "qrels" / f"{split}.tsv"))
    judged = {ids[0] for _, ids, _ in rows}
    corpus = _documents(folder / "corpus.jsonl")
    queries = {id_: t for id_, t in _documents(folder / "queries.jsonl").items() if id_ in judged}
    images, captions = (corpus, queries) if turned else (queries, corpus)
    qrels: Qrels = {}
    for where, (query, document), grade in rows:
        if qrels.setdefault(query, {}).setdefault(document, grade) != grade:
            raise JudgementsError(f"{where}: {query!r} and {document!r} have another grade above")
    _warn_of_missing(folder / "queries.jsonl", judged - queries.keys(), "judged queries")
    documents = {ids[1] for _, ids, _ in rows}
    _warn_of_missing(folder / "corpus.jsonl", documents - corpus.keys(), "judged documents")
    ids = list(images), list(captions)
    judgements = from_qrels(qrels, *ids, direction, fully_judged=fully_judged)
    return Beir(judgements, *ids, list(captions.values()))


def is_beir(path: Path) -> bool:
    """Recognises qrels of BEIR by the first line."""
    return tuple(first_line(path).strip().split("\t")) == _BEIR


def read_beir_qrels(path: Path) -> Iterator[Row]:
    """Yields file and line, query and document, and the grade of every line of qrels of BEIR.

    Raises:
        JudgementsError: If the file cannot be read, or a line is malformed.
    """
    layout = "<TAB>".join(_BEIR)
    for number, line in read_lines(path, f"`{layout}`"):
        fields = line.rstrip("\r").split("\t")
        where = f"{path}:{number}"
        if len(fields) != 3:
            raise JudgementsError(f"{where}: {len(fields)} fields, expected 3: `{layout}`")
        if tuple(fields) != _BEIR:
            yield where, (fields[0], fields[1]), parse_grade(fields[2], where)


def _documents(path: Path) -> dict[str, str]:
    """Returns the text of every id, the title before the text."""
    texts: dict[str, str] = {}
    lines: dict[str, int] = {}
    for number, line in read_lines(path, "JSON lines with _id and text"):
        with reading(path, "JSON lines"):
            entry = parse_json(line)
        try:
            id_ = identifier(entry["_id"])
            words = [string("" if (v := entry.get(k)) is None else v) for k in ("title", "text")]
        except (AttributeError, KeyError, TypeError) as error:
            raise JudgementsError(f"{path}:{number}: no `_id` and `text`: {fault(error)}") from None
        if (first := lines.setdefault(id_, number)) != number:
            raise JudgementsError(f"{path}:{number}: the `_id` {id_!r} is in line {first} too")
        texts[id_] = " ".join(words).strip()
    return texts


def _warn_of_missing(path: Path, ids: Collection[str], item: str) -> None:
    """Warns of ids that a file lacks."""
    if ids:
        _LOGGER.warning(
            "%d %s are not in %s, such as %r, and are left out", len(ids), item, path, min(ids)
        )


def is_turned(direction: str) -> bool:
    """Returns whether captions are the queries.

    Raises:
        ArgumentError: If the direction is not one of both.
    """
    if direction not in DIRECTIONS:
        raise ArgumentError(f"direction is one of {DIRECTIONS}, not {direction!r}")
    return direction == "text_to_image"


def numbers_of_ids(ids: Sequence[object], item: str) -> dict[str, int]:
    """Returns the number of each id, as a text, in order.

    Raises:
        ArgumentError: If an id occurs twice.
    """
    numbers = {str(id_): number for number, id_ in enumerate(ids)}
    if len(numbers) < len(ids):
        raise ArgumentError(f"two {item}s have the same id")
    return numbers


def _of_queries(
    judgements: Judgements,
    image_ids: Sequence[object],
    caption_ids: Sequence[object],
    direction: str,
) -> tuple[Judgements, list[str], list[str]]:
    """Returns the judgements with queries as rows, and the ids of queries and documents."""
    ids = [list(numbers_of_ids(image_ids, "image")), list(numbers_of_ids(caption_ids, "caption"))]
    if (found := tuple(map(len, ids))) != judgements.shape:
        raise ArgumentError(f"judgements of shape {judgements.shape}, but ids of {found}")
    if is_turned(direction):
        return judgements.transpose(), ids[1], ids[0]
    return judgements, ids[0], ids[1]


def entries(given: object, value: str = "relevance") -> Iterator[tuple[str, str, float]]:
    """Yields query, document and number of qrels or a run, in any of the supported forms.

    Args:
        given: Nested dictionaries, an object with `to_dict()` that has them, or rows.
        value: The attribute of the number in rows of ir_measures: "relevance" or "score".

    Raises:
        ArgumentError: If it has another form, or a number is not finite.
    """
    columns = getattr(given, "column_names", None)  # A data set of Hugging Face is rows.
    if columns is None and hasattr(given, "to_dict"):
        given = given.to_dict()
    if isinstance(given, Mapping):
        for query, values in given.items():
            if not isinstance(values, Mapping):
                raise ArgumentError(
                    f"{{query: {{document: {value}}}}} is expected, or the rows of one split, but "
                    f"{query!r} has a {type(values).__name__}"
                )
            yield from ((str(query), str(d), _finite(number)) for d, number in values.items())
    elif isinstance(given, Iterable) and not isinstance(given, str):
        for row in given:
            query, document, number = _row(row, value)
            yield str(query), str(document), _finite(number)
    else:
        raise ArgumentError(f"dictionaries or rows are expected, not a {type(given).__name__}")


def _row(row: object, value: str) -> tuple[Any, Any, Any]:
    names = _BEIR if isinstance(row, Mapping) else ("query_id", "doc_id", value)
    try:
        query, document, number = (
            row[name] if isinstance(row, Mapping) else getattr(row, name) for name in names
        )
    except (AttributeError, KeyError):
        raise ArgumentError(
            f"a row has {', '.join(_BEIR)}, or query_id, doc_id, {value}, not {str(row)[:80]}"
        ) from None
    return query, document, number


def _finite(given: Any) -> float:
    try:
        number = float(given)
    except (TypeError, ValueError):
        number = np.nan
    if not np.isfinite(number):
        raise ArgumentError(f"a grade or a score is a finite number, not {given!r}")
    return number
