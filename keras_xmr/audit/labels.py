"""Reads, merges and writes the labels of candidate pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import scipy.sparse

from keras_xmr.judgements import GroundTruth, Judgements, JudgementsError
from keras_xmr.judgements.formats import parse_grade
from keras_xmr.judgements.reading import known_name, read_rows, write_rows

Kind = Literal["right", "wrong", "unsure"]
Pair = tuple[int, int]
"""The numbers of an image and a caption."""

COLUMNS = ("image", "caption", "label", "grade")


@dataclass(frozen=True)
class Label:
    """A label of a pair.

    Attributes:
        kind: Right, wrong or unsure.
        grade: Its grade: above 0 if it is right, else 0.
    """

    kind: Kind
    grade: float = 0.0

    def __str__(self) -> str:
        return f"{self.kind} ({self.grade:g})" if self.kind == "right" else self.kind


def read_labels(path: Path, truth: GroundTruth) -> dict[Pair, Label]:
    """Reads labels from a CSV file with the columns `image,caption,label` and perhaps `grade`.

    A label is right, wrong or unsure. The grade of a pair that is right is 1 if it is empty.

    Args:
        path: The file, as the annotation page saves it.
        truth: Has the ids of the images and captions, as the columns name them.

    Raises:
        JudgementsError: If the file is not such a file, names an id that is not known, has a
            label or a grade that cannot be, or labels a pair twice and differently.
    """
    ids = {"image": truth.image_ids, "caption": truth.caption_ids}
    numbers = {kind: {id_: n for n, id_ in enumerate(known)} for kind, known in ids.items()}
    labels: dict[Pair, Label] = {}
    lines: dict[Pair, int] = {}
    for line, row in read_rows(path, COLUMNS[:3], ",".join(COLUMNS)):
        where = f"{path}:{line}"
        for kind, known in numbers.items():
            row[kind] = known_name(row[kind], known)
            if row[kind] not in known:
                raise JudgementsError(
                    f"{where}: unknown {kind} {row[kind]!r}; {len(known):,} are known, such as "
                    f"{ids[kind][0]!r}. Do the labels belong to this data set and split?"
                )
        pair = numbers["image"][row["image"]], numbers["caption"][row["caption"]]
        label = _label(row["label"].strip(), row.get("grade", "").strip(), where)
        if labels.setdefault(pair, label) != label:
            raise JudgementsError(
                f"{where}: image {row['image']!r} and caption {row['caption']!r} are labelled "
                f"{label} here, and {labels[pair]} in line {lines[pair]}; keep one of the two lines"
            )
        lines.setdefault(pair, line)
    return labels


def merge(
    old: Mapping[Pair, Label], new: Mapping[Pair, Label]
) -> tuple[dict[Pair, Label], dict[Pair, Label]]:
    """Adds new labels to old ones; where both label a pair, the new label counts.

    Returns:
        All labels, the old ones first; and the old labels of pairs with a changed label.
    """
    changed = {pair: label for pair, label in old.items() if new.get(pair, label) != label}
    return {**old, **new}, changed


def judged_pairs(
    judgements: Sequence[Judgements], labels: Mapping[Pair, Label]
) -> scipy.sparse.csr_array:
    """The pairs that are judged already, as in `find_candidates`.

    A pair is right if any of the judgements says so, unless a label says otherwise. A pair that
    partial judgements call wrong is judged, too. A pair labelled unsure is not a
    candidate again: it is treated as wrong.

    Args:
        judgements: One or several of the same shape.
        labels: The labels that have been made.

    Returns:
        Sparse float32 (images, captions); a stored 0 says that a pair is not right.
    """
    grades = judgements[0].grades
    for other in judgements[1:]:
        grades = grades.maximum(other.grades)
    partial = [each.judged for each in judgements if each.judged is not None]
    if partial:
        known = scipy.sparse.coo_array(sum(partial[1:], start=partial[0]))
        pairs = np.stack(known.coords, axis=1)
        grades = _replaced(grades, pairs, np.asarray(grades[known.coords]).ravel())
    return _apply_labels(grades, labels)


def write_labels(path: Path, labels: Mapping[Pair, Label], truth: GroundTruth) -> None:
    """Writes labels so that `read_labels` gives the same again."""
    images, captions = truth.image_ids, truth.caption_ids
    rows = (
        (images[i], captions[c], label.kind, _number(label.grade) if label.grade else "")
        for (i, c), label in labels.items()
    )
    write_rows(path, COLUMNS, rows)


def write_judgements(path: Path, labels: Mapping[Pair, Label], truth: GroundTruth) -> None:
    """Writes annotated judgements, amended by labels, so that `read_judgements` can read them.

    A pair that is labelled wrong has grade 0; one labelled unsure is not changed.

    Args:
        path: The file: `image,caption,grade`, by image and then by caption.
        labels: The labels.
        truth: The judgements before, with the ids of images and captions.
    """
    decided = {pair: label for pair, label in labels.items() if label.kind != "unsure"}
    grades = _apply_labels(truth.judgements.grades, decided)
    rows = (
        (truth.image_ids[i], truth.caption_ids[c], _number(grade))
        for i, c, grade in zip(*grades.tocoo().coords, grades.data, strict=True)
    )
    write_rows(path, ("image", "caption", "grade"), rows)


def _label(kind: str, grade: str, where: str) -> Label:
    if kind not in get_args(Kind):
        raise JudgementsError(
            f"{where}: the label is {kind!r}; it should be {', '.join(get_args(Kind))}"
        )
    value = parse_grade(grade, where) if grade else float(kind == "right")
    if (value > 0) != (kind == "right"):
        raise JudgementsError(
            f"{where}: a pair that is {kind} has the grade {grade}; right pairs have a grade above "
            "0, and other pairs none"
        )
    return Label(kind, value)  # type: ignore[arg-type]


def _apply_labels(
    grades: scipy.sparse.csr_array, labels: Mapping[Pair, Label]
) -> scipy.sparse.csr_array:
    """Replaces the grades of labelled pairs; a grade of 0 is stored."""
    pairs = np.array(list(labels), np.int64).reshape(-1, 2)
    return _replaced(grades, pairs, np.array([label.grade for label in labels.values()]))


def _replaced(
    grades: scipy.sparse.csr_array, pairs: np.ndarray, values: np.ndarray
) -> scipy.sparse.csr_array:
    """Replaces the grades of some pairs (pairs, 2); a grade of 0 is stored."""
    known = np.stack(grades.tocoo().coords, axis=1)
    kept = ~np.isin(*(np.ravel_multi_index(places.T, grades.shape) for places in (known, pairs)))
    places = np.concatenate([known[kept], pairs])
    merged = scipy.sparse.csr_array(
        (np.concatenate([grades.data[kept], values]), tuple(places.T)),
        shape=grades.shape,
        dtype=np.float32,
    )
    merged.sort_indices()
    return merged


def _number(grade: float) -> str:
    """The shortest text that gives the same float32 again."""
    return str(np.format_float_positional(np.float32(grade), trim="-"))
