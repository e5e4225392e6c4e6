"""Plain baselines of image-text retrieval on pooled image features and sentence embeddings.

Everything is chosen on a development split, by the sum of its six recalls. NumPy alone, and none of
the project's code for training, so that what it is compared with is not itself.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_IMAGE_RIDGES = (3.0, 10.0, 30.0, 100.0)
_CAPTION_RIDGES = (0.3, 1.0, 3.0, 10.0)
EXPONENTS = (0.0, 0.5, 1.0)
DIMENSIONS = (64, 128, 256)
_STRENGTHS = 10.0 ** np.arange(-2, 3.5, 0.5)


@dataclass(frozen=True)
class Pairs:
    """Images and their captions.

    Attributes:
        images: Vectors (N, F) at unit length.
        captions: Vectors (M, G) at unit length.
        image_ids: The row of the image of each caption, (M,).
        layers: Of how many layers of the encoder a caption has features, side by side.
    """

    images: np.ndarray
    captions: np.ndarray
    image_ids: np.ndarray
    layers: int = 1

    def of_images(self, rows: np.ndarray) -> Pairs:
        """Some of the images, with their captions."""
        captions = [np.flatnonzero(self.image_ids == row) for row in rows]
        image_ids = np.repeat(np.arange(len(rows)), list(map(len, captions)))
        chosen = self.captions[np.concatenate(captions)]
        return Pairs(self.images[rows], chosen, image_ids, self.layers)

    def own(self) -> np.ndarray:
        """The mean of the captions of each image, (N, G)."""
        total = np.zeros((len(self.images), self.captions.shape[1]))
        np.add.at(total, self.image_ids, self.captions)
        return total / np.bincount(self.image_ids, minlength=len(total))[:, None]


Ranks = tuple[np.ndarray, np.ndarray]
Baseline = Callable[[Pairs, Pairs, Pairs, int], tuple[float, np.ndarray]]
"""Pairs that train, of dev and of test, and a seed: RSUM on dev, and scores (N, M) of test."""


def unit(vectors: np.ndarray) -> np.ndarray:
    """Vectors at unit length."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


def ranks(scores: np.ndarray, image_ids: np.ndarray) -> Ranks:
    """Ranks, from 1, of the best own caption of an image and of the image of a caption.

    Ties count against.

    Args:
        scores: (N, M), images by captions.
        image_ids: The row of the image of each caption, (M,).

    Returns:
        The rank of each image (N,) and of each caption (M,).
    """
    own = image_ids == np.arange(len(scores))[:, None]
    best = np.where(own, scores, -np.inf).max(axis=1)
    to_captions = (np.where(own, -np.inf, scores) >= best[:, None]).sum(axis=1) + 1
    right = scores[image_ids, np.arange(len(image_ids))]
    return to_captions, (scores >= right).sum(axis=0)


def recalls(found: Ranks) -> np.ndarray:
    """R@1, R@5, R@10 of images and then of captions, in percent, (6,)."""
    return np.array([100 * np.mean(side <= k) for side in found for k in (1, 5, 10)])


def csls(
    images: np.ndarray, captions: np.ndarray, train_images: np.ndarray, train_captions: np.ndarray
) -> np.ndarray:
    """Cosines, less half of the mean cosine of each item with its 10 nearest training items.

    Cross-domain similarity local scaling (Conneau et al. 2018, section 2.3), (N, M) of unit
    vectors; the neighbours of images are captions, and those of captions are images.
    """
    of_images, of_captions = (
        np.partition(own @ others.T, -min(10, len(others)), axis=1)[:, -10:].mean(axis=1)
        for own, others in ((images, train_captions), (captions, train_images))
    )
    return images @ captions.T - (of_images[:, None] + of_captions) / 2


def ridge_regression(train: Pairs, dev: Pairs, test: Pairs, seed: int) -> tuple[float, np.ndarray]:
    """Predicts the mean of an image's sentence embeddings from its features, in closed form."""
    return _best_maps(_ridge_maps(train), train, dev, test)


def cca(
    train: Pairs,
    dev: Pairs,
    test: Pairs,
    seed: int,
    exponents: Sequence[float] = EXPONENTS,
    dimensions: Sequence[int] = DIMENSIONS,
    local_scaling: bool = False,
) -> tuple[float, np.ndarray]:
    """Regularised canonical correlation analysis, in closed form (Vinod 1976).

    Two ridges, the number of directions, and the power of its correlation that each is weighted
    with (Gong et al. 2014, section 3.1).
    """
    return _best_maps(cca_maps(train, exponents, dimensions), train, dev, test, local_scaling)


