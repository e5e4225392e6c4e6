"""All methods of the papers on Flickr8K, compared with plain baselines on the same features.

Every method is a config of `csv_pretrained*` on the data of Flickr8K: the same frozen encoders, the
same rate and number of epochs; the validation split chooses the epoch. Baselines see the averaged
features and are tuned on the same split; they are of NumPy alone, so that what the project is
compared with is not itself, but for fast re-ranking. Test is measured once per run: recalls by the
annotated pairs, and what the crowd and the experts judged.

A line per run is appended to `--results`; what has a line is not run again, so a study that was
stopped goes on. Seeds come last: with fewer, all methods have as many. `--table` alone prints the
table of the results, and `--csv` writes all figures of it.

    python studies/flickr8k_methods.py --flickr8k data/raw/flickr8k --seeds 3
    python studies/flickr8k_methods.py --flickr8k data/raw/flickr8k --seeds 1 --photos 500
    python studies/flickr8k_methods.py --table

With `--photos` training sees a random part of the training photos alone; larger parts contain
smaller ones. Validation and test stay whole.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
from methods_table import (
    JUDGED,
    PEOPLE,
    RESULTS,
    SHORTEST_FIRST,
    SIDES,
    WITHOUT_SEEDS,
    methods_of,
    parts_of,
    print_columns,
    read_lines,
    recalls,
    rows_of,
    write_csv,
)

from data_pipelines.batches import feature_batches, image_batches
from data_pipelines.records import SplitRecords
from data_pipelines.sources.coco import Flickr8kSource
from keras_xmr.experiments.config.loader import load_config
from keras_xmr.experiments.config.packaged_configs import find_config, packaged_configs
from keras_xmr.experiments.config.schema import Config
from keras_xmr.experiments.evaluation.evaluate import evaluate_matrices, evaluate_split
from keras_xmr.experiments.evaluation.scoring import score_tiles
from keras_xmr.experiments.evaluation.split_embeddings import embed_split
from keras_xmr.experiments.evaluation.split_evaluation import EmbeddedSplit, Evaluation
from keras_xmr.experiments.experiment import Experiment
from keras_xmr.metrics.chance import chance
from keras_xmr.metrics.score_matrices import ScoreMatrices
from keras_xmr.reranking import CSLS, FastReranking, ScoreBank

_OF_PEOPLE = ("judged", "expected")
CORRECTED = ("csv_pretrained_msrm",)
"""Methods that are measured with the correction for hubs, too."""
METHODS = tuple(name for name in packaged_configs() if name.startswith("csv_pretrained"))
VARIANTS = {
    f"{name}_{pixels}_pixels": (name, f"data.image.size={pixels}", f"data.image.resize={pixels}")
    for name, pixels in (("csv_pretrained", 256), ("csv_pretrained_trained", 352))
}
"""Further methods: a config, and its changes. Encoders that train see 256 pixels, and frozen ones
352; these are the other way round."""

_IMAGE_RIDGES = (3.0, 10.0, 30.0, 100.0)
_CAPTION_RIDGES = (0.3, 1.0, 3.0, 10.0)
_EXPONENTS = (0.0, 0.5, 1.0)
_DIMENSIONS = (64, 128, 256)
_BATCH, _RATE, _TEMPERATURES, _DROPOUT = 512, 1e-3, (0.035, 0.05), (0.6, 0.1)


@dataclass(frozen=True)
class Pairs:
    """Images and their captions.

    Attributes:
        images: Vectors (N, F) at unit length.
        captions: Vectors (M, G) at unit length.
        image_ids: The row of the image of each caption, (M,).
    """

    images: np.ndarray
    captions: np.ndarray
    image_ids: np.ndarray

    def own(self) -> np.ndarray:
        """The mean of the captions of each image, (N, G)."""
        total = np.zeros((len(self.images), self.captions.shape[1]))
        np.add.at(total, self.image_ids, self.captions)
        return total / np.bincount(self.image_ids, minlength=len(total))[:, None]


Scores = np.ndarray | tuple[np.ndarray, np.ndarray]
"""Scores (N, M) of images and captions, or one such matrix for each side as queries."""
Embedded = Sequence[Sequence[np.ndarray]]
"""Unit vectors of images and captions of train, with one caption each, of dev and of test."""


def unit(vectors: np.ndarray) -> np.ndarray:
    """Vectors at unit length."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


