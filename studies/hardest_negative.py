"""Where the hardest negative turns, what missing labels cost, and what wrong captions cost.

Scenes with captions from exact to vague: in four grades the share of pairs that are true, but not
annotated, goes from 0.1 to 15 %. Per grade, loss and seed a small dual encoder of the things of a
scene and of the words and pairs of words of a caption is trained

* with the annotated pairs (`annotated`),
* with all true pairs (`complete`), and
* in one grade with a share of captions exchanged between images (`wrong`),

and measured on other scenes by the truth and by the annotated pairs. A seed has its own scenes,
initial weights and batches, which all losses share, so that differences are paired. All losses have
one rate. Every training is a JSON line; what is there is not trained again. Gradients of losses are
written in NumPy, so that a training takes a second; a test compares them with `keras_xmr.losses`.
The tracked results also have DiVE and SAF, whose script is in commit 537237f3.

    OPENBLAS_NUM_THREADS=1 python studies/hardest_negative.py
    python studies/result_pages.py hardest_page        # the tables
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from comparisons import Difference
from methods_table import read_lines

from data_pipelines.scenes.captions import DETAILED, EXACT, LOOSE, MIDDLING, describe
from data_pipelines.scenes.language import truth_table
from data_pipelines.scenes.world import BACKGROUNDS, SHAPES, VALUES, Scenes, sample_scene

RESULTS = Path(__file__).parent / "results" / "hardest_negative.jsonl"
GRADES = (
    (EXACT, DETAILED),
    (*[DETAILED] * 4, MIDDLING),
    (MIDDLING,),
    (LOOSE,),
)
SEEDS = tuple(range(1, 9))
COMPLETE, NOISY = (0, 3), 1
"""Grades that are also trained with all true pairs, and the one whose captions are exchanged."""
WRONG = (0.2, 0.4)
PLAIN = "triplet, all"
"""The loss that others are compared with."""
FLICKR8K, CUB = (0.20, 4.25), 2.0
"""Rates in percent. Of the 47,109 pairs of Flickr8K that are not annotated and that the crowd
judged, 2,004 have more yes than no: 4.25 %, of pairs that models chose, and 0.20 % of all 999,000
if no other is true. By classes, a caption of the test split of CUB is true of a class in 50."""
SIZES = {"train": 600, "test": 200}
CAPTIONS, WORDS, DIMENSION, BATCH, STEPS, RATE = 5, 384, 64, 64, 500, 3e-3


@dataclass(frozen=True)
class Split:
    """Scenes, captions and what is true of them.

    Attributes:
        things: Features of four things per scene, float32 (N, 4, F).
        words: Frequent words and pairs of words per caption, float32 (M, WORDS).
        image_of: The scene of each caption, int (M,).
        truth: Whether a caption is true of a scene, bool (N, M).
        texts: The captions.
        shapes: The kinds of shape in each scene, as the object labels of a photo.
    """

    things: np.ndarray
    words: np.ndarray
    image_of: np.ndarray
    truth: np.ndarray
    texts: list[str]
    shapes: list[tuple[int, ...]]

    @property
    def annotated(self) -> np.ndarray:
        """Whether a caption is annotated for a scene, bool (N, M)."""
        return np.arange(len(self.things))[:, None] == self.image_of


@functools.lru_cache(maxsize=1)
def data(grade: int | None, seed: int) -> dict[str, Split]:
    """The splits of a grade; None for captions of all levels, as the built-in data set has."""
    levels = None if grade is None else GRADES[grade]
    splits: dict[str, Split] = {}
    vocabulary: dict[str, int] = {}
    for number, (name, count) in enumerate(SIZES.items()):
        rng = np.random.default_rng([seed, number])
        scenes = [sample_scene(rng) for _ in range(count)]
        said = [s for scene in scenes for s in describe(scene, CAPTIONS, rng, levels)]
        terms = [_terms(statement.text) for statement in said]
        if not vocabulary:
            frequent = Counter(itertools.chain.from_iterable(terms)).most_common(WORDS)
            vocabulary = {term: place for place, (term, _) in enumerate(frequent)}
        words = np.zeros((len(said), WORDS), np.float32)
        for row, found in enumerate(terms):
            words[row, [vocabulary[term] for term in found if term in vocabulary]] = 1
        packed = Scenes.from_scenes(scenes)
        image_of = np.repeat(np.arange(count), CAPTIONS)
        truth = truth_table(said, packed).toarray()
        texts = [statement.text for statement in said]
        shapes = [tuple(sorted({SHAPES.index(t.shape) for t in s.things})) for s in scenes]
        splits[name] = Split(_things(packed), words, image_of, truth, texts, shapes)
    return splits


def _terms(text: str) -> set[str]:
    words = text.split()
    return {*words, *(f"{one} {next_one}" for one, next_one in itertools.pairwise(words))}


def _things(scenes: Scenes) -> np.ndarray:
    """Features of things: one-hot values, the place in thirds and as numbers, the background."""
    parts = [scenes.having(name, value) for name, values in VALUES.items() for value in values]
    at = [np.nan_to_num(side, nan=-1) for side in (scenes.x, scenes.y)]
    parts += [(low <= side) & (side < high) for side in at for low, high in _THIRDS]
    parts += [scenes.present * side for side in at]
    parts += [scenes.present & (scenes.background == b)[:, None] for b in range(len(BACKGROUNDS))]
    return np.stack(parts, axis=2).astype(np.float32)


_THIRDS = ((0.0, 0.35), (0.35, 0.65), (0.65, 1.0))


Direction = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""The gradient of a loss with queries in rows: of scores (N, M) and matches, bool (N, M)."""