def cca_csls(train: Pairs, dev: Pairs, test: Pairs, seed: int) -> tuple[float, np.ndarray]:
    """The same, whose scores are those of `csls`."""
    return cca(train, dev, test, seed, local_scaling=True)


def cca_of_roots(
    train: Pairs, dev: Pairs, test: Pairs, seed: int, **choices: Any
) -> tuple[float, np.ndarray]:
    """The same on square roots of the averages, for features that are nowhere negative."""
    return cca(*(_roots(pairs) for pairs in (train, dev, test)), seed, **choices)


def cca_of_last_layer(train: Pairs, dev: Pairs, test: Pairs, seed: int) -> tuple[float, np.ndarray]:
    """CCA on what the text encoder ends with alone: its sentence embeddings, as it was trained."""
    return cca(*(_last_layer(pairs) for pairs in (train, dev, test)), seed)


def dual_encoder(
    train: Pairs,
    dev: Pairs,
    test: Pairs,
    seed: int,
    epochs: float = 1.0,
    local_scaling: bool = False,
) -> tuple[float, np.ndarray]:
    """A linear map a side to 256 numbers, trained with symmetric InfoNCE and AdamW.

    Inputs are centred and scaled to a mean square of 1. Settings, the number of epochs, and
    whether images are square roots are chosen on dev.

    Args:
        train: What it learns from.
        dev: What chooses.
        test: What is ranked.
        seed: Seed of weights, batches and dropout.
        epochs: Factor of the epochs of all settings.
        local_scaling: Whether scores are those of `csls`.
    """
    rooted = tuple(_roots(pairs) for pairs in (train, dev, test))
    found = [
        _train_dual_encoder(splits, setting, seed, epochs, local_scaling)
        for setting in SETTINGS
        for splits in ((train, dev, test), rooted)
    ]
    return max(found, key=lambda each: each[0])


def dual_encoder_csls(
    train: Pairs, dev: Pairs, test: Pairs, seed: int, epochs: float = 1.0
) -> tuple[float, np.ndarray]:
    """The same, whose scores are those of `csls`."""
    return dual_encoder(train, dev, test, seed, epochs, local_scaling=True)


@dataclass(frozen=True)
class Setting:
    """Training of a dual encoder: epochs of a number of steps, or of every caption."""

    batch: int
    epochs: int
    rate: float
    temperature: float
    image_dropout: float
    caption_dropout: float
    steps: int | None = None
    falls: bool = True


SETTINGS = (
    # Best on 500 photos: 25 steps an epoch, as so many have, however few there are.
    Setting(100, 36, 3e-4, 0.1, 0.6, 0.6, steps=25, falls=False),
    # Best on 6,000.
    Setting(512, 30, 1e-3, 0.05, 0.6, 0.1),
)


