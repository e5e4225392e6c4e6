"""Tables and picture of studies/sigma.py.

Rank correlations of sigma, and of its controls, with the number of right photos; how much larger
sigma's is than the largest of a control; and sigma's with controls held fixed (partial).
Captions are drawn by their photos, and seeds have their own variance.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import scipy.stats
from comparisons import Difference, Family, format_p, variance_of_seeds
from sigma import CONTROLS, MODEL_CONTROLS, MODELS, OUTCOMES, RESULTS, SEEDS, UNKNOWN

DRAWS = 4000
SIGMA = "sigma"
NAMES = (SIGMA, *MODEL_CONTROLS, *CONTROLS)
DENSER = "sigma minus density"
LARGER, PARTIAL = "sigma minus the largest control", "sigma, all controls held fixed"
WITHOUT_MODEL = "sigma, words and density held fixed"
HELD_FIXED = {WITHOUT_MODEL: ("words", "density"), PARTIAL: (*MODEL_CONTROLS, *CONTROLS)}
"""The controls that partial correlations hold fixed."""

HEADER = ("outcome", "model", "quantity", "rank correlation", "p, Holm")


@cache
def values() -> dict[tuple[str, int], np.ndarray]:
    """The quantities by name and seed."""
    with RESULTS.open(newline="") as file:
        return {
            (line["name"], int(line["seed"])): np.array(line["values"].split(), float)
            for line in csv.DictReader(file)
        }


def columns_of(model: str, seed: int) -> np.ndarray:
    """Sigma and controls of a run, as ranks (captions, 1 + controls)."""
    own = [values()[f"{model} {name}", seed] for name in (SIGMA, *MODEL_CONTROLS)]
    plain = [values()[name, 0] for name in CONTROLS]
    return np.column_stack([scipy.stats.rankdata(each) for each in (*own, *plain)])


def correlations(columns: np.ndarray, outcome: np.ndarray) -> np.ndarray:
    """Correlations of columns with an outcome, and sigma's with the sets of `HELD_FIXED`."""
    joined = np.column_stack([columns, outcome])
    return _with_partial(np.corrcoef(joined, rowvar=False))


def _with_partial(matrix: np.ndarray) -> np.ndarray:
    """The last column of matrices (..., n, n), and sigma's partial correlations with it."""
    partial = []
    for fixed in HELD_FIXED.values():
        kept = [0, *(NAMES.index(name) for name in fixed), -1]
        # Columns that are nearly the same make the inverse useless.
        rows = matrix[..., kept, :][..., kept]
        inverse = np.linalg.pinv(rows, rcond=1e-6, hermitian=True)
        sizes = np.sqrt(inverse[..., 0, 0] * inverse[..., -1, -1])
        partial.append(-inverse[..., 0, -1] / sizes)
    return np.concatenate([matrix[..., :-1, -1], np.stack(partial, axis=-1)], axis=-1)


def larger(found: np.ndarray) -> np.ndarray:
    """How much larger the first correlation is, in size, than the largest control."""
    sizes = np.abs(found[..., : len(NAMES)])
    difference: np.ndarray = sizes[..., 0] - sizes[..., 1:].max(axis=-1)
    return difference


@cache
def compare() -> tuple[Family, dict[tuple[str, str, str], Difference]]:
    """Tests of sigma, and the correlations of all quantities."""
    family, shown = Family(), {}
    for outcome in OUTCOMES:
        every = values()[outcome, 0]
        kept = np.flatnonzero(every != UNKNOWN)
        ranks = scipy.stats.rankdata(every[kept])
        photos = np.unique(values()["photo", 0][kept], return_inverse=True)[1]
        for model in MODELS:
            runs = [columns_of(model, seed)[kept] for seed in SEEDS]
            found = np.array([correlations(run, ranks) for run in runs])
            drawn = _resampled(runs, ranks, photos)
            statistics: dict[str, Callable[[np.ndarray], np.ndarray]] = {
                name: lambda each, n=number: each[..., n]  # type: ignore[misc]
                for number, name in enumerate((*NAMES, *HELD_FIXED))
            }
            statistics[LARGER] = larger
            statistics[DENSER] = lambda each: each[..., 0] - each[..., NAMES.index("density")]
            for name, of in statistics.items():
                seeds, means = of(found), of(drawn).mean(axis=1)
                of_draws = (float(np.var(means, ddof=1)), float(photos.max()))
                parts = variance_of_seeds(seeds) if name not in CONTROLS else []
                result = Difference.with_parts(float(seeds.mean()), of_draws, *parts)
                shown[outcome, model, name] = result
                if name in (SIGMA, LARGER, DENSER, *HELD_FIXED):
                    family.add(result, outcome, model, name)
    return family, shown