def ranks(scores: Scores, image_ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ranks, from 1, of the best own caption of an image and of the image of a caption.

    Ties count against.

    Args:
        scores: Scores of images and captions.
        image_ids: The row of the image of each caption, (M,).

    Returns:
        The rank of each image (N,) and of each caption (M,).
    """
    i2t, t2i = scores if isinstance(scores, tuple) else (scores, scores)
    own = image_ids == np.arange(len(i2t))[:, None]
    best = np.where(own, i2t, -np.inf).max(axis=1)
    to_captions = (np.where(own, -np.inf, i2t) >= best[:, None]).sum(axis=1) + 1
    right = t2i[image_ids, np.arange(len(image_ids))]
    return to_captions, (t2i >= right).sum(axis=0)


def cosines(images: np.ndarray, captions: np.ndarray, *_: np.ndarray) -> np.ndarray:
    """Cosines of unit vectors, (N, M)."""
    return images @ captions.T


def csls(
    images: np.ndarray, captions: np.ndarray, train_images: np.ndarray, train_captions: np.ndarray
) -> np.ndarray:
    """Cosines, less half of the mean cosine of each item with its 10 nearest training items.

    Cross-domain similarity local scaling (Conneau et al. 2018, section 2.3), (N, M) of unit
    vectors; the neighbours of images are captions, and neighbours of captions are images.
    """
    of_images, of_captions = (
        np.partition(own @ others.T, -min(10, len(others)), axis=1)[:, -10:].mean(axis=1)
        for own, others in ((images, train_captions), (captions, train_images))
    )
    return images @ captions.T - (of_images[:, None] + of_captions) / 2


def reranked(
    scale: float, images: np.ndarray, captions: np.ndarray, *_: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Fast re-ranking, which reads all test queries at once (Wei et al. 2023, Eq. 14)."""
    scales = dict.fromkeys(("gamma1", "gamma2", "lambda1", "lambda2"), scale)
    return FastReranking(**scales)(images @ captions.T)


CORRECTIONS: dict[str, Sequence[Callable[..., Scores]]] = {
    "": [cosines],
    "_csls": [csls],
    "_reranked": [partial(reranked, scale) for scale in (10, 15, 20, 30, 40)],
}


def cca(train: Pairs, dev: Pairs, test: Pairs, seed: int) -> Embedded:
    """Regularised canonical correlation analysis, in closed form (Vinod 1976).

    Two ridges, the number of directions, and the power of its correlation that each is weighted
    with (Gong et al. 2014, section 3.1).
    """
    means = train.images.mean(axis=0), train.captions.mean(axis=0)
    one = np.unique(train.image_ids, return_index=True)[1]

    def mapped(images: np.ndarray, captions: np.ndarray, *maps: np.ndarray) -> list[np.ndarray]:
        sides = zip((images, captions), means, maps, strict=True)
        return [unit((side - mean) @ matrix) for side, mean, matrix in sides]

    def rsum(maps: tuple[np.ndarray, np.ndarray]) -> float:
        scores = cosines(*mapped(dev.images, dev.captions, *maps))
        return float(recalls(ranks(scores, dev.image_ids)).sum())

    best = max(((rsum(maps), maps) for maps in _cca_maps(train)), key=lambda each: each[0])[1]
    sides = ((train.images, train.captions[one]), (dev.images, dev.captions))
    return [mapped(*side, *best) for side in (*sides, (test.images, test.captions))]


def dual_encoder(train: Pairs, dev: Pairs, test: Pairs, seed: int, epochs: int = 30) -> Embedded:
    """A linear map a side to 256 numbers, trained with symmetric InfoNCE and AdamW.

    Inputs are centred and scaled to a mean square of 1. The temperature, the number of epochs, and
    whether images are square roots are chosen on dev.

    Args:
        train: What it learns from.
        dev: What chooses.
        test: What is ranked.
        seed: Seed of weights, batches and dropout.
        epochs: The largest number of epochs.
    """
    rooted = tuple(_roots(pairs) for pairs in (train, dev, test))
    found = [
        _train_dual_encoder(splits, temperature, seed, epochs)
        for temperature in _TEMPERATURES
        for splits in ((train, dev, test), rooted)
    ]
    return max(found, key=lambda each: each[0])[1]


def _train_dual_encoder(
    splits: tuple[Pairs, Pairs, Pairs],
    temperature: float,
    seed: int,
    epochs: int,
) -> tuple[float, Embedded]:
    """RSUM on dev, and what the epoch embeds whose cosines are the best there."""
    random = np.random.default_rng(seed)
    train, dev, test = splits
    (x, y), (dev_x, dev_y), (test_x, test_y) = (
        [side.astype(np.float32) for side in sides] for sides in _scaled(train, dev, test)
    )
    sides = [_Linear(x.shape[1], random), _Linear(y.shape[1], random)]
    captions_of = [np.flatnonzero(train.image_ids == i) for i in range(len(x))]
    batch = min(_BATCH, len(x))
    steps = max(1, len(y) // batch)
    best: tuple[float, Any, Any] = (-1.0, None, None)
    for epoch in range(epochs):
        for step in range(steps):
            images = random.permutation(len(x))[:batch]
            captions = [random.choice(captions_of[i]) for i in images]
            rate = _RATE * 0.5 * (1 + np.cos(np.pi * (epoch + step / steps) / epochs))
            _info_nce_step(sides, x[images], y[captions], random, temperature, rate)
        left, right = (side.weights for side in sides)
        found = ranks(unit(dev_x @ left) @ unit(dev_y @ right).T, dev.image_ids)
        rsum = float(recalls(found).sum())
        if rsum > best[0]:
            best = rsum, left.copy(), right.copy()
    rsum, left, right = best
    one = y[[captions[0] for captions in captions_of]]
    sides = ((x, one), (dev_x, dev_y), (test_x, test_y))
    return rsum, [(unit(images @ left), unit(captions @ right)) for images, captions in sides]


EMBEDDERS: dict[str, Callable[..., Embedded]] = {"cca": cca, "dual_encoder": dual_encoder}
BASELINES = {
    name + correction: (parts, correction)
    for name, parts in (*((n, (n,)) for n in EMBEDDERS), ("sum", tuple(EMBEDDERS)))
    for correction in CORRECTIONS
}
"""Baselines by name: what embeds, and the correction of the scores."""
PLAIN = ("chance", SHORTEST_FIRST, *BASELINES)


def measure_baseline(
    embedded: Sequence[Embedded], correction: str, dev: Pairs
) -> tuple[float, Scores]:
    """RSUM on dev, and the scores of test, of a baseline or of the weighted sum of two.

    The weight, and the scale of a correction, are chosen on dev.

    Args:
        embedded: What one or two embed.
        correction: A key of `CORRECTIONS`.
        dev: The pairs of dev.
    """
    shares = [(1.0,)] if len(embedded) == 1 else [(w, 1 - w) for w in (0.3, 0.4, 0.5, 0.6, 0.7)]

    def scores(weights: Sequence[float], correct: Callable[..., Scores], split: int) -> Scores:
        parts = list(zip(weights, embedded, strict=True))
        train, own = (
            [np.concatenate([w**0.5 * e[n][side] for w, e in parts], axis=1) for side in range(2)]
            for n in (0, split)
        )
        return correct(*own, *train)

    def rsum(setting: tuple[Any, Any]) -> float:
        return float(recalls(ranks(scores(*setting, 1), dev.image_ids)).sum())

    found = [(rsum(each), each) for each in product(shares, CORRECTIONS[correction])]
    reached, best = max(found, key=lambda each: each[0])
    return reached, scores(*best, 2)


def _roots(pairs: Pairs) -> Pairs:
    roots = np.sign(pairs.images) * np.sqrt(np.abs(pairs.images))
    return Pairs(unit(roots), pairs.captions, pairs.image_ids)


def _cca_maps(train: Pairs) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The maps of images (F, K) and of captions (G, K) that `cca` chooses among."""
    images = train.images - train.images.mean(axis=0)
    captions = train.captions - train.captions.mean(axis=0)
    image_values, image_axes = _axes(images)
    caption_values, caption_axes = _axes(captions)
    own = train.own() - train.captions.mean(axis=0)
    between = image_axes.T @ (images.T @ own / len(images)) @ caption_axes
    image_variance, caption_variance = images.var(axis=0).mean(), captions.var(axis=0).mean()
    for image_ridge in _IMAGE_RIDGES:
        left = (image_values + image_ridge * image_variance) ** -0.5
        for caption_ridge in _CAPTION_RIDGES:
            right = (caption_values + caption_ridge * caption_variance) ** -0.5
            u, correlations, v = np.linalg.svd(left[:, None] * between * right, full_matrices=False)
            image, caption = image_axes @ (left[:, None] * u), caption_axes @ (right * v).T
            for exponent in _EXPONENTS:
                weights = correlations**exponent
                for k in _DIMENSIONS:
                    yield image[:, :k] * weights[:k], caption[:, :k] * weights[:k]


def _axes(centred: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Variances (R,) along the principal axes (F, R) of centred rows."""
    if len(centred) > centred.shape[1]:
        values, axes = np.linalg.eigh(centred.T @ centred / len(centred))
        return np.maximum(values, 0), axes
    _, values, axes = np.linalg.svd(centred, full_matrices=False)
    return values**2 / len(centred), axes.T


def _scaled(*splits: Pairs) -> list[tuple[np.ndarray, np.ndarray]]:
    """Images and captions of each split, by mean and mean square of the first."""
    means = splits[0].images.mean(axis=0), splits[0].captions.mean(axis=0)
    scales = [
        np.sqrt(np.mean((side - mean) ** 2))
        for side, mean in zip((splits[0].images, splits[0].captions), means, strict=True)
    ]
    return [
        ((pairs.images - means[0]) / scales[0], (pairs.captions - means[1]) / scales[1])
        for pairs in splits
    ]


class _Linear:
    """A linear map to 256 numbers with the state of AdamW."""

    def __init__(self, width: int, random: np.random.Generator) -> None:
        limit = np.sqrt(6 / (width + 256))
        self.weights = random.uniform(-limit, limit, (width, 256)).astype(np.float32)
        self._first = np.zeros_like(self.weights)
        self._second = np.zeros_like(self.weights)
        self._steps = 0

    def update(self, gradient: np.ndarray, rate: float, decay: float = 0.1) -> None:
        """A step of AdamW (Loshchilov & Hutter 2019, Algorithm 2)."""
        self._steps += 1
        self._first += 0.1 * (gradient - self._first)
        self._second += 0.001 * (gradient**2 - self._second)
        first = self._first / (1 - 0.9**self._steps)
        second = self._second / (1 - 0.999**self._steps)
        self.weights -= rate * (first / (np.sqrt(second) + 1e-8) + decay * self.weights)


def _info_nce_step(
    sides: list[_Linear],
    x: np.ndarray,
    y: np.ndarray,
    random: np.random.Generator,
    temperature: float,
    rate: float,
) -> None:
    inputs = [_dropped(side, random, part) for side, part in zip((x, y), _DROPOUT, strict=True)]
    outputs = [side @ linear.weights for side, linear in zip(inputs, sides, strict=True)]
    gradients = info_nce_gradients(*outputs, temperature)
    for linear, seen, gradient in zip(sides, inputs, gradients, strict=True):
        linear.update(seen.T @ gradient, rate)


def _dropped(side: np.ndarray, random: np.random.Generator, rate: float) -> np.ndarray:
    kept = random.random(side.shape, dtype=np.float32) >= rate
    return side * kept / np.float32(1 - rate)


def info_nce_gradients(
    images: np.ndarray, captions: np.ndarray, temperature: float = 0.1
) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of symmetric InfoNCE of cosines with respect to the embeddings of pairs.

    Args:
        images: Embeddings (B, D), of any length.
        captions: Embeddings (B, D); row i belongs to row i of the images.
        temperature: What cosines are divided by.
    """
    left, right = unit(images), unit(captions)
    logits = left @ right.T / temperature
    exponentials = np.exp(logits - logits.max())
    rows = exponentials / exponentials.sum(axis=1, keepdims=True)
    columns = exponentials / exponentials.sum(axis=0)
    slope = ((rows + columns) / 2 - np.eye(len(logits), dtype=logits.dtype)) / (
        len(logits) * temperature
    )
    return _through_unit(images, left, slope @ right), _through_unit(
        captions, right, slope.T @ left
    )


def _through_unit(vectors: np.ndarray, units: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    along = (gradient * units).sum(axis=1, keepdims=True)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (gradient - along * units) / np.maximum(norms, 1e-12)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs what is missing, and prints the tables."""
    options = parser_of(__doc__).parse_args(arguments)
    options.results.parent.mkdir(parents=True, exist_ok=True)
    if options.photos:
        options = with_fewer_photos(options)
    if options.flickr8k:
        _run_missing(options)
    methods = methods_of(read_lines(options.results))
    rows = list(rows_of(methods))
    parts = list(parts_of(methods))
    print_columns(rows)
    print_columns(parts)
    if options.csv:
        write_csv(rows, options.csv)
        write_csv(parts, options.csv.with_name("flickr8k_parts.csv"))


def with_fewer_photos(options: argparse.Namespace) -> argparse.Namespace:
    """Returns options of a folder of Flickr8K with a random part of its training photos."""
    few = options.work / f"{options.photos}_photos"
    few.mkdir(parents=True, exist_ok=True)
    lists = Flickr8kSource(root=options.flickr8k).train
    for path in options.flickr8k.iterdir():
        if path.name != lists and not (few / path.name).exists():
            (few / path.name).symlink_to(path.resolve())
    names = (options.flickr8k / lists).read_text("utf-8").split()
    drawn = np.random.default_rng(0).permutation(names)[: options.photos]
    (few / lists).write_text("".join(f"{name}\n" for name in drawn), "utf-8")
    results = options.results.with_name(f"flickr8k_{options.photos}_photos.jsonl")
    changes = {"flickr8k": few, "work": few / "work", "results": results}
    return argparse.Namespace(**vars(options) | changes)


def _run_missing(options: argparse.Namespace) -> None:
    done = {(line["method"], line["seed"]) for line in read_lines(options.results)}
    for seed in range(options.seeds):
        plain = [m for m in PLAIN if (m, seed) not in done and not (seed and m in WITHOUT_SEEDS)]
        for line in _lines_of_baselines(plain, seed, options):
            append(line, options)
        for method in options.methods:
            if (method, seed) not in done:
                for line in train(method, seed, options, method in CORRECTED):
                    append(line, options)


def append(line: dict[str, Any], options: argparse.Namespace) -> None:
    """Appends a line to the results (of part of the photos its ranks), and prints its RSUM."""
    kept = {key: value for key, value in line.items() if not (options.photos and key in _OF_PEOPLE)}
    with options.results.open("a") as file:
        file.write(json.dumps(kept) + "\n")
    rsum = recalls(tuple(map(np.array, line["ranks"]))).sum()
    print(f"{line['method']} seed {line['seed']}: test RSUM {rsum:.1f}", flush=True)


def _config(method: str, seed: int, options: argparse.Namespace, *last: str) -> Config:
    """The config of a method with the data and the judgements of Flickr8K.

    Args:
        method: The name of the config, or of a variant.
        seed: The seed.
        options: Options of the command line.
        *last: Further texts `key=value`, which come last.
    """
    work = options.work
    name, *changes = VARIANTS.get(method, (method,))
    sets = [
        f"data.source={{name: flickr8k, root: {json.dumps(str(options.flickr8k))}}}",
        "evaluation.judgements=[crowd, experts]",
        f"data.records={work / 'records'}",
        f"output={work / 'runs'}",
        f"name={method}-seed{seed}",
        f"seed={seed}",
        f"model.image.encoder.preset={options.image_preset}",
        f"model.text.encoder.preset={options.text_preset}",
        *changes,
        *options.set,
        *last,
    ]
    return load_config(find_config(name), sets)


def _prepared(config: Config) -> Experiment:
    run = Experiment(config)
    if not config.data.is_prepared:
        run.prepare()
    return run


def train(
    method: str, seed: int, options: argparse.Namespace, with_csls: bool = False
) -> list[dict[str, Any]]:
    """Trains and measures a method.

    Args:
        method: The name of a config.
        seed: The seed.
        options: Options of the command line.
        with_csls: Whether to measure with the correction for hubs, too.

    Returns:
        Lines of results; its own comes last and says that all are there.
    """
    config = _config(method, seed, options)
    run = _prepared(config)
    begin = time.perf_counter(), time.process_time()
    run.train()
    seconds = _seconds(begin)
    best = json.loads(run.folder.done.read_text("utf-8"))["best"]
    evaluation = evaluate_split(run.retriever, run.embedded_records, "test", run.tokenizer, config)
    lines = [_line(method, seed, best, evaluation) | seconds]
    if with_csls:
        corrected = _csls_of(run, evaluation.embedded)
        lines.insert(0, _line(f"{method}, CSLS", seed, None, corrected) | seconds)
    keras.backend.clear_session()
    shutil.rmtree(config.folder)
    return lines


def _csls_of(run: Experiment, test: EmbeddedSplit) -> Evaluation:
    """Test again, by CSLS with a bank of the training photos and a caption of each."""
    config, split = run.config, run.embedded_records.split("train")
    train = embed_split(run.retriever, split, run.tokenizer, config)
    one = np.unique(split.caption_image, return_index=True)[1]
    captions = {name: values[one] for name, values in train.captions.items()}
    pairs = (train.images, test.captions), (test.images, captions), (test.images, test.captions)
    i2t, t2i, scores = (
        np.asarray(score_tiles(run.retriever.matcher, *pair, config.evaluation.tile).image_to_text)
        for pair in pairs
    )
    found = ScoreMatrices.of(CSLS(ScoreBank(i2t, t2i.T))(scores))
    part = run.embedded_records.split("test")
    return evaluate_matrices([("csls", found)], run.records, part, config)


def _lines_of_baselines(
    names: Sequence[str], seed: int, options: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """Measures baselines on the features of all methods but the local ones."""
    if not names:
        return
    run, splits, pairs = _features(seed, options)
    embed = cache(lambda name: EMBEDDERS[name](*pairs, seed))
    for name in names:
        begin = time.perf_counter(), time.process_time()
        val: float | None = None
        scores: Scores
        if name == "chance":
            random = np.random.default_rng([seed, zlib.crc32(pairs[2].images.tobytes())])
            scores = random.random((len(pairs[2].images), len(pairs[2].captions)))
        elif name == SHORTEST_FIRST:
            scores = shortest_first(splits[2].texts, len(splits[2]))
        else:
            parts, correction = BASELINES[name]
            val, scores = measure_baseline([embed(part) for part in parts], correction, pairs[1])
        seconds = _seconds(begin)
        matrices = ScoreMatrices.of(scores)
        evaluation = evaluate_matrices([(name, matrices)], run.records, splits[2], run.config)
        yield _line(name, seed, val, evaluation) | seconds


def _features(
    seed: int, options: argparse.Namespace
) -> tuple[Experiment, list[SplitRecords], list[Pairs]]:
    """The splits train, val and test, and the features of all methods but the local ones."""
    # Nothing is trained: its poolings average the features, which the run computes.
    config = _config(
        "csv_pretrained_info_nce", seed, options, f"name=features-seed{seed}", "train.phases=[]"
    )
    run = _prepared(config)
    run.train()
    splits = [run.embedded_records.split(name) for name in ("train", "val", "test")]
    pairs = [_pairs(run, split) for split in splits]
    shutil.rmtree(config.folder)
    return run, splits, pairs


def _seconds(begin: tuple[float, float]) -> dict[str, float]:
    """Wall and processor time since then."""
    wall, processor = time.perf_counter() - begin[0], time.process_time() - begin[1]
    return {"wall_s": round(wall, 1), "processor_s": round(processor, 1)}


def _pairs(run: Experiment, split: SplitRecords) -> Pairs:
    """The inputs of the poolings of both towers: averages of the features of a run."""
    size = run.config.evaluation.batch_size
    captions: Any = split.caption_features
    batches = (
        image_batches(split, run.config.data.image, size),
        feature_batches(captions, np.arange(split.num_captions), size),
    )
    images, texts = (
        np.concatenate([tower.get_layer("head").global_pooling.average(batch) for batch in own])
        for tower, own in zip(
            (run.retriever.image_tower, run.retriever.text_tower), batches, strict=True
        )
    )
    return Pairs(images.astype(np.float64), texts.astype(np.float64), split.caption_image)


def _line(method: str, seed: int, val: float | None, evaluation: Any) -> dict[str, Any]:
    """Results of a run: ranks by the annotated pairs, and human judgements per query."""
    measured = evaluation.matchers[0].measured
    found = [getattr(measured.metrics, name).values["rank"] for name in SIDES.values()]
    judged = {
        people: {
            metric: {
                side: _known(getattr(measured.extra[people], name).values[metric])
                for side, name in SIDES.items()
            }
            for metric in JUDGED
        }
        for people in PEOPLE
    }
    expected = {
        people: {side: chance(measured.extra[people])[f"{side}_r_precision"] for side in SIDES}
        for people in PEOPLE
    }
    return {
        **{"method": method, "seed": seed, "val": val, "judged": judged},
        **({"expected": expected} if method == "chance" else {}),
        "ranks": [side.astype(int).tolist() for side in found],
    }


def _known(values: np.ndarray) -> dict[str, list[float]]:
    """The queries that have a value, and these."""
    queries = np.flatnonzero(~np.isnan(values))
    return {"queries": queries.tolist(), "values": values[queries].round(4).tolist()}


def shortest_first(texts: Sequence[str], images: int) -> np.ndarray:
    """Scores (images, captions): the shortest captions first, ties at random."""
    ties = np.random.default_rng(0).random((images, len(texts))) / 2
    few_words = -np.array([len(text.split()) for text in texts], np.float64)
    return few_words[None, :] + ties


def parser_of(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--flickr8k", type=Path, help="folder of Flickr8K as released")
    what.add_argument("--table", action="store_true", help="the table of finished runs alone")
    parser.add_argument("--work", type=Path, default=Path("data/flickr8k_methods"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--methods", type=lambda text: text.split(","), default=METHODS)
    parser.add_argument("--seeds", type=int, default=3, metavar="N")
    parser.add_argument("--photos", type=int, metavar="N", help="training photos; all by default")
    parser.add_argument("--image-preset", default="efficientnet_lite0_ra_imagenet")
    parser.add_argument("--text-preset", default="hf://sentence-transformers/all-MiniLM-L6-v2")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--csv", type=Path, help="writes all figures, and other tables beside it")
    return parser


if __name__ == "__main__":
    main()
