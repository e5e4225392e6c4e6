"""Learning from the marks of photos of an index."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from keras_xmr.judgements.formats import read_csv
from keras_xmr.judgements.reading import known_name, one_line
from keras_xmr.search.learning import MOST, Change, Choice, Learned, Marked, choose, fit, forget
from keras_xmr.search.photo_index import PhotoIndex
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.vectors import chunks, concatenate, unit_rows

_BATCH = 64


@dataclass(frozen=True)
class Report:
    """Summary of learning from marks.

    Attributes:
        marks: Number of marks.
        right: Number of marks as right.
        queries: Number of marked queries.
        unknown: Names of marked photos that the index does not have.
        choice: The choice of cross-validation; None without marks.
    """

    marks: int
    right: int
    queries: int
    unknown: tuple[str, ...]
    choice: Choice | None

    @property
    def is_learned(self) -> bool:
        """Whether searches changed."""
        return self.choice is not None and self.choice.penalty is not None


def learn(index: PhotoIndex, model: Any, path: Path) -> Report:
    """Learns from a file of marks, and replaces an earlier result.

    Without an improvement on held-out marks, searches are those of the model.

    Args:
        index: The index.
        model: Its model.
        path: CSV with the columns `image,caption,grade`: a path under the folder of the photos, a
            query, and 0 if the photo is wrong.

    Raises:
        UserError: If the file cannot be read, or queries of this model are not single vectors.
    """
    if index.kind not in ("point", "gaussian"):
        raise UserError(
            f"{index.path} has embeddings of the kind {index.kind!r}; marks change embeddings of "
            "one vector, points or Gaussians"
        )
    marks, unknown = _read(path, {photo.path: photo.id for photo in index.photos()})
    if not marks:
        forget(index.path)
        return Report(0, 0, 0, unknown, None)
    texts = list(dict.fromkeys(text for _, text in marks))
    photos = list(dict.fromkeys(id_ for id_, _ in marks))
    queries = concatenate([model.embed_texts(batch) for batch in chunks(texts, _BATCH)])
    gallery = index.embeddings(photos)
    photo_rows, text_rows = ({item: n for n, item in enumerate(items)} for items in (photos, texts))
    photo_of = np.array([photo_rows[id_] for id_, _ in marks])
    query_of = np.array([text_rows[text] for _, text in marks])
    right = np.array(list(marks.values())) > 0
    query_units, photo_units = (
        unit_rows(np.asarray(each["mean"], np.float64)[:, : model.compared])
        for each in (queries, gallery)
    )
    marked = Marked(query_units, photo_units, query_of, photo_of, right)

    def score(change: Change | None) -> np.ndarray:
        changed = queries if change is None else change.apply(queries)
        return np.asarray(model.score(gallery, changed)[photo_of, query_of])

    choice = choose(marked, score)
    if choice.penalty is None:
        forget(index.path)
    else:
        change = fit(marked, choice.penalty, choice.sharpness)
        Learned(change, index.fingerprint, len(marks)).save(index.path)
    return Report(len(marks), int(right.sum()), len(texts), unknown, choice)


def _read(
    path: Path, known: dict[str, int]
) -> tuple[dict[tuple[int, str], float], tuple[str, ...]]:
    """Reads the last grade of each pair of a photo and a query, and the names of unknown photos."""
    marks: dict[tuple[int, str], float] = {}
    unknown: dict[str, None] = {}
    for _, (image, text), grade in read_csv(path):
        name = known_name(image, known)
        if name in known:
            pair = known[name], one_line(text)
            marks.pop(pair, None)
            marks[pair] = grade
        else:
            unknown[name] = None
    return dict(list(marks.items())[-MOST:]), tuple(unknown)
