"""Precision of the candidates, for data sets with exhaustive judgements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import scipy.sparse

from keras_xmr.audit.candidates import Candidates
from keras_xmr.judgements import Judgements
from keras_xmr.reporting.table import Table

_FIRST = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000)


@dataclass(frozen=True)
class Precision:
    """The share of right pairs among candidates.

    Attributes:
        first: For N, the share among the first N; the last N is the length of the list.
        chance: The share among all unlabelled pairs: the expectation of a random list.
    """

    first: dict[int, float]
    chance: float


def measure_precision(
    candidates: Candidates, truth: Judgements, judged: scipy.sparse.csr_array
) -> Precision:
    """Measures candidates against an exhaustive truth.

    Args:
        candidates: At least one.
        truth: The exhaustive judgements.
        judged: Pairs that are judged already, as in `find_candidates`.
    """
    images, captions = judged.shape
    true = _places(truth.grades)
    right = np.isin(candidates.images * captions + candidates.captions, true)
    counts = [n for n in _FIRST if n < len(candidates)] + [len(candidates)]
    first = {n: float(right[:n].mean()) for n in counts}
    missing = np.count_nonzero(~np.isin(true, _places(judged)))
    return Precision(first, missing / (images * captions - judged.nnz))


def _places(matrix: scipy.sparse.csr_array) -> np.ndarray:
    """The flat places of the stored numbers."""
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    return rows * matrix.shape[1] + matrix.indices


def precision_table(title: str, precisions: Mapping[str, Precision]) -> Table:
    """Makes a table with a row per list of candidates, and one for chance, in percent.

    Args:
        title: The name of the split.
        precisions: The precision of each list, by its name.
    """
    counts = sorted({n for precision in precisions.values() for n in precision.first})
    rows = [
        [name, *(_percent(precision.first.get(n)) for n in counts)]
        for name, precision in precisions.items()
    ]
    chance = next(iter(precisions.values())).chance
    rows.append(["chance", *(_percent(chance) for _ in counts)])
    heading = f"{title}: precision of the first N candidates, exhaustive truth"
    return Table(heading, ["", *(f"P@{n}" for n in counts)], rows)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"
