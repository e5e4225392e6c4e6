"""How sigma grows where less of an image, or of a caption, is left (Chun et al. 2021, Fig. 7)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from keras_xmr.evaluation.uncertainty import log_sigma

SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
"""The parts of an image that are erased, or of the words of a caption that are dropped."""

GREY = 127
"""The colour of what is erased."""


class Embedder(Protocol):
    """What embeds pixels and texts, such as `keras_xmr.index.run_model.RunModel`."""

    def embed_pixels(self, pixels: np.ndarray) -> Mapping[str, np.ndarray]:
        """The embeddings of pixels uint8 (N, size, size, 3)."""

    def embed_texts(self, texts: Sequence[str]) -> Mapping[str, np.ndarray]:
        """The embeddings of texts."""


@dataclass(frozen=True, eq=False)
class Damage:
    """Sigma of damaged items, as a multiple of that of the same items undamaged.

    Attributes:
        shares: How much of each item was taken away.
        ratio: The geometric mean of the multiples, for each share.
        low: Lower end of its 95 % interval.
        high: Its upper end.
        items: How many items were damaged.
    """

    shares: tuple[float, ...]
    ratio: np.ndarray
    low: np.ndarray
    high: np.ndarray
    items: int

    @property
    def grows(self) -> bool:
        """Whether sigma is surely larger where most was taken away, by 1 % or more."""
        return bool(self.low[-1] >= 1.01)


@dataclass(frozen=True)
class Probes:
    """What was found of uncertainty by embedding again.

    Attributes:
        damage: For "image" and "caption": what less of an item does to its sigma.
        coverage: How answer sets keep their promise, a `keras_xmr.index.coverage.Coverage`.
        mixtures: What mixed images include, a `keras_xmr.evaluation.mixtures.Mixtures`.
    """

    damage: dict[str, Damage] = field(default_factory=dict)
    coverage: Any = None
    mixtures: Any = None


def erase_images(
    model: Embedder,
    pixels: np.ndarray,
    seed: int = 0,
    whole: Mapping[str, np.ndarray] | None = None,
) -> Damage | None:
    """Erases squares, each somewhere else, and every larger one around the smaller.

    Args:
        model: Embeds them.
        pixels: Images uint8 (N, size, size, 3).
        seed: Seed of where the squares lie.
        whole: The embeddings of the images as they are, if these are known.

    Returns:
        What it does to sigma; None if the model has none.
    """
    centres = np.random.default_rng(seed).uniform(size=(len(pixels), 2))
    return _damage(lambda share: model.embed_pixels(erased(pixels, share, centres)), whole)


def drop_from_captions(
    model: Embedder,
    texts: Sequence[str],
    seed: int = 0,
    whole: Mapping[str, np.ndarray] | None = None,
) -> Damage | None:
    """Drops random words, and for a larger share the same ones and others.

    Args:
        model: Embeds them.
        texts: Captions.
        seed: Seed of the order in which words go.
        whole: The embeddings of the captions as they are, if these are known.

    Returns:
        What it does to sigma; None if the model has none.
    """
    return _damage(lambda share: model.embed_texts(dropped(texts, share, seed)), whole)


def erased(pixels: np.ndarray, share: float, centres: np.ndarray) -> np.ndarray:
    """Images with a grey square, as uint8 (N, size, size, 3).

    Args:
        pixels: Images uint8 (N, size, size, 3).
        share: The part of the area that is erased.
        centres: Where each square lies, from 0 to 1 of the room that it has, (N, 2).
    """
    size = pixels.shape[1]
    side = round(size * share**0.5)
    found = pixels.copy()
    for image, (top, left) in zip(found, (centres * (size - side)).astype(int), strict=True):
        image[top : top + side, left : left + side] = GREY
    return found


def dropped(texts: Sequence[str], share: float, seed: int = 0) -> list[str]:
    """Captions without the given share of their words; at least one stays."""
    random = np.random.default_rng(seed)
    left = []
    for text in texts:
        words = text.split()
        order = random.permutation(len(words))
        kept = np.sort(order[min(round(share * len(words)), max(len(words) - 1, 0)) :])
        left.append(" ".join(words[word] for word in kept))
    return left


def _damage(
    embed: Callable[[float], Mapping[str, np.ndarray]], whole: Mapping[str, np.ndarray] | None
) -> Damage | None:
    """Sigma of items of which `embed` takes a share away; `whole` are those of which none is."""
    first = log_sigma(embed(SHARES[0]) if whole is None else whole)
    if first is None:
        return None
    others: list[Any] = [log_sigma(embed(share)) for share in SHARES[1:]]
    found = np.stack([first, *others])
    growth = found - found[0]
    mean = growth.mean(axis=1)
    error = growth.std(axis=1, ddof=1) / np.sqrt(growth.shape[1]) if growth.shape[1] > 1 else np.inf
    low, high = mean - 1.96 * error, mean + 1.96 * error
    return Damage(SHARES, np.exp(mean), np.exp(low), np.exp(high), growth.shape[1])