@dataclass(frozen=True)
class Loss:
    """A loss by its gradient to the scores, as the loss of that name in `keras_xmr.losses`.

    Attributes:
        later: The gradient of images as queries; the gradient of captions as queries is added.
        first: The same in the first third of the training, if it is another.
        log_odds: Whether the scores are log-odds.
    """

    later: Direction
    first: Direction | None = None
    log_odds: bool = False

    def gradient(self, scores: np.ndarray, positives: np.ndarray, step: int) -> np.ndarray:
        """The gradient of both directions (N, M)."""
        of = self.direction(step)
        return of(scores, positives) + of(scores.T, positives.T).T

    def direction(self, step: int) -> Direction:
        """The gradient of one direction at a step of `STEPS`."""
        return self.first if self.first and step < STEPS // 3 else self.later


def triplet(mining: str, scores: np.ndarray, positives: np.ndarray) -> np.ndarray:
    """Faghri et al. 2018, Eq. 5 and 6, or the mean over violating negatives; the mean of pairs."""
    query, positive = np.nonzero(positives)
    negatives = np.where(positives[query], -np.inf, scores[query])
    active = 0.2 + negatives > scores[query, positive][:, None]
    if mining == "hardest":
        weight = active & (np.arange(scores.shape[1]) == negatives.argmax(axis=1)[:, None])
        weight = weight.astype(scores.dtype)
    elif mining == "violating":
        weight = active / np.maximum(active.sum(axis=1, keepdims=True), 1)
    else:
        weight = active / scores.shape[1]
    return _of_pairs(scores.shape, query, positive, weight / len(query))


def info_nce(scores: np.ndarray, positives: np.ndarray, temperature: float = 0.05) -> np.ndarray:
    """Half of the mean over queries and their positives of the cross entropy among negatives."""
    query, positive = np.nonzero(positives)
    share = 0.5 / temperature / len(scores) / positives.sum(axis=1)[query]
    logits = np.where(positives, -np.inf, scores / temperature)
    # A query that matches all candidates has no negative, and no gradient.
    highest = np.maximum(logits.max(axis=1, keepdims=True), -1e9)
    exponents = np.exp(logits - highest)
    sums = np.maximum(exponents.sum(axis=1, keepdims=True), 1e-30)
    gap = (highest + np.log(sums))[query, 0] - scores[query, positive] / temperature
    weight = share / (1 + np.exp(np.minimum(-gap, 80)))
    return _of_pairs(scores.shape, query, positive, weight[:, None] * (exponents / sums)[query])


