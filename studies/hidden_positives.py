"""Hidden positives on photos: what it costs to take a photo's other captions for negatives.

A batch of Flickr8K has k captions of each of its photos. The others of these are *hidden*, so that
they are negatives of the photo, or *known* as positives. Linear maps of frozen features, which
begin at random weights, are trained by losses of studies/hardest_negative.py; rates are chosen on
the development split with seed 0, by the sum of recalls, and test is measured once per further
seed. A line per run is appended to `--results`; what has a line is not run again.

    python studies/hidden_positives.py --vectors data/hubs/vectors.npz   # of studies/hubs.py
    python studies/hidden_positives.py                                   # the figure and its table
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.append(str(Path(__file__).parent))

import hardest_negative
from birds_tables import Difference, append_row, print_table
from hardest_negative import LOSSES, Loss, rsum

from keras_xmr.utils.vectors import unit_rows

RESULTS = Path(__file__).parent / "results/hidden_positives.csv"
CAPTIONS = (1, 5, 3, 2, 4)
KINDS = ("hidden", "known")
ALL, HARDEST = "triplet, all", "triplet, hardest"
RATES = (0.03, 0.1, 0.3, 1.0)
SEEDS = (1, 2, 3, 4, 5)
SCALE, SHIFT = 15, -10
"""Of the cosines that become log-odds."""
BATCH, STEPS, DIMENSION = 120, 300, 128
COLUMNS = ("split", "loss", "captions", "kind", "seed", "rate", "rsum")


class Run(NamedTuple):
    """A training: of split "val" with seed 0, for the rate, or "test".

    With one caption per photo known and hidden are the same, and it is run as "known".
    """

    split: str
    loss: str
    captions: int
    kind: str
    seed: int
    rate: float


class Maps:
    """Trains and measures maps of the features of three splits.

    Args:
        vectors: Images, captions and the image of each caption, of train, val and test.
        components: Features of a side: the directions of the largest variance of train.
    """

    def __init__(
        self, vectors: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]], components: int = 192
    ) -> None:
        self.splits, self.owners = [], [own[2] for own in vectors]
        sides = []
        for side in range(2):
            train = vectors[0][side]
            mean = train.mean(axis=0)
            axes = np.linalg.eigh((train - mean).T @ (train - mean))[1][:, ::-1][:, :components]
            own = [(split[side] - mean) @ axes for split in vectors]
            # Components of one variance train at one rate.
            scale = own[0].std(axis=0) + 1e-3 * own[0].std()
            sides.append([(part / scale).astype(np.float32) for part in own])
        self.splits = list(zip(*sides, strict=True))

    def measure(self, maps: Sequence[np.ndarray], split: int) -> float:
        """The sum of recalls by the annotated pairs."""
        left, right = (unit_rows(x @ m) for x, m in zip(self.splits[split], maps, strict=True))
        return rsum(left @ right.T, np.arange(len(left))[:, None] == self.owners[split])

    def fit(self, run: Run, steps: int = STEPS) -> list[np.ndarray]:
        """Maps after training with Adam and a rate that falls as a cosine."""
        inputs, owner = self.splits[0], self.owners[0]
        first = np.searchsorted(owner, np.arange(len(inputs[0]) + 1))
        random = np.random.default_rng(run.seed)
        maps = [random.normal(size=(x.shape[1], DIMENSION)).astype(np.float32) for x in inputs]
        moments = [(np.zeros_like(m), np.zeros_like(m)) for m in maps]
        for step in range(steps):
            photos = random.permutation(len(inputs[0]))[: BATCH // run.captions]
            rows = np.concatenate([
                random.permutation(np.arange(*first[p : p + 2]))[: run.captions] for p in photos
            ])  # fmt: skip
            known = owner[rows][:, None] == owner[rows]
            positives = known if run.kind == "known" else np.eye(len(rows), dtype=bool)
            batch = inputs[0][owner[rows]], inputs[1][rows]
            # The hardest negative begins after a third of the steps, as in that study.
            at = step * hardest_negative.STEPS // steps
            gradients = _gradients(maps, batch, positives, LOSSES[run.loss], at)
            rate = run.rate * 0.5 * (1 + np.cos(np.pi * step / steps))
            rate *= np.sqrt(1 - 0.98 ** (step + 1)) / (1 - 0.9 ** (step + 1))
            for weight, (one, two), gradient in zip(maps, moments, gradients, strict=True):
                one += 0.1 * (gradient - one)
                two += 0.02 * (np.square(gradient) - two)
                # A rate of 1 would change a weight by as much as a usual one has.
                weight -= rate * np.abs(weight).mean() * one / (np.sqrt(two) + 1e-12)
        return maps


def _gradients(
    maps: Sequence[np.ndarray],
    batch: tuple[np.ndarray, np.ndarray],
    positives: np.ndarray,
    loss: Loss,
    step: int,
) -> list[np.ndarray]:
    """The gradients of a loss to both maps; see `Loss.gradient`."""
    vectors = [x @ m for x, m in zip(batch, maps, strict=True)]
    lengths = [np.linalg.norm(v, axis=1, keepdims=True) for v in vectors]
    units = [v / length for v, length in zip(vectors, lengths, strict=True)]
    scale, shift = (SCALE, SHIFT) if loss.log_odds else (1, 0)
    upstream = scale * loss.gradient(scale * (units[0] @ units[1].T) + shift, positives, step)
    found = []
    for x, unit, length, gradient in zip(
        batch, units, lengths, (upstream @ units[1], upstream.T @ units[0]), strict=True
    ):
        inside = (gradient * unit).sum(axis=1, keepdims=True)
        found.append((x.T @ ((gradient - unit * inside) / length)).astype(np.float32))
    return found


def tasks() -> Iterator[tuple[str, int, str]]:
    """Loss, captions of a photo, and kind; with one caption none can be hidden."""
    for captions, kind, loss in product(CAPTIONS, KINDS, LOSSES):
        if captions > 1 or kind == "known":
            yield loss, captions, kind


def run_missing(maps: Maps, results: Path) -> None:
    """Runs all that has no line in the results, and appends one for each."""
    done = read_results(results)

    def measured(run: Run) -> float:
        if run not in done:
            done[run] = maps.measure(maps.fit(run), 1 if run.split == "val" else 2)
            append_row(results, COLUMNS, [*run, f"{done[run]:.2f}"])
            print(*run, f"{done[run]:.1f}", flush=True)
        return done[run]

    for task in tasks():
        best = max(RATES, key=lambda rate: measured(Run("val", *task, 0, rate)))
        for seed in SEEDS:
            measured(Run("test", *task, seed, best))


def read_results(path: Path) -> dict[Run, float]:
    """The sum of recalls of each run; none if there is no file."""
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        types = (str, str, int, str, int, float)
        return {
            Run(*(of(text) for of, text in zip(types, cells, strict=False))): float(cells[-1])
            for cells in list(csv.reader(file))[1:]
        }


def difference(
    results: Mapping[Run, float], *terms: tuple[int, tuple[str, int, str]]
) -> tuple[float, float]:
    """A sum of the RSUM of weighted tasks, and half of its 95 % interval over seeds.

    Seeds are paired: all losses have the same initial weights and photos.
    """
    values = [
        weight * np.array([v for r, v in sorted(results.items()) if r[:4] == ("test", *task)])
        for weight, task in terms
    ]
    found = Difference.of(np.sum(values, axis=0))
    return found.value, found.half


def _hardest(captions: int, kind: str) -> list[tuple[int, tuple[str, int, str]]]:
    """The terms of the hardest negative minus all."""
    return [(1, (HARDEST, captions, kind)), (-1, (ALL, captions, kind))]


def print_tables(results: Mapping[Run, float]) -> None:
    """Prints RSUM by loss, and what hiding changes, hidden minus known."""
    rows = []
    for captions, kind in measured(results):
        means = [difference(results, (1, (loss, captions, kind)))[0] for loss in LOSSES]
        gap = _cell(*difference(results, *_hardest(captions, kind)))
        shown = kind if captions > 1 else "none"
        rows.append([str(captions), shown, *(f"{mean:.1f}" for mean in means), gap])
    print_table(["captions of a photo", "others", *LOSSES, "hardest minus all"], rows)
    rows = []
    done = set(measured(results))
    for captions in sorted(k for k in CAPTIONS if {(k, kind) for kind in KINDS} <= done):
        terms = [
            [(1, (loss, captions, "hidden")), (-1, (loss, captions, "known"))] for loss in LOSSES
        ]
        known = [(-weight, task) for weight, task in _hardest(captions, "known")]
        terms.append(_hardest(captions, "hidden") + known)
        rows.append([str(captions), *(_cell(*difference(results, *own)) for own in terms)])
    print_table(["captions of a photo", *LOSSES, "hardest minus all"], rows)


def _cell(value: float, half: float) -> str:
    return f"{value:+.1f} [{value - half:+.1f}, {value + half:+.1f}]"


def measured(results: Mapping[Run, float]) -> list[tuple[int, str]]:
    """Captions of a photo and kind where all losses have all seeds."""
    counts = Counter((run.captions, run.kind) for run in results if run.split == "test")
    return sorted(key for key, count in counts.items() if count == len(SEEDS) * len(LOSSES))


def draw(results: Mapping[Run, float], path: Path) -> None:
    """Draws the hardest negative minus all, against the hidden share of negatives."""
    from matplotlib.figure import Figure

    figure = Figure((6, 3.6), layout="constrained")
    axes = figure.subplots()
    for kind, style in zip(KINDS, ("o-", "s--"), strict=True):
        # With one caption per photo both kinds are the same.
        keys = [key for key in measured(results) if key[0] == 1 or key[1] == kind]
        shares = [100 * (captions - 1) / (BATCH - 1) for captions, _ in keys]
        gaps = np.array([difference(results, *_hardest(*key)) for key in keys]).T
        axes.errorbar(shares, gaps[0], gaps[1], fmt=style, capsize=3, label=kind)
    axes.axhline(0, color="grey", linewidth=0.8)
    axes.set_xlabel("captions of the same photo among the negatives, %")
    axes.set_ylabel("RSUM: hardest minus all negatives")
    axes.margins(y=0.3)
    axes.legend(title="other captions of the photo", loc="lower left", ncols=2)
    figure.savefig(path, dpi=150)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs what is missing, and prints the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--vectors", type=Path, help="vectors.npz of studies/hubs.py")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--figure", type=Path, help="draws it to this file")
    options = parser.parse_args(arguments)
    if options.vectors:
        with np.load(options.vectors) as arrays:
            sides = ("images", "captions", "owner")
            splits = [[arrays[f"{s}_{n}"] for n in sides] for s in ("train", "val", "test")]
        run_missing(Maps(splits), options.results)
    results = read_results(options.results)
    print_tables(results)
    if options.figure:
        draw(results, options.figure)


if __name__ == "__main__":
    main()
