"""What annotated metrics reward, by the number of photos that people call relevant for a caption.

Annotated RSUM counts one photo per caption as relevant, and the crowd of Flickr8K called several
relevant for many captions. Captions are put into strata by that number R. In each stratum methods
are ordered by text-to-image R-Precision as people judged it, and Kendall's tau-b says how well the
order by annotated RSUM, of all photos, agrees with that order. Strata are cut to one size by random
draws, as an order by few captions is noisy; the two halves of a stratum say how well any metric
could agree. In brackets is the range of 95 % of resampled captions. The permutation test exchanges
captions between the strata R = 1 and R >= 6.

On scenes, where every true pair is known, six losses train two towers each. There the orders of the
losses within one tower are compared, and the order of all twelve, in which the towers differ by far
more than the losses: a tau of all twelve mixes both.

    python studies/metrics_reward.py                             # the tables
    python studies/metrics_reward.py --figure docs/results/relevant_photos.png \\
        --csv docs/tables/flickr8k_relevant_photos.csv
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import hubs
import numpy as np
from birds_tables import Difference, print_table
from methods_table import (
    NO_MODEL,
    RESULTS,
    SHORTEST_FIRST,
    Method,
    judged_values,
    methods_of,
    read_lines,
    tau,
)

from keras_xmr.utils.spreadsheets import to_csv

STRATA = {"1": (1, 1), "2": (2, 2), "3 to 5": (3, 5), "6 and more": (6, 99)}
"""Numbers of relevant photos of a caption."""

SCENES = RESULTS.with_name("metric_ranking_scenes.jsonl")

GOOD = 320.0
"""RSUM from which on methods are close to each other."""

DRAWS = 1_000


@dataclass(frozen=True, eq=False)
class Judged:
    """R-Precision of methods by what people judged.

    Attributes:
        methods: The methods.
        people: "crowd", with the annotated photo as relevant, or "experts".
        relevant: Number of relevant photos of each caption that has one, (captions,).
    """

    methods: Sequence[Method]
    people: str
    relevant: np.ndarray

    @cached_property
    def rsum(self) -> np.ndarray:
        """Annotated RSUM of each method, the mean of its seeds, (methods,)."""
        return np.array([method.recalls[:, -1].mean() for method in self.methods])

    @cached_property
    def values(self) -> np.ndarray:
        """R-Precision of each caption, in percent, the mean over seeds, (methods, captions)."""
        rows = []
        for method in self.methods:
            runs = [judged_values(r, self.people, "r_precision", "t2i") for r in method.lines]
            mean = np.mean(runs, axis=0)
            rows.append(100 * mean[~np.isnan(mean)])
        return np.stack(rows)

    def stratum(self, name: str) -> np.ndarray:
        """The numbers of the captions of a stratum."""
        low, high = STRATA[name]
        return np.flatnonzero((self.relevant >= low) & (self.relevant <= high))

    def order(self, captions: np.ndarray) -> np.ndarray:
        """The means over some captions (..., n), (..., methods)."""
        means: np.ndarray = self.values[:, captions].mean(axis=-1)
        return np.moveaxis(means, 0, -1)


def rows_of(judged: Judged, random: np.random.Generator) -> Iterator[list[str]]:
    """Yields a row per stratum, of captions cut to the size of the smallest one."""
    size = min(len(judged.stratum(name)) for name in STRATA)
    blind = next(n for n, m in enumerate(judged.methods) if m.name == SHORTEST_FIRST)
    models = [n for n, method in enumerate(judged.methods) if method.name not in NO_MODEL]
    good = [n for n in models if judged.rsum[n] > GOOD]
    for name in STRATA:
        members = judged.stratum(name)
        drawn = np.stack([random.permutation(members)[:size] for _ in range(DRAWS)])
        means, again = judged.order(drawn), judged.order(random.choice(members, drawn.shape))
        cells = [
            _tau_cell(judged.rsum[own], means[:, own], again[:, own]) for own in (models, good)
        ]
        halves = [judged.order(half) for half in np.split(drawn[:, : size // 2 * 2], 2, axis=1)]
        reached = np.mean(tau(halves[0][:, models], halves[1][:, models]))
        whole = judged.order(members)
        spread = whole[models].std(ddof=1)
        by_chance = _chance(judged, members)
        yield [
            name,
            str(len(members)),
            *cells,
            f"{reached:.2f}",
            f"{whole[models].min():.1f} to {whole[models].max():.1f}",
            f"{spread:.1f}",
            f"{whole[blind]:.1f}",
            f"{by_chance:.1f}",
        ]


def _chance(judged: Judged, members: np.ndarray) -> float:
    """R-Precision of the row of chance, which was drawn once."""
    row = next(n for n, method in enumerate(judged.methods) if method.name == "chance")
    return float(judged.order(members)[row])


def _tau_cell(rsum: np.ndarray, means: np.ndarray, resampled: np.ndarray) -> str:
    """The mean tau over draws of one size, and the range over resampled captions."""
    values, again = (tau(np.broadcast_to(rsum, each.shape), each) for each in (means, resampled))
    low, high = np.quantile(again, [0.025, 0.975])
    return f"{values.mean():.2f} [{low:.2f}, {high:.2f}]"


def scenes_rows(lines: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    """Yields taus of annotated metrics with mAP@R by the truth, of losses in a tower and of all."""
    for grade in (1, None):
        of_grade = [line for line in lines if line["grade"] == grade]
        share = f"{100 * np.mean([line['share'] for line in of_grade]):.1f} %"
        for tower, largest in (("small", [False]), ("large", [True]), ("both", [False, True])):
            chosen = [line for line in of_grade if line["largest"] in largest]
            cells = []
            for metric in ("RSUM", "mAP@R"):
                taus = []
                for seed in sorted({line["seed"] for line in chosen}):
                    own = [line["metrics"] for line in chosen if line["seed"] == seed]
                    both = (np.array([m[name] for m in own]) for name in (metric, "truth"))
                    taus.append(float(tau(*both)))
                found = Difference.of(np.array(taus))
                cells.append(f"{found.value:+.2f} ± {found.half:.2f}")
            yield [share, tower, *cells]


def resampled_difference(judged: Judged, random: np.random.Generator) -> np.ndarray:
    """The difference of tau at R = 1 and at R >= 6 over resampled captions, (draws,)."""
    size = min(len(judged.stratum(name)) for name in STRATA)
    models = [n for n, method in enumerate(judged.methods) if method.name not in NO_MODEL]
    taus = []
    for name in ("1", "6 and more"):
        drawn = random.choice(judged.stratum(name), (DRAWS, size))
        means = judged.order(drawn)[:, models]
        taus.append(tau(np.broadcast_to(judged.rsum[models], means.shape), means))
    difference: np.ndarray = taus[0] - taus[1]
    return difference


def permutation_test(judged: Judged, random: np.random.Generator) -> tuple[float, float]:
    """Tests whether tau differs between R = 1 and R >= 6 by more than chance.

    Values are standardised within a stratum before they are exchanged, as their levels differ.

    Returns:
        The difference of the taus at equal sizes, and the share of permutations with one as large.
    """
    models = [n for n, method in enumerate(judged.methods) if method.name not in NO_MODEL]
    rsum, both = judged.rsum[models], [judged.stratum(name) for name in ("1", "6 and more")]
    size = min(map(len, both))
    values = np.concatenate([_standardised(judged.values[models][:, own]) for own in both], axis=1)
    first = np.arange(values.shape[1]) < len(both[0])

    def difference(is_first: np.ndarray) -> float:
        """The mean over draws of as many captions of either stratum."""
        means = []
        for members in (np.flatnonzero(is_first), np.flatnonzero(~is_first)):
            drawn = np.stack([random.permutation(members)[:size] for _ in range(20)])
            means.append(_means_of(values, drawn))
        taus = [tau(np.broadcast_to(rsum, m.shape), m).mean() for m in means]
        return float(taus[0] - taus[1])

    observed = difference(first)
    permuted = [difference(random.permutation(first)) for _ in range(DRAWS)]
    extreme = 1 + np.count_nonzero(np.abs(permuted) >= abs(observed))
    return observed, float(extreme / (1 + len(permuted)))


def _standardised(values: np.ndarray) -> np.ndarray:
    """Values (methods, captions) without the level of a caption, of unit variance."""
    centred = values - values.mean(axis=0)
    scaled: np.ndarray = centred / centred.std()
    return scaled


def _means_of(values: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """The means of values (methods, captions) over some captions (draws, n), (draws, methods)."""
    weights = np.zeros((len(chosen), values.shape[1]))
    np.put_along_axis(weights, chosen, 1 / chosen.shape[1], axis=1)
    return weights @ values.T


def draw(judged: Judged, path: Path) -> None:
    """Draws R-Precision of each method against its RSUM, a panel per stratum."""
    import matplotlib.pyplot as plt

    models = [n for n, method in enumerate(judged.methods) if method.name not in NO_MODEL]
    drawing, axes = plt.subplots(1, len(STRATA), figsize=(11, 3.1), sharey=True)
    for axis, name in zip(axes, STRATA, strict=True):
        members = judged.stratum(name)
        axis.scatter(judged.rsum[models], judged.order(members)[models], s=12)
        number = "photo fits" if name == "1" else "photos fit"
        axis.set_title(f"{name} {number}: {len(members)} captions", fontsize=9)
        axis.grid(alpha=0.3)
        axis.set_xlabel("annotated RSUM", fontsize=9)
    axes[0].set_ylabel("R-Precision by the crowd (%)", fontsize=9)
    drawing.tight_layout()
    drawing.savefig(path, dpi=110)
    plt.close(drawing)


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--figure", type=Path, help="where the picture goes")
    parser.add_argument("--csv", type=Path, help="where the table by the crowd goes")
    options = parser.parse_args(arguments)
    lines = {line["correction"]: line for line in hubs.read_lines(hubs.RESULTS) if not line["seed"]}
    methods = methods_of(read_lines(options.results))
    header = ["R", "captions", "tau, all methods", f"tau, RSUM above {GOOD:.0f}"]
    header += ["two halves", "R-Precision", "deviation", "blind", "chance"]
    for people in ("crowd", "experts"):
        random = np.random.default_rng(0)
        judged = Judged(methods, people, hubs.unpack(lines["relevant"][people]))
        print(f"\n{people}, {len(judged.relevant)} captions\n")
        rows = list(rows_of(judged, random))
        print_table(header, rows)
        low, high = np.quantile(resampled_difference(judged, random), [0.025, 0.975])
        difference, share = permutation_test(judged, random)
        print(
            f"\ntau at R = 1 minus tau at R >= 6: {difference:.2f}, resampled [{low:.2f}, "
            f"{high:.2f}], permutation p = {share:.4f}"
        )
        if people == "crowd" and options.figure:
            draw(judged, options.figure)
        if people == "crowd" and options.csv:
            options.csv.write_bytes(to_csv([header, *rows]))
    print("\nscenes, tau with mAP@R by the truth\n")
    header = ["unlabelled pairs that are true", "towers", "annotated RSUM", "annotated mAP@R"]
    print_table(header, list(scenes_rows(read_lines(SCENES))))


if __name__ == "__main__":
    main()