def smooth_ap(scores: np.ndarray, positives: np.ndarray, temperature: float = 0.05) -> np.ndarray:
    """Half of 1 - smooth average precision (Brown et al. 2020)."""
    query, positive = np.nonzero(positives)
    share = 0.5 / len(scores) / positives.sum(axis=1)[query]
    gap = (scores[query] - scores[query, positive][:, None]) / temperature
    above = 1 / (1 + np.exp(-gap))
    rank = 0.5 + above.sum(axis=1, keepdims=True)
    within = 0.5 + (above * positives[query]).sum(axis=1, keepdims=True)
    weight = (within / rank - positives[query]) / rank * share[:, None]
    return _of_pairs(scores.shape, query, positive, weight * above * (1 - above) / temperature)


def cross_entropy(pseudo: float, scores: np.ndarray, positives: np.ndarray) -> np.ndarray:
    """Binary cross entropy, and that with pseudo-positives (Chun 2024, Eq. 2 and 3)."""
    probability = 1 / (1 + np.exp(-scores))
    lowest = np.where(positives, scores, np.inf).min(axis=1, keepdims=True)
    targets = [(1.0, positives), (pseudo, positives | (scores >= lowest))]
    return sum(weight * (probability - target) for weight, target in targets) / scores.size


def _of_pairs(
    shape: tuple[int, ...], query: np.ndarray, positive: np.ndarray, weight: np.ndarray
) -> np.ndarray:
    """Adds what each pair gives to all scores of its query, and takes it from its positive."""
    gradient = np.zeros(shape, np.float32)
    queries, starts = np.unique(query, return_index=True)
    gradient[queries] = np.add.reduceat(weight, starts)
    gradient[query, positive] -= weight.sum(axis=1)
    return gradient


LOSSES = {
    "triplet, hardest": Loss(
        functools.partial(triplet, "hardest"), functools.partial(triplet, "all")
    ),
    "triplet, all": Loss(functools.partial(triplet, "all")),
    "triplet, violating": Loss(functools.partial(triplet, "violating")),
    "InfoNCE": Loss(info_nce),
    "Smooth-AP": Loss(smooth_ap),
    "BCE, pseudo-positives": Loss(
        functools.partial(cross_entropy, 0.1), functools.partial(cross_entropy, 0.0), log_odds=True
    ),
}
"""By name; those that begin with others do so for a third of the training."""

METHODS = (*LOSSES, "DiVE", "SAF")


