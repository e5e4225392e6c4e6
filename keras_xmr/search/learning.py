"""Learns a change of queries from relevance feedback: photos marked as right or wrong.

Photos keep their embeddings. A query of unit length q becomes

    q + sum over marked queries i of k(q, q_i) d_i,    k(q, q_i) = sign(c) |c|^s,  c = <q, q_i>,

at its former length, where d_i is a sum of embeddings of the photos marked for the query i. This is
kernel logistic regression of the marks with the kernel k(q, q') <v, v'>, for photos v, penalised
for its distance from the scores of the model: no marks, or an infinite penalty, leave the model
unchanged. It is fitted by one step of Newton's method, which has a closed form.

The sharpness of k and the penalty are chosen by cross-validation over the marked queries, with the
unchanged model among the choices.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from keras_xmr.utils.errors import UserError
from keras_xmr.utils.files import NO_ARRAY, locked, replace_atomically
from keras_xmr.utils.vectors import Arrays, unit_rows

PENALTIES = (1.0, 3.0, 10.0)
SHARPNESSES = (1.0, 2.0, 4.0)

FOLDS = 10
"""Number of folds of marked queries; with fewer queries, their number."""

MOST = 2000
"""Maximum number of marks; the last ones are used."""

LEARNED = "learned.npz"

MARKS = "judgements.csv"
"""The file of marks of the page, in the folder of the index."""

_VERSION = 1

_FIRST_SCALE, _FIRST_SHIFT, _PRIOR = 12.0, -6.0, 1e-2
"""The log-odds of a mark are about 12 cosine - 6 until marks say otherwise."""


@dataclass(frozen=True, eq=False)
class Marked:
    """Marks with the embeddings of their queries and photos.

    Attributes:
        queries: Unit vectors of the queries (M, C), float64, of the first C of the D numbers of an
            embedding, which compare items of one side, too.
        photos: Unit vectors of the photos (P, C), float64, of the same.
        query_of: The row of the query of each mark, int (N,).
        photo_of: The row of its photo, int (N,).
        right: Whether the photo is right, bool (N,).
    """

    queries: np.ndarray
    photos: np.ndarray
    query_of: np.ndarray
    photo_of: np.ndarray
    right: np.ndarray

    def part(self, kept: np.ndarray) -> Marked:
        """Selects marks, by bool (N,)."""
        pairs = self.query_of[kept], self.photo_of[kept], self.right[kept]
        return Marked(self.queries, self.photos, *pairs)


@dataclass(frozen=True, eq=False)
class Change:
    """A change of queries.

    Attributes:
        queries: Unit vectors of marked queries (M, C), float32, of the first C of D numbers.
        directions: The shift of queries that are similar to each of them (M, C), float32.
        sharpness: The exponent by which similar queries move further.
    """

    queries: np.ndarray
    directions: np.ndarray
    sharpness: float

    def apply(self, embedding: Arrays) -> dict[str, np.ndarray]:
        """Applies the change to embeddings of texts.

        Args:
            embedding: Points or Gaussians, with `mean` (N, D). Only the means change.
        """
        mean, compared = np.asarray(embedding["mean"]), self.queries.shape[1]
        exact = mean[:, :compared].astype(np.float64)
        length = np.linalg.norm(exact, axis=1, keepdims=True)
        rows = unit_rows(exact)
        moved = rows + _likeness(rows, self.queries, self.sharpness) @ self.directions
        changed = np.array(mean)
        changed[:, :compared] = length * unit_rows(moved)
        return {**embedding, "mean": changed}


@dataclass(frozen=True)
class Choice:
    """The choice of cross-validation.

    Shares are of pairs of a right and a wrong photo of one query, in the right order; means over
    the queries that have both.

    Attributes:
        penalty: Penalty of the change; None for no change.
        sharpness: See `Change`.
        before: The share by the model; NaN if no query has both kinds.
        after: The share with the change learned from other queries.
        queries: Number of queries with both kinds.
    """

    penalty: float | None
    sharpness: float
    before: float
    after: float
    queries: int


Score = Callable[[Change | None], np.ndarray]
"""From a change of queries, or none, to the scores of all marks (N,)."""


def choose(marked: Marked, score: Score) -> Choice:
    """Chooses sharpness and penalty by cross-validation over queries.

    A change is chosen only if it is better on held-out queries by more than a standard error over
    queries. Of the changes within a standard error of the best, the sharpest is chosen, since marks
    do not show the harm to queries that are unlike all of them.

    Args:
        marked: The marks.
        score: Scores the marks.
    """
    base = order_shares(marked, score(None))
    counted = np.flatnonzero(~np.isnan(base))
    before = float(base[counted].mean()) if len(counted) else float("nan")
    as_it_is = Choice(None, 1.0, before, before, len(counted))
    if len(counted) < 2:
        return as_it_is
    better = [(as_it_is, 0.0)]
    for sharpness, penalty in itertools.product(SHARPNESSES, PENALTIES):
        learned = partial(fit, penalty=penalty, sharpness=sharpness)
        held_out = score_held_out(marked, learned, score)
        gains = (order_shares(marked, held_out) - base)[counted]
        error = gains.std(ddof=1) / np.sqrt(len(gains))
        if gains.mean() > error:
            after = before + float(gains.mean())
            choice = Choice(penalty, sharpness, before, after, len(counted))
            better.append((choice, float(error)))
    best, error = max(better, key=lambda pair: pair[0].after)
    return max(
        (choice for choice, _ in better if choice.after >= best.after - error),
        key=lambda choice: (choice.sharpness, choice.after),
    )


def fit(marked: Marked, penalty: float, sharpness: float) -> Change:
    """Fits a change to marks.

    Args:
        marked: The marks.
        penalty: Penalty of the change.
        sharpness: See `Change`.
    """
    queries, photos = marked.queries[marked.query_of], marked.photos[marked.photo_of]
    right = marked.right.astype(np.float64)
    scale, log_odds = _log_odds(np.sum(queries * photos, axis=1), right)
    chance = expit(log_odds)
    weight = np.maximum(chance * (1 - chance), 1e-3)
    kernel = _likeness(queries, queries, sharpness) * (photos @ photos.T)
    kernel[np.diag_indices_from(kernel)] += penalty / weight
    dual = np.linalg.solve(kernel, (right - chance) / weight) / scale
    rows = np.unique(marked.query_of)
    directions = np.zeros((len(rows), photos.shape[1]))
    np.add.at(directions, np.searchsorted(rows, marked.query_of), dual[:, None] * photos)
    return Change(marked.queries[rows].astype(np.float32), directions.astype(np.float32), sharpness)


def score_held_out(
    marked: Marked, learn: Callable[[Marked], Any], score: Callable[[Any], np.ndarray]
) -> np.ndarray:
    """Scores the marks of each fold of queries by a result learned from the other folds, (N,).

    Args:
        marked: The marks.
        learn: Learns from some marks.
        score: Scores all marks by the result (N,).
    """
    drawn = np.random.default_rng(0).permutation(len(marked.queries))
    scores = np.empty(len(marked.right))
    for queries in np.array_split(drawn, min(FOLDS, len(drawn))):
        fold = np.isin(marked.query_of, queries)
        scores[fold] = score(learn(marked.part(~fold)))[fold]
    return scores


def order_shares(marked: Marked, scores: np.ndarray) -> np.ndarray:
    """The share of pairs of a right and a wrong photo in the right order, per query (M,).

    NaN for queries without both kinds; ties count half.
    """
    shares = np.full(len(marked.queries), np.nan)
    for row in np.unique(marked.query_of):
        is_row = marked.query_of == row
        right, wrong = scores[is_row & marked.right], scores[is_row & ~marked.right]
        if len(right) and len(wrong):
            gaps = right[:, None] - wrong
            shares[row] = np.mean((gaps > 0) + 0.5 * (gaps == 0))
    return shares


def _likeness(rows: np.ndarray, others: np.ndarray, sharpness: float) -> np.ndarray:
    cosines = rows @ np.asarray(others, np.float64).T
    return np.sign(cosines) * np.abs(cosines) ** sharpness


def _log_odds(cosines: np.ndarray, right: np.ndarray) -> tuple[float, np.ndarray]:
    """The scale of the log-odds of marks in their cosines, at least 1, and the log-odds (N,)."""
    prior = np.array([_FIRST_SCALE, _FIRST_SHIFT])

    def loss(line: np.ndarray) -> tuple[float, np.ndarray]:
        log_odds, gap = line[0] * cosines + line[1], line - prior
        wrong_by = expit(log_odds) - right
        value = np.sum(np.logaddexp(0, log_odds) - right * log_odds) + _PRIOR / 2 * gap @ gap
        return value, np.array([wrong_by @ cosines, wrong_by.sum()]) + _PRIOR * gap

    scale, shift = minimize(loss, prior, jac=True, method="BFGS").x
    return max(float(scale), 1.0), scale * cosines + shift


@dataclass(frozen=True, eq=False)
class Learned:
    """A learned change of queries, and the model of its embeddings.

    Attributes:
        change: The change of queries.
        fingerprint: The fingerprint of the model.
        marks: Number of marks in training.
    """

    change: Change
    fingerprint: str
    marks: int

    def sentence(self, fingerprint: str, is_calibrated: bool) -> str:
        """A sentence for the notes of a search.

        Args:
            fingerprint: The fingerprint of the model that searches.
            is_calibrated: Whether the number of right photos is estimated.
        """
        marks = "1 mark" if self.marks == 1 else f"{self.marks:,} marks"
        if fingerprint != self.fingerprint:
            about = f"The change learned from {marks} is for an earlier model"
            return f"{about}, so it is not used: run `learn` again."
        but = ", but estimated counts do not use them" if is_calibrated else ""
        return f"The order has learned from {marks}{but}."

    @classmethod
    def open(cls, folder: Path) -> Learned | None:
        """Reads the file of an index; None if it is missing.

        Args:
            folder: The folder of the index.

        Raises:
            UserError: If the file is damaged, or of another version.
        """
        path = folder / LEARNED
        try:
            with np.load(path, allow_pickle=False) as arrays:
                queries, directions = arrays["queries"], arrays["directions"]
                about = json.loads(str(arrays["about"]))
                is_whole = str(arrays["sha256"]) == _digest(queries, directions, about)
        except FileNotFoundError:
            return None
        except (*NO_ARRAY, KeyError, TypeError):
            is_whole = False
        if not is_whole:
            raise UserError(
                f"{path} is damaged; delete it, and run `learn` again if there are marks"
            )
        if about["version"] != _VERSION:
            raise UserError(f"{path} has version {about['version']}, not {_VERSION}; delete it")
        change = Change(queries, directions, about["sharpness"])
        return cls(change, about["fingerprint"], about["marks"])

    def save(self, folder: Path) -> None:
        """Writes the file of an index atomically.

        Raises:
            UserError: If another process writes into the folder.
        """
        change = self.change
        about = {
            "version": _VERSION,
            "sharpness": change.sharpness,
            "fingerprint": self.fingerprint,
            "marks": self.marks,
        }
        with locked(folder), replace_atomically(folder / LEARNED, ".npz") as temporary:
            np.savez(
                temporary,
                queries=change.queries,
                directions=change.directions,
                about=json.dumps(about),
                sha256=_digest(change.queries, change.directions, about),
            )


def forget(folder: Path) -> bool:
    """Removes the file of an index, and returns whether it existed."""
    path = folder / LEARNED
    was_there = path.exists()
    path.unlink(missing_ok=True)
    return was_there


def _digest(queries: np.ndarray, directions: np.ndarray, about: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for array in (queries, directions):
        digest.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())
    return digest.hexdigest()
