"""Embeddings of changed items: growth of sigma with occlusion, and inclusion in mixed images."""

from __future__ import annotations

import string
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from keras_xmr.experiments.evaluation.uncertainty.assessment import log_sigma
from keras_xmr.utils.vectors import select

SHARES = (0.0, 0.1, 0.3, 0.5, 0.7)
"""Shares of an image that are erased, or of the words of a caption that are dropped."""

GREY = 127
"""Colour of erased pixels."""


Embed = Callable[[Any], Mapping[str, np.ndarray]]
"""Embeds pixels uint8 (N, size, size, 3), or texts."""


@dataclass(frozen=True, eq=False)
class Occlusion:
    """Sigma of items with parts removed, as a multiple of sigma of the same items unchanged.

    Attributes:
        shares: The share of each item that was removed.
        ratio: The geometric mean of the multiples per share.
        low: Lower end of its 95 % interval.
        high: The upper end.
        items: Number of items.
    """

    shares: tuple[float, ...]
    ratio: np.ndarray
    low: np.ndarray
    high: np.ndarray
    items: int

    @property
    def grows(self) -> bool:
        """True if sigma is significantly larger at the largest share, by 1 % or more."""
        return bool(self.low[-1] >= 1.01)


class WordEffect(NamedTuple):
    """Sigma of captions with a word, as a multiple of sigma of the same captions without it.

    Attributes:
        word: The word, in lower case.
        ratio: The geometric mean of the multiples; above 1 the word makes captions less certain.
        low: Lower end of its 95 % interval.
        high: The upper end.
        captions: Number of captions with the word.
    """

    word: str
    ratio: float
    low: float
    high: float
    captions: int


@dataclass(frozen=True, eq=False)
class Probes:
    """Results of embedding changed items.

    Attributes:
        occlusion: Growth of sigma for "image" and "text".
        mixtures: Inclusion in mixed images; see `mix_images`.
        words: Effects of single words on sigma; see `leave_out_words`.
    """

    occlusion: dict[str, Occlusion] = field(default_factory=dict)
    mixtures: Mapping[str, np.ndarray] | None = None
    words: Sequence[WordEffect] = ()


def erase_images(
    embed: Embed, pixels: np.ndarray, whole: Mapping[str, np.ndarray] | None = None
) -> Occlusion | None:
    """Erases squares at random places, each larger one around the smaller.

    Args:
        embed: Embeds pixels.
        pixels: Images uint8 (N, size, size, 3).
        whole: The embeddings of the unchanged images, if known.

    Returns:
        The growth of sigma; None if the model has no sigma.
    """
    centres = np.random.default_rng(0).uniform(size=(len(pixels), 2))
    return _occlude(lambda share: embed(erased(pixels, share, centres)), whole)


def drop_from_captions(
    embed: Embed, texts: Sequence[str], whole: Mapping[str, np.ndarray] | None = None
) -> Occlusion | None:
    """Drops random words, and for a larger share the same ones and others.

    Args:
        embed: Embeds texts.
        texts: Captions.
        whole: The embeddings of the unchanged captions, if known.

    Returns:
        The growth of sigma; None if the model has no sigma.
    """
    # It imports TensorFlow, which the results of an evaluation do without.
    from data_pipelines.text import dropped

    return _occlude(lambda share: embed(dropped(texts, share)), whole)


FEWEST = 5
"""Captions that a word needs for an effect on sigma."""


def leave_out_words(
    embed: Embed, texts: Sequence[str], whole: Mapping[str, np.ndarray] | None = None
) -> list[WordEffect]:
    """Leaves out each word of captions, one at a time (Chun et al. 2021, section F.2).

    Args:
        embed: Embeds texts.
        texts: Captions.
        whole: The embeddings of the unchanged captions, if known.

    Returns:
        The effects of words that are in `FEWEST` captions or more, the smallest ratio first; empty
        if the model has no sigma.
    """
    shorter, owners, words = [], [], []
    for number, text in enumerate(texts):
        written = text.split()
        for place, one in enumerate(written):
            word = one.strip(string.punctuation).lower()
            if word and len(written) > 1:
                shorter.append(" ".join([*written[:place], *written[place + 1 :]]))
                owners.append(number)
                words.append(word)
    if not shorter:
        return []
    first = log_sigma(embed(list(texts)) if whole is None else whole)
    without = log_sigma(embed(shorter))
    if first is None or without is None:
        return []
    # Of a word that a caption has twice, the mean.
    changes: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for word, owner, change in zip(words, owners, first[owners] - without, strict=True):
        changes[word][owner].append(float(change))
    effects = [
        _effect(word, np.array([np.mean(values) for values in by_caption.values()]))
        for word, by_caption in changes.items()
        if len(by_caption) >= FEWEST
    ]
    return sorted(effects, key=lambda effect: (effect.ratio, effect.word))