class Towers:
    """Two towers: a sum over things of their hidden features, and a hidden layer of words.

    Args:
        seed: Of the initial weights.
        features: Number of features of a thing.
        largest: Whether the largest value over things takes the place of their sum.
    """

    def __init__(self, seed: int, features: int, largest: bool = False) -> None:
        self.largest = largest
        rng = np.random.default_rng([seed, 9])
        shapes = [(features, DIMENSION), (DIMENSION, DIMENSION)], [(WORDS, DIMENSION)]
        shapes[1].append((DIMENSION, DIMENSION))
        self.weights = [
            (rng.normal(size=shape) * np.sqrt(2 / shape[0])).astype(np.float32)
            for shape in itertools.chain(*shapes)
        ]
        self.weights += [np.zeros(DIMENSION, np.float32), np.zeros(DIMENSION, np.float32)]
        # The scale and the shift of cosines that become log-odds.
        self.weights.append(np.array([15, -10], np.float32))
        self.moments = [(np.zeros_like(w), np.zeros_like(w)) for w in self.weights]

    def embed(self, things: np.ndarray, words: np.ndarray) -> tuple[np.ndarray, ...]:
        """Hidden features of things and of captions, unit vectors of both, and their lengths."""
        one, out, word, word_out, bias, word_bias, _ = self.weights
        thing = np.maximum(things @ one + bias, 0)
        caption = np.maximum(words @ word + word_bias, 0)
        images, captions = self._pooled(thing) @ out, caption @ word_out
        lengths = [np.linalg.norm(v, axis=1, keepdims=True) + 1e-6 for v in (images, captions)]
        return thing, caption, images / lengths[0], captions / lengths[1], *lengths

    def _pooled(self, thing: np.ndarray) -> np.ndarray:
        return thing.max(axis=1) if self.largest else thing.sum(axis=1)

    def step(
        self, step: int, things: np.ndarray, words: np.ndarray, positives: np.ndarray, loss: Loss
    ) -> None:
        """One step of Adam (Kingma and Ba 2015) with a rate that falls as a cosine."""
        thing, caption, image, text, image_length, text_length = self.embed(things, words)
        scores = image @ text.T
        scale, shift = self.weights[-1]
        log_odds = loss.log_odds
        upstream = loss.gradient(scale * scores + shift if log_odds else scores, positives, step)
        of_affine = np.array([(upstream * scores).sum(), upstream.sum()]) * log_odds
        upstream = (upstream * (scale if log_odds else 1)).astype(np.float32)
        sides = []
        for gradient, unit, length in (
            (upstream @ text, image, image_length),
            (upstream.T @ image, text, text_length),
        ):
            inside = (gradient * unit).sum(axis=1, keepdims=True)
            sides.append((gradient - unit * inside) / length)
        _, out, _, word_out, *_ = self.weights
        counts = thing > 0
        if self.largest:
            counts &= thing == thing.max(axis=1, keepdims=True)
        of_thing = (sides[0] @ out.T)[:, None] * counts
        of_caption = (sides[1] @ word_out.T) * (caption > 0)
        gradients = [
            np.tensordot(things, of_thing, ([0, 1], [0, 1])),
            self._pooled(thing).T @ sides[0],
            words.T @ of_caption,
            caption.T @ sides[1],
            of_thing.sum(axis=(0, 1)),
            of_caption.sum(axis=0),
            of_affine,
        ]
        rate = RATE * 0.5 * (1 + np.cos(np.pi * step / STEPS))
        rate *= np.sqrt(1 - 0.999 ** (step + 1)) / (1 - 0.9 ** (step + 1))
        for weight, (first, second), gradient in zip(
            self.weights, self.moments, gradients, strict=True
        ):
            first += 0.1 * (gradient - first)
            second += 0.001 * (np.square(gradient) - second)
            weight -= (rate * first / (np.sqrt(second) + 1e-7)).astype(np.float32)


@dataclass(frozen=True)
class Task:
    """One training; `labels` are annotated, complete or wrong, `share` is of wrong captions."""

    grade: int | None
    loss: str
    labels: str
    wrong: float
    seed: int