def _resampled(runs: Sequence[np.ndarray], ranks: np.ndarray, photos: np.ndarray) -> np.ndarray:
    """Correlations of each run over drawn photos, (draws, runs, quantities)."""
    random, count = np.random.default_rng(0), int(photos.max()) + 1
    times = np.stack(
        [
            np.bincount(random.integers(0, count, count), minlength=count).astype(float)
            for _ in range(DRAWS)
        ]
    )
    found = [_with_partial(_of_draws(np.column_stack([run, ranks]), photos, times)) for run in runs]
    return np.stack(found, axis=1)


def _of_draws(columns: np.ndarray, photos: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Correlations of columns whose photos count several times, (draws, columns, columns).

    Args:
        columns: A row per caption.
        photos: The photo of each caption.
        times: How often each photo counts, (draws, photos).
    """
    columns = (columns - columns.mean(axis=0)) / columns.std(axis=0)
    products = columns[:, :, None] * columns[:, None, :]
    sizes, sums, squares = (
        np.tensordot(times, _by_photo(each, photos), 1)
        for each in (np.ones(len(columns)), columns, products)
    )
    means = sums / sizes[:, None]
    covariance = squares / sizes[:, None, None] - means[:, :, None] * means[:, None, :]
    deviation = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    found: np.ndarray = covariance / (deviation[:, :, None] * deviation[:, None, :])
    return found


def _by_photo(values: np.ndarray, photos: np.ndarray) -> np.ndarray:
    """The sum over the captions of each photo."""
    sums = np.zeros((photos.max() + 1, *values.shape[1:]))
    np.add.at(sums, photos, values)
    return sums


def tables() -> dict[str, list[Sequence[str]]]:
    """The table of the page."""
    family, shown = compare()
    p_values = family.p_values()
    titles = {SIGMA: SIGMA, **MODEL_CONTROLS, **CONTROLS}
    rows = []
    for (outcome, model, name), found in shown.items():
        p = p_values.get((outcome, model, name))
        cells = [OUTCOMES[outcome], MODELS[model], titles.get(name, name), str(found)]
        rows.append([*cells, "" if p is None else format_p(p)])
    return {"sigma": [HEADER, *rows]}


def draw(folder: Path) -> None:
    """Draws rank correlations, a panel per model."""
    from matplotlib.figure import Figure

    _, shown = compare()
    own = (PARTIAL, WITHOUT_MODEL, SIGMA)
    titles = {name: name for name in own} | MODEL_CONTROLS | CONTROLS
    figure = Figure((8.2, 3.4), layout="constrained")
    panels = figure.subplots(1, len(MODELS), sharey=True, sharex=True)
    for axes, (model, title) in zip(panels, MODELS.items(), strict=True):
        for number, outcome in enumerate(OUTCOMES):
            own = [shown[outcome, model, name] for name in titles]
            axes.errorbar(
                [each.value for each in own],
                np.arange(len(titles)) + 0.15 * (1 - 2 * number),
                xerr=[each.half for each in own],
                fmt="os"[number], capsize=3, label=OUTCOMES[outcome],
            )  # fmt: skip
        axes.axvline(0, color="0.6", linewidth=0.8)
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("rank correlation", fontsize=9)
        axes.set_yticks(range(len(titles)), titles.values(), fontsize=8)
    figure.legend(
        *panels[0].get_legend_handles_labels(), fontsize=8, loc="outside upper center", ncols=2
    )
    figure.savefig(folder / "sigma.png", dpi=120)