def _train_dual_encoder(
    splits: tuple[Pairs, Pairs, Pairs],
    setting: Setting,
    seed: int,
    epochs: float,
    local_scaling: bool,
) -> tuple[float, np.ndarray]:
    """RSUM on dev, and the scores of test, of the epoch whose cosines are the best on dev."""
    random = np.random.default_rng(seed)
    train, dev, test = splits
    (x, y), (dev_x, dev_y), (test_x, test_y) = (
        [side.astype(np.float32) for side in sides] for sides in _scaled(train, dev, test)
    )
    sides = [_Linear(x.shape[1], random), _Linear(y.shape[1], random)]
    captions_of = [np.flatnonzero(train.image_ids == i) for i in range(len(x))]
    batch = min(setting.batch, len(x))
    steps = setting.steps or max(1, len(y) // batch)
    count = max(1, round(setting.epochs * epochs))
    best: tuple[float, Any, Any] = (-1.0, None, None)
    for epoch in range(count):
        for step in range(steps):
            images = random.permutation(len(x))[:batch]
            captions = [random.choice(captions_of[i]) for i in images]
            done = (epoch + step / steps) / count if setting.falls else 0.0
            rate = setting.rate * 0.5 * (1 + np.cos(np.pi * done))
            _info_nce_step(sides, x[images], y[captions], random, setting, rate)
        left, right = (side.weights for side in sides)
        found = ranks(unit(dev_x @ left) @ unit(dev_y @ right).T, dev.image_ids)
        rsum = float(recalls(found).sum())
        if rsum > best[0]:
            best = rsum, left.copy(), right.copy()
    _, left, right = best
    one = y[[captions[0] for captions in captions_of]]
    seen = [unit(x @ left), unit(one @ right)] if local_scaling else []
    sides = [
        _scores([unit(images @ left), unit(captions @ right)], seen)
        for images, captions in ((dev_x, dev_y), (test_x, test_y))
    ]
    return float(recalls(ranks(sides[0], dev.image_ids)).sum()), sides[1]


def chance(train: Pairs, dev: Pairs, test: Pairs, seed: int) -> tuple[float, np.ndarray]:
    """Random scores, of each test split its own."""
    random = np.random.default_rng([seed, zlib.crc32(test.images.tobytes())])
    first, scores = (random.random((len(p.images), len(p.captions))) for p in (dev, test))
    return float(recalls(ranks(first, dev.image_ids)).sum()), scores


BASELINES: dict[str, Baseline] = {
    "chance": chance,
    "ridge": ridge_regression,
    "dual_encoder": dual_encoder,
    "dual_encoder_csls": dual_encoder_csls,
    "cca_of_last_layer": cca_of_last_layer,
    "cca": cca,
    "cca_csls": cca_csls,
    "cca_of_roots": cca_of_roots,
}


def _roots(pairs: Pairs) -> Pairs:
    roots = np.sign(pairs.images) * np.sqrt(np.abs(pairs.images))
    return Pairs(unit(roots), pairs.captions, pairs.image_ids)


def _last_layer(pairs: Pairs) -> Pairs:
    width = pairs.captions.shape[1] // pairs.layers
    return Pairs(pairs.images, unit(pairs.captions[:, -width:]), pairs.image_ids)


def _scores(vectors: Sequence[np.ndarray], seen: Sequence[np.ndarray]) -> np.ndarray:
    """Cosines of images and captions, or those of `csls` if there are training items."""
    return csls(*vectors, *seen) if seen else vectors[0] @ vectors[1].T


def _best_maps(
    maps: Iterator[tuple[np.ndarray, np.ndarray]],
    train: Pairs,
    dev: Pairs,
    test: Pairs,
    local_scaling: bool = False,
) -> tuple[float, np.ndarray]:
    """RSUM on dev, and scores of test, of the pair of linear maps that is best on dev."""
    means = train.images.mean(axis=0), train.captions.mean(axis=0)
    one = np.unique(train.image_ids, return_index=True)[1]

    def mapped(images: np.ndarray, captions: np.ndarray, *maps: np.ndarray) -> list[np.ndarray]:
        sides = zip((images, captions), means, maps, strict=True)
        return [unit((side - mean) @ matrix) for side, mean, matrix in sides]

    def rsum(pair: tuple[np.ndarray, np.ndarray], seen: Sequence[np.ndarray] = ()) -> float:
        scores = _scores(mapped(dev.images, dev.captions, *pair), seen)
        return float(recalls(ranks(scores, dev.image_ids)).sum())

    reached, best = max(((rsum(pair), pair) for pair in maps), key=lambda each: each[0])
    seen = mapped(train.images, train.captions[one], *best) if local_scaling else []
    scores = _scores(mapped(test.images, test.captions, *best), seen)
    return rsum(best, seen) if seen else reached, scores


def _ridge_maps(train: Pairs) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    images = train.images - train.images.mean(axis=0)
    target = train.own() - train.captions.mean(axis=0)
    values, vectors = np.linalg.eigh(images @ images.T)
    same = np.eye(target.shape[1])
    for strength in _STRENGTHS:
        damped = 1 / (np.maximum(values, 0) + strength * values.mean())
        yield images.T @ ((vectors * damped) @ (vectors.T @ target)), same


def cca_maps(
    train: Pairs,
    exponents: Sequence[float] = EXPONENTS,
    dimensions: Sequence[int] = DIMENSIONS,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
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
            for exponent in exponents:
                weights = correlations**exponent
                for k in dimensions:
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
    setting: Setting,
    rate: float,
) -> None:
    dropouts = setting.image_dropout, setting.caption_dropout
    inputs = [_dropped(side, random, part) for side, part in zip((x, y), dropouts, strict=True)]
    outputs = [side @ linear.weights for side, linear in zip(inputs, sides, strict=True)]
    gradients = info_nce_gradients(*outputs, setting.temperature)
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