def batches_of(task: Task) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Things, words and positives of the batches of a training."""
    split = data(task.grade, task.seed)["train"]
    rng = np.random.default_rng([task.seed, 7])
    words, truth, image_of = split.words, split.truth, split.image_of
    epochs = -(-STEPS * BATCH // len(words))
    order = np.concatenate([rng.permutation(len(words)) for _ in range(epochs)])
    if task.wrong:
        exchanged = rng.permutation(len(words))[: round(task.wrong * len(words))]
        words = words.copy()
        words[exchanged] = words[np.roll(exchanged, 1)]
    matches = truth if task.labels == "complete" else split.annotated
    for captions in order[: STEPS * BATCH].reshape(STEPS, BATCH):
        images = image_of[captions]
        yield split.things[images], words[captions], matches[np.ix_(images, captions)]


def fit(task: Task, largest: bool = False) -> Towers:
    """Trains two towers; `largest` as of `Towers`."""
    towers = Towers(task.seed, data(task.grade, task.seed)["train"].things.shape[2], largest)
    for step, batch in enumerate(batches_of(task)):
        towers.step(step, *batch, LOSSES[task.loss])
    return towers


def train(task: Task) -> dict[str, Any]:
    """Trains, and measures on other scenes."""
    test, started = data(task.grade, task.seed)["test"], time.process_time()
    scores = scores_of(fit(task), test)
    rng = np.random.default_rng(0)
    chance = rng.random(test.truth.shape)
    return {
        **task.__dict__,
        "share": false_negatives(test),
        "truth": rsum(scores, test.truth),
        "annotated": rsum(scores, test.annotated),
        "r_precision": r_precision(scores.T, test.truth.T),
        "chance": rsum(chance, test.truth),
        "chance_r_precision": r_precision(chance.T, test.truth.T),
        "hardest_true": hardest_true(scores, test),
        "seconds": time.process_time() - started,
    }


def scores_of(towers: Towers, split: Split) -> np.ndarray:
    """Cosines of scenes and captions (N, M)."""
    _, _, image, caption, *_ = towers.embed(split.things, split.words)
    return image @ caption.T


def false_negatives(split: Split) -> float:
    """The share of pairs that are true among those that are not annotated."""
    return float(split.truth[~split.annotated].mean())


def rsum(scores: np.ndarray, relevant: np.ndarray) -> float:
    """The sum of R@1, R@5 and R@10 in both directions, in percent."""
    total = 0.0
    for side, right in ((scores, relevant), (scores.T, relevant.T)):
        best = np.where(right, side, -np.inf).max(axis=1, keepdims=True)
        ranks = 1 + (np.where(right, -np.inf, side) >= best).sum(axis=1)
        total += sum(100 * (ranks <= k).mean() for k in (1, 5, 10))
    return float(total)


def r_precision(scores: np.ndarray, relevant: np.ndarray) -> float:
    """R-Precision of queries (rows), in percent."""
    order = np.argsort(-scores, axis=1, kind="stable")
    right = np.take_along_axis(relevant, order, axis=1)
    count = relevant.sum(axis=1, keepdims=True)
    first = np.arange(relevant.shape[1]) < count
    return float(100 * ((right & first).sum(axis=1) / count[:, 0]).mean())


def hardest_true(scores: np.ndarray, split: Split, batches: int = 20) -> float:
    """The share of hardest negatives of captions that are true, in batches of other pairs."""
    rng, found = np.random.default_rng(0), []
    for _ in range(batches):
        captions = rng.permutation(len(split.image_of))[:BATCH]
        images = split.image_of[captions]
        part = np.where(images[:, None] == images, -np.inf, scores[np.ix_(images, captions)])
        hardest = part.argmax(axis=0)
        found.append(split.truth[images[hardest], captions].mean())
    return float(np.mean(found))


def tasks() -> Iterator[Task]:
    """All trainings: annotated pairs seed by seed, then all true pairs and exchanged captions."""
    for seed, grade, loss in itertools.product(SEEDS, range(len(GRADES)), LOSSES):
        yield Task(grade, loss, "annotated", 0.0, seed)
    for seed in SEEDS:
        for grade, loss in itertools.product(COMPLETE, LOSSES):
            yield Task(grade, loss, "complete", 0.0, seed)
        for share, loss in itertools.product(WRONG, LOSSES):
            yield Task(NOISY, loss, "wrong", share, seed)


def gaps(lines: Sequence[dict[str, Any]], metric: str) -> Iterator[tuple[str, int, np.ndarray]]:
    """Metrics by loss and grade, minus the metric of triplets on all negatives, of whole seeds.

    Trained with the annotated pairs; a seed is whole if it has every loss in every grade.
    """
    values = {
        (line["grade"], line["loss"], line["seed"]): line[metric]
        for line in lines
        if line["labels"] == "annotated"
    }
    cells = list(itertools.product(range(len(GRADES)), LOSSES))
    seeds = [seed for seed in SEEDS if all((*cell, seed) in values for cell in cells)]
    for grade, loss in cells:
        yield (
            loss,
            grade,
            np.array([values[grade, loss, s] - values[grade, PLAIN, s] for s in seeds]),
        )


def rows_of_grades(lines: Sequence[dict[str, Any]]) -> list[Sequence[str]]:
    """Differences to triplets on all negatives, with a heading."""
    lines = [line for line in lines if line["labels"] == "annotated"]
    rows = []
    for metric, title in (("truth", "by the truth"), ("annotated", "annotated")):
        found = {(loss, grade): of for loss, grade, of in gaps(lines, metric)}
        for loss in (loss for loss in LOSSES if loss != PLAIN):
            cells = (_cell(found[loss, grade]) for grade in range(len(GRADES)))
            rows.append([f"{loss}, {title}", *cells])
    true = [
        np.mean([x["hardest_true"] for x in lines if (x["grade"], x["loss"]) == (grade, PLAIN)])
        for grade in range(len(GRADES))
    ]
    rows.append(["hardest negatives that are true, %", *(f"{100 * x:.0f}" for x in true)])
    shares = (f"{100 * share:.1f} %" for share in shares_of(lines))
    return [[f"minus `{PLAIN}`", *shares], *rows]


def rows_of_labels(lines: Sequence[dict[str, Any]]) -> list[Sequence[str]]:
    """What RSUM by the truth gains by all true pairs, and loses by exchanged captions.

    Of the seeds that have both trainings; with a heading.
    """
    kinds = {
        f"all true pairs, {100 * share:.1f} %": ("complete", grade, 0.0)
        for grade, share in enumerate(shares_of(lines))
        if grade in COMPLETE
    }
    kinds |= {f"{100 * s:.0f} % of captions exchanged": ("wrong", NOISY, s) for s in WRONG}
    found = {
        (line["labels"], line["grade"], line["wrong"], line["loss"], line["seed"]): line["truth"]
        for line in lines
    }
    rows: list[Sequence[str]] = []
    for loss in METHODS:
        cells = []
        for labels, grade, share in kinds.values():
            pairs = [((labels, grade, share, loss, s), ("annotated", grade, 0.0, loss, s))
                     for s in SEEDS]  # fmt: skip
            gains = [found[a] - found[b] for a, b in pairs if a in found and b in found]
            cells.append(_cell(np.array(gains)) if gains else "-")
        rows.append([loss, *cells])
    return [["minus annotated pairs", *kinds], *rows]


def half_width(values: np.ndarray) -> float:
    """Half of the 95 % interval of the mean of independent draws, by Student's t; NaN of one."""
    return Difference.of(values).half if len(values) > 1 else float("nan")


