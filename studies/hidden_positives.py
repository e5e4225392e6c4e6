"""Hidden positives on photos: what negatives that are relevant cost each loss.

Linear maps of frozen features are trained, from random weights and from CCA, with the losses of
studies/hardest_negative.py; triplets on the hardest negative begin with all negatives for a third
of the steps. Relevant pairs are hidden, so that they are negatives, or known as positives.

* CUB Captions: a batch has m photos of each of its classes, with a caption each. The pairs of other
  photos of a class are hidden or known. Measured on the test classes: R-Precision by class.
* Flickr8K: a batch has k captions of each of its photos. For a photo as query its other captions
  are hidden or known. A caption as query never has a copy of its own photo as a negative. Measured
  on test: recalls of both directions by the annotated pairs.

Rates are chosen on validation with seed 0, and test is measured once per further seed. A line per
run is appended to `--results`; what has a line is not run again.

    python studies/hidden_positives.py --cub data/raw/cub       # writes features of birds, trains
    python studies/hidden_positives.py --flickr8k data/hubs/vectors.npz    # of studies/hub_doses.py
    python studies/result_pages.py hardest_page                                   # the tables
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
from birds_tables import add_paths, append_row
from comparisons import Difference
from hardest_negative import LOSSES, Loss

from keras_xmr.utils.vectors import unit_rows

RESULTS = Path(__file__).parent / "results/hidden_positives.csv"
TESTED = ("triplet, hardest", "triplet, violating", "InfoNCE")
ALL = "triplet, all"
KINDS = ("hidden", "known")
STARTS = {"random": (0.03, 0.1, 0.3), "CCA": (0.003, 0.01, 0.03)}
"""Rates by start."""
SEEDS = {"cub": (1, 2, 3), "flickr8k": (1, 2, 3, 4, 5, 6)}
COPIES = {"cub": (1, 2, 4), "flickr8k": (1, 5)}
"""Photos of a class in a batch, and captions of a photo."""
BATCH = {"cub": 36, "flickr8k": 120}
STEPS = {"cub": 600, "flickr8k": 400}
DIMENSION, COMPONENTS = 128, 192
WORDS = 1000
CAPTIONS = 5
"""Captions per photo that are tested."""
COLUMNS = ("split", "data", "start", "loss", "copies", "kind", "seed", "rate", "i2t", "t2i")


class Task(NamedTuple):
    """What is trained; with one copy none is hidden, and it is run as "known"."""

    data: str
    start: str
    loss: str
    copies: int
    kind: str


class Run(NamedTuple):
    """A training: of split "val" with seed 0, for the rate, or "test"."""

    split: str
    task: Task
    seed: int
    rate: float


class Maps:
    """Trains and measures linear maps of the features of three splits.

    Args:
        data: "cub" or "flickr8k".
        vectors: Of train, val and test: vectors of images and of captions, the image of each
            caption and the class of each image.
    """

    def __init__(
        self, data: str, vectors: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]
    ) -> None:
        self.data = data
        self.owners, self.classes = [own[2] for own in vectors], [own[3] for own in vectors]
        sides = []
        for side in range(2):
            train = vectors[0][side].astype(np.float64)
            mean = train.mean(axis=0)
            axes = np.linalg.eigh((train - mean).T @ (train - mean))[1][:, ::-1][:, :COMPONENTS]
            own = [(split[side] - mean) @ axes for split in vectors]
            # Components of one variance train at one rate.
            scale = own[0].std(axis=0) + 1e-3 * own[0].std()
            sides.append([(part / scale).astype(np.float32) for part in own])
        self.splits = list(zip(*sides, strict=True))
        images, captions = self.splits[0]
        between = images[self.owners[0]].T @ captions / len(captions)
        left, correlations, right = np.linalg.svd(between, full_matrices=False)
        weights = np.sqrt(correlations[:DIMENSION])
        self.cca = [left[:, :DIMENSION] * weights, right.T[:, :DIMENSION] * weights]

    def fit(self, run: Run) -> list[np.ndarray]:
        """Maps after training with Adam and a rate that falls as a cosine."""
        task, steps = run.task, STEPS[self.data]
        random = np.random.default_rng(run.seed)
        maps = [
            random.normal(size=(x.shape[1], DIMENSION)).astype(np.float32) for x in self.splits[0]
        ]
        if task.start == "CCA":
            maps = [m.astype(np.float32) for m in self.cca]
        moments = [(np.zeros_like(m), np.zeros_like(m)) for m in maps]
        batches = self.class_batches if self.data == "cub" else self.photo_batches
        for step, (images, captions, same) in enumerate(batches(task, random, steps)):
            positives = same if task.kind == "known" else np.eye(len(same), dtype=bool)
            # The hardest negative begins after a third of the steps, as in that study.
            at = step * hardest_negative.STEPS // steps
            rate = run.rate * 0.5 * (1 + np.cos(np.pi * step / steps))
            rate *= np.sqrt(1 - 0.98 ** (step + 1)) / (1 - 0.9 ** (step + 1))
            batch = self.splits[0][0][images], self.splits[0][1][captions]
            own = images if self.data == "flickr8k" else None
            gradients = _gradients(maps, batch, positives, LOSSES[task.loss], at, own)
            for weight, (one, two), gradient in zip(maps, moments, gradients, strict=True):
                one += 0.1 * (gradient - one)
                two += 0.02 * (np.square(gradient) - two)
                # A rate of 1 would change a weight by as much as a usual one has.
                weight -= rate * np.abs(weight).mean() * one / (np.sqrt(two) + 1e-12)
        return maps

    def class_batches(
        self, task: Task, random: np.random.Generator, steps: int
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yields photos and captions of pairs, and which have one class: m photos of each."""
        classes, owner = self.classes[0], self.owners[0]
        members = [np.flatnonzero(classes == label) for label in np.unique(classes)]
        first = np.searchsorted(owner, np.arange(len(classes) + 1))
        for _ in range(steps):
            drawn = random.permutation(len(members))[: BATCH["cub"] // task.copies]
            images = np.concatenate([random.permutation(members[c])[: task.copies] for c in drawn])
            captions = random.integers(first[images], first[images + 1])
            yield images, captions, classes[images][:, None] == classes[images]

    def photo_batches(
        self, task: Task, random: np.random.Generator, steps: int
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yields photos and captions of pairs, and which have one photo: k captions of each."""
        owner = self.owners[0]
        first = np.searchsorted(owner, np.arange(len(self.splits[0][0]) + 1))
        for _ in range(steps):
            photos = random.permutation(len(first) - 1)[: BATCH["flickr8k"] // task.copies]
            captions = np.concatenate([
                random.permutation(np.arange(*first[p : p + 2]))[: task.copies] for p in photos
            ])  # fmt: skip
            images = owner[captions]
            yield images, captions, images[:, None] == images

    def measure(self, maps: Sequence[np.ndarray], split: int) -> tuple[np.ndarray, np.ndarray]:
        """Of both directions R-Precision by class, or R@1, R@5 and R@10; in percent."""
        # The captions of a photo follow each other.
        owner = self.owners[split]
        place = np.arange(len(owner)) - np.searchsorted(owner, owner)
        kept = np.flatnonzero(place < CAPTIONS)
        inputs = self.splits[split][0], self.splits[split][1][kept]
        images, captions = (unit_rows(x @ m) for x, m in zip(inputs, maps, strict=True))
        scores, owner = images @ captions.T, owner[kept]
        if self.data == "cub":
            classes = self.classes[split]
            return (
                r_precision_by_class(scores, classes, classes[owner]),
                r_precision_by_class(scores.T, classes[owner], classes),
            )
        own = np.arange(len(images))[:, None] == owner
        return recalls(scores, own), recalls(scores.T, own.T)


def r_precision_by_class(scores: np.ndarray, queries: np.ndarray, items: np.ndarray) -> np.ndarray:
    """R-Precision of queries (rows), by their classes, in percent."""
    found = []
    for label in np.unique(queries):
        own, right = scores[queries == label], items == label
        count = int(right.sum())
        least = np.partition(own, -count, axis=1)[:, -count]
        found.append(100 * (own[:, right] >= least[:, None]).sum(axis=1).mean() / count)
    return np.array(found)


def recalls(scores: np.ndarray, own: np.ndarray) -> np.ndarray:
    """R@1, R@5 and R@10 of queries (rows) by the annotated pairs, in percent."""
    best = np.where(own, scores, -np.inf).max(axis=1, keepdims=True)
    ranks = 1 + (np.where(own, -np.inf, scores) >= best).sum(axis=1)
    return np.array([100 * (ranks <= k).mean() for k in (1, 5, 10)])


def _gradients(
    maps: Sequence[np.ndarray],
    batch: tuple[np.ndarray, np.ndarray],
    positives: np.ndarray,
    loss: Loss,
    step: int,
    photos: np.ndarray | None,
) -> list[np.ndarray]:
    """The gradients of a loss to both maps.

    Args:
        maps: The maps.
        batch: Inputs of images and captions of pairs.
        positives: Which are positive, bool (B, B).
        loss: The loss.
        step: The step; see `Loss.direction`.
        photos: If several captions have one photo, the photo of each pair: a caption as query then
            has every photo once.
    """
    vectors = [x @ m for x, m in zip(batch, maps, strict=True)]
    lengths = [np.linalg.norm(v, axis=1, keepdims=True) for v in vectors]
    units = [v / length for v, length in zip(vectors, lengths, strict=True)]
    scores = units[0] @ units[1].T
    of = loss.direction(step)
    upstream = of(scores, positives)
    once, own = np.arange(len(scores)), positives.T
    if photos is not None:
        _, once = np.unique(photos, return_index=True)
        own = photos[:, None] == photos[once]
    upstream[once] += of(scores[once].T, own).T
    found = []
    for x, unit, length, gradient in zip(
        batch, units, lengths, (upstream @ units[1], upstream.T @ units[0]), strict=True
    ):
        inside = (gradient * unit).sum(axis=1, keepdims=True)
        found.append((x.T @ ((gradient - unit * inside) / length)).astype(np.float32))
    return found


def tasks(data: str) -> Iterator[Task]:
    """All tasks of some data."""
    for start, copies, kind, loss in product(STARTS, COPIES[data], KINDS, (ALL, *TESTED)):
        if copies > 1 or kind == "known":
            yield Task(data, start, loss, copies, kind)


Results = dict[Run, tuple[np.ndarray, np.ndarray]]


def run_missing(maps: Maps, results: Path, starts: Sequence[str]) -> None:
    """Runs all that has no line in the results, and appends one for each."""
    done = read_results(results)

    def measured(run: Run) -> float:
        if run not in done:
            done[run] = maps.measure(maps.fit(run), 1 if run.split == "val" else 2)
            sides = [" ".join(f"{value:.2f}" for value in side) for side in done[run]]
            cells = [run.split, *run.task, run.seed, run.rate, *sides]
            append_row(results, COLUMNS, cells)
            print(run.split, *run.task, run.seed, run.rate, f"{_both(done[run]):.2f}", flush=True)
        return _both(done[run])

    for task in tasks(maps.data):
        if task.start not in starts:
            continue
        rates = STARTS[task.start]
        best = max(rates, key=lambda rate: measured(Run("val", task, 0, rate)))
        for seed in SEEDS[maps.data]:
            measured(Run("test", task, seed, best))


def _both(sides: tuple[np.ndarray, np.ndarray]) -> float:
    return float(np.mean([side.mean() for side in sides]))


def read_results(path: Path) -> Results:
    """Figures of both directions by run; none if there is no file."""
    if not path.exists():
        return {}
    found = {}
    with path.open(newline="") as file:
        for line in csv.DictReader(file):
            task = Task(*(line[k] for k in COLUMNS[1:4]), int(line["copies"]), line["kind"])
            run = Run(line["split"], task, int(line["seed"]), float(line["rate"]))
            sides = [np.array(line[side].split(), float) for side in ("i2t", "t2i")]
            found[run] = sides[0], sides[1]
    return found


def difference(results: Results, side: int | None, *terms: tuple[int, Task]) -> Difference:
    """A sum of weighted tasks: R-Precision, or RSUM of the direction(s).

    Seeds are paired, as all losses have the same initial weights and batches; on CUB the test
    classes are drawn, too.

    Args:
        results: The results.
        side: 0 for images as queries, 1 for captions; None for both, of which R-Precision is the
            mean and RSUM the sum.
        *terms: Weights and tasks.
    """
    total: np.ndarray = np.zeros(1)
    for weight, task in terms:
        runs = sorted((r.seed, v) for r, v in results.items() if r[:2] == ("test", task))
        own = np.array([v if side is None else (v[side],) for _, v in runs])
        values = own.mean(axis=1) if task.data == "cub" else own.sum(axis=(1, 2))[:, None]
        total = total + weight * values
    if terms[0][1].data == "cub":
        return Difference.crossed(total)
    return Difference.of(total[:, 0])


def read_vectors(path: Path) -> list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Reads the vectors that `birds.Study.save_vectors` writes."""
    with np.load(path) as arrays:
        names = ("images", "captions", "owner", "classes")
        splits = [[arrays[f"{s}_{n}"] for n in names] for s in ("train", "val", "test")]
    return [(images, captions, owner, classes) for images, captions, owner, classes in splits]


def write_cub(options: argparse.Namespace) -> Path:
    """Writes features of the photos of CUB, and weighted words of their captions."""
    import birds

    from keras_xmr.experiments.experiment import Experiment

    path: Path = options.work / "vectors.npz"
    if path.exists():
        return path
    image = "data.image={size: 224, resize: 224, crop: center, flip: false, cutout: 0}"
    settings = birds.make_settings(options, f"data.source.root={options.cub}", image)
    sets = ["train.phases=[]", "train.precompute_captions=false"]
    run = Experiment(settings(birds.ROWS["info_nce"], sets))
    if not run.config.data.is_prepared:
        run.prepare()
    run.train()
    arrays: dict[str, np.ndarray] = {}
    weights: dict[str, float] = {}
    for name in ("train", "val", "test"):
        part = run.embedded_records.split(name)
        images = np.concatenate(
            [part.regions(rows).mean(axis=1) for rows in birds.blocks(len(part))]
        )
        texts = [caption.text for caption in part.captions]
        weights = weights or word_weights(texts)
        arrays[f"{name}_images"] = unit_rows(np.sqrt(np.maximum(images.astype(np.float32), 0)))
        arrays[f"{name}_captions"] = bags_of_words(texts, weights)
        arrays[f"{name}_owner"] = part.caption_image
        arrays[f"{name}_classes"] = np.array([own[0] for own in part.labels])
    np.savez(path, **arrays)
    return path


def word_weights(texts: Sequence[str]) -> dict[str, float]:
    """Inverse document frequencies of the most frequent words."""
    counts = Counter(word for text in texts for word in set(text.lower().split()))
    return {word: float(np.log(len(texts) / n)) for word, n in counts.most_common(WORDS)}


def bags_of_words(texts: Sequence[str], weights: Mapping[str, float]) -> np.ndarray:
    """Unit vectors of the weighted words of captions, (M, words)."""
    place = {word: number for number, word in enumerate(weights)}
    found = np.zeros((len(texts), len(weights)), np.float32)
    for row, text in zip(found, texts, strict=True):
        for word in set(text.lower().split()) & place.keys():
            row[place[word]] = weights[word]
    return unit_rows(found)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs what is missing."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cub", type=Path, help="folder of CUB-200-2011 with captions")
    parser.add_argument("--flickr8k", type=Path, help="vectors.npz of studies/hub_doses.py")
    parser.add_argument("--starts", type=lambda text: text.split(","), default=list(STARTS))
    options = add_paths(parser, RESULTS).parse_args(arguments)
    for data, path in (
        ("cub", options.cub and write_cub(options)),
        ("flickr8k", options.flickr8k),
    ):
        if path:
            run_missing(Maps(data, read_vectors(path)), options.results, options.starts)


if __name__ == "__main__":
    main()