def _effect(word: str, changes: np.ndarray) -> WordEffect:
    mean, error = changes.mean(), changes.std(ddof=1) / np.sqrt(len(changes))
    low, high = np.exp([mean - 1.96 * error, mean + 1.96 * error])
    return WordEffect(word, float(np.exp(mean)), float(low), float(high), len(changes))


def erased(pixels: np.ndarray, share: float, centres: np.ndarray) -> np.ndarray:
    """Returns images with a grey square, as uint8 (N, size, size, 3).

    Args:
        pixels: Images uint8 (N, size, size, 3).
        share: The part of the area that is erased.
        centres: The place of each square, from 0 to 1 of the free space, (N, 2).
    """
    size = pixels.shape[1]
    side = round(size * share**0.5)
    images = pixels.copy()
    for image, (top, left) in zip(images, (centres * (size - side)).astype(int), strict=True):
        image[top : top + side, left : left + side] = GREY
    return images


def _occlude(
    embed: Callable[[float], Mapping[str, np.ndarray]], whole: Mapping[str, np.ndarray] | None
) -> Occlusion | None:
    """Returns the growth of sigma of items of which `embed` removes a share, from `whole` ones."""
    first = log_sigma(embed(SHARES[0]) if whole is None else whole)
    if first is None:
        return None
    others: list[Any] = [log_sigma(embed(share)) for share in SHARES[1:]]
    growth = np.stack([first, *others]) - first
    mean = growth.mean(axis=1)
    error = growth.std(axis=1, ddof=1) / np.sqrt(growth.shape[1]) if growth.shape[1] > 1 else np.inf
    low, high = mean - 1.96 * error, mean + 1.96 * error
    return Occlusion(SHARES, np.exp(mean), np.exp(low), np.exp(high), growth.shape[1])


PAIRS = {
    "halves, in their mixture": "mixture",
    "other images, in the mixture": "mixture",
    "whole images, in their left half": "half",
    "other images, in the left half": "half",
}
"""The compared pairs, and the changed image that is the outer one."""


def mix_images(
    embed: Embed, pixels: np.ndarray, whole: Mapping[str, np.ndarray] | None = None
) -> dict[str, np.ndarray] | None:
    """Puts halves of two images together, and erases the right half of the first.

    Args:
        embed: Embeds pixels.
        pixels: Images uint8 (N, size, size, 3), of which every two are mixed.
        whole: The embeddings of the unchanged images, if known.

    Returns:
        By a name of `PAIRS`, the divergences of Gaussians from Gaussians of mixed and erased
        images: KL(inner, outer) of each pair of images, the mean over the dimensions, in nats. It
        is 0 of the same Gaussian, and small where the outer one has room for the inner one. None
        for a model without sigma, or for fewer than 6 images.
    """
    count = len(pixels) // 2
    first, second = pixels[: 2 * count : 2], pixels[1 : 2 * count : 2]
    if count < 3:
        return None
    middle = pixels.shape[2] // 2
    half, mixture = first.copy(), first.copy()
    half[:, :, middle:] = GREY
    mixture[:, :, middle:] = second[:, :, middle:]
    if whole is None:
        whole = embed(pixels[: 2 * count])
    if "log_variance" not in whole:
        return None
    outer = {"mixture": embed(mixture), "half": embed(half)}
    a, b = 2 * np.arange(count), 2 * np.arange(count) + 1
    others = np.roll(a, 1)
    inner = [(a, b), (others, np.roll(b, 1)), (a,), (others,)]
    return {
        name: np.mean([divergence(select(whole, rows), outer[of]) for rows in sides], axis=0)
        for (name, of), sides in zip(PAIRS.items(), inner, strict=True)
    }


def divergence(inner: Mapping[str, np.ndarray], outer: Mapping[str, np.ndarray]) -> np.ndarray:
    """Computes KL(inner, outer) of Gaussians, the mean over the dimensions: float (N,).

    Args:
        inner: N Gaussian embeddings.
        outer: N others, one per inner one.
    """
    log_v, log_w = (np.asarray(e["log_variance"], np.float64) for e in (inner, outer))
    apart = np.square(np.asarray(inner["mean"], np.float64) - outer["mean"])
    all_dimensions = log_w - log_v - 1 + np.exp(log_v - log_w) + apart * np.exp(-log_w)
    divergences: np.ndarray = 0.5 * all_dimensions.mean(axis=1)
    return divergences