def _cell(differences: np.ndarray) -> str:
    value, half = differences.mean(), half_width(differences)
    return f"{value:+.0f}" if np.isnan(half) else f"{value:+.0f} ± {half:.0f}"


def shares_of(lines: Sequence[dict[str, Any]]) -> list[float]:
    """The share of false negatives of each grade."""
    plain = [x for x in lines if (x["labels"], x["loss"]) == ("annotated", PLAIN)]
    return [
        float(np.mean([x["share"] for x in plain if x["grade"] == grade]))
        for grade in range(len(GRADES))
    ]


def draw(lines: Sequence[dict[str, Any]], path: Path) -> None:
    """Draws the differences in RSUM by the truth against the share of unlabelled true pairs."""
    import matplotlib.pyplot as plt

    from keras_xmr.experiments.reports.pictures import save_plot

    plt.rcParams["font.size"] = 13  # Readable on a phone, too.
    drawing, axis = plt.subplots(figsize=(6.2, 7))
    shares = 100 * np.array(shares_of(lines))
    found = {(loss, grade): of for loss, grade, of in gaps(lines, "truth")}
    axis.axvspan(*FLICKR8K, color="0.9", label="Flickr8K, between bounds")
    axis.axvline(CUB, color="0.5", linestyle=":", label="CUB, by classes")
    axis.axhline(0, color="black", label=PLAIN)
    others = [loss for loss in LOSSES if loss != PLAIN]
    for number, (loss, marker) in enumerate(zip(others, "os^Dv", strict=True)):
        own = [found[loss, grade] for grade in range(len(GRADES))]
        errors = np.nan_to_num([half_width(of) for of in own])
        beside = shares * 1.09 ** (number - len(others) // 2)
        values = [of.mean() for of in own]
        axis.errorbar(beside, values, errors, marker=marker, capsize=3, label=loss)
    axis.set(
        xscale="log",
        xlabel="true pairs among those not annotated (%)",
        ylabel=f"RSUM by the truth, minus {PLAIN}",
    )
    ticks = (0.1, 0.3, 1, 3, 10)
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.minorticks_off()
    axis.legend(
        loc="upper center", bbox_to_anchor=(0.45, -0.13), ncols=2, frameon=False, fontsize=12
    )
    save_plot(drawing, path)


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains what is not there yet."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    keys = tuple(Task.__dataclass_fields__)
    done = {tuple(line[key] for key in keys) for line in read_lines(options.results)}
    for task in tasks():
        if tuple(getattr(task, key) for key in keys) not in done:
            line = train(task)
            with options.results.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
