"""Plain, slow, float64 readings of the losses over scores and sets, one query at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np


def both(direction: Callable[..., float], scores: np.ndarray, positives: np.ndarray) -> float:
    """The sum of a loss over both directions."""
    return direction(scores, positives) + direction(scores.T, positives.T)


def queries(scores: np.ndarray, positives: np.ndarray) -> Iterator[tuple[np.ndarray, list, list]]:
    """Of each query that has one: its scores, its positives, its negatives."""
    for row, right in zip(scores, positives, strict=True):
        if right.any():
            yield row, list(np.flatnonzero(right)), list(np.flatnonzero(~right))


def triplet(margin: float, mining: str, mean: bool) -> Callable[..., float]:
    """One direction of the triplet loss: Faghri et al. 2018, Eq. 5 and 6; Hermans et al. 2017."""

    def direction(scores: np.ndarray, positives: np.ndarray) -> float:
        total, count = 0.0, 0
        for row, right, wrong in queries(scores, positives):
            for p in right:
                hinges = [max(0.0, margin + row[n] - row[p]) for n in wrong]
                violating = [hinge for hinge in hinges if hinge > 0] or [0.0]
                total += {
                    "sum": sum(hinges),
                    "mean": sum(violating) / len(violating),
                    "hardest": max(violating),
                }[mining]
                count += len(row) if mining == "sum" else 1
        return total / count if mean else total

    return direction


def smooth_ap(temperature: float) -> Callable[..., float]:
    """Half of one direction of 1 - Smooth-AP: Bleeker and de Rijke 2022, Eq. 2 to 5."""

    def direction(scores: np.ndarray, positives: np.ndarray) -> float:
        found = []
        for row, right, _ in queries(scores, positives):
            precision = []
            for p in right:
                above = 1 / (1 + np.exp(-(row - row[p]) / temperature))
                others = [c for c in range(len(row)) if c != p]
                rank = 1 + sum(above[c] for c in others)
                precision.append((1 + sum(above[c] for c in others if c in right)) / rank)
            found.append(1 - np.mean(precision))
        return 0.5 * float(np.mean(found))

    return direction


def contrastive(temperature: float, others: bool) -> Callable[..., float]:
    """Half of one direction of a cross entropy; with the other positives below the line or not."""

    def direction(scores: np.ndarray, positives: np.ndarray) -> float:
        found = []
        for row, right, wrong in queries(scores / temperature, positives):
            entropy = []
            for p in right:
                below = right + wrong if others else [p, *wrong]
                entropy.append(np.log(np.sum(np.exp(row[below] - row[p]))))
            found.append(np.mean(entropy))
        return 0.5 * float(np.mean(found))

    return direction


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def diversity(image: np.ndarray, caption: np.ndarray) -> float:
    """Song and Soleymani 2019, Eq. 7, of residuals (N, K, D)."""
    total = 0.0
    for side in (image, caption):
        norms = []
        for item in unit(side):
            gram = item @ item.T
            np.fill_diagonal(gram, 0.0)
            norms.append(np.sqrt((gram**2).sum()) / len(item) ** 2)
        total += float(np.mean(norms))
    return total


def set_uniformity(residuals: np.ndarray, t: float) -> float:
    """Mean over items (N, K, D), and over the pairs of each, of exp(-t |x - y|^2)."""
    return float(
        np.mean(
            [
                np.exp(-t * np.sum((item[i] - item[j]) ** 2))
                for item in unit(residuals)
                for i in range(len(item))
                for j in range(i)
            ]
        )
    )


def mmd(image: np.ndarray, caption: np.ndarray, gamma: float) -> float:
    """Song and Soleymani 2019, Eq. 6, of vectors (N, D)."""

    def kernel(left: np.ndarray, right: np.ndarray) -> float:
        return float(
            np.mean([np.exp(-gamma * np.sqrt(((x - y) ** 2).sum())) for x in left for y in right])
        )

    return kernel(image, image) - 2 * kernel(image, caption) + kernel(caption, caption)


def orthogonality(residuals: np.ndarray, beta: float, normalize: bool) -> float:
    """Mean over the items of Wei et al., Eq. 4."""
    found = []
    for item in residuals:
        vectors = unit(item) if normalize else item
        size = len(vectors)
        total = sum(
            abs(vectors[i] @ vectors[j]) for i in range(size) for j in range(size) if i != j
        )
        found.append(max(0.0, total - beta))
    return float(np.mean(found))


def variance_aware(
    image: np.ndarray,
    caption: np.ndarray,
    positives: np.ndarray,
    margin: float,
    sigma: str,
    temperature: float | None = None,
) -> float:
    """Mean over the matching pairs of Wei et al., Eq. 11, of sets (N, K, D) and points (M, D).

    sigma is that of the probabilities at a temperature, or of the scores where that is None.
    """

    def spread(row: np.ndarray, left_out: int) -> float:
        if temperature is not None:
            row = np.exp(row / temperature) / np.exp(row / temperature).sum()
        return 1 + np.std(np.delete(row, left_out), ddof=1)

    total = 0.0
    for k in range(image.shape[1]):
        scores = unit(image[:, k]) @ unit(caption).T
        for i, c in np.argwhere(positives):
            shared = spread(scores[i], c)
            for row, right, p in (
                (scores[i], positives[i], c),
                (scores[:, c], positives[:, c], i),
            ):
                own = shared if sigma == "shared" else spread(row, p)
                s = 1.0 if sigma == "one" else own
                hinge = max([0.0, *(margin + row[n] - row[p] for n in np.flatnonzero(~right))])
                total += hinge / s**2 + np.log(s)
    return total / positives.sum()


def max_cosine(image: np.ndarray, caption: np.ndarray) -> np.ndarray:
    return np.array([[(unit(a) @ unit(b).T).max() for b in caption] for a in image])


def mean_cosine(image: np.ndarray, caption: np.ndarray) -> np.ndarray:
    return np.array([[(unit(a) @ unit(b).T).mean() for b in caption] for a in image])


def smooth_chamfer(image: np.ndarray, caption: np.ndarray, alpha: float) -> np.ndarray:
    """Kim et al. 2023, Eq. 5, of sets (N, K, D) and (M, K', D)."""
    scores = np.zeros((len(image), len(caption)))
    for i, a in enumerate(image):
        for c, b in enumerate(caption):
            powers = np.exp(alpha * (unit(a) @ unit(b).T))
            first = np.log(powers.sum(axis=1)).sum() / (2 * alpha * len(a))
            second = np.log(powers.sum(axis=0)).sum() / (2 * alpha * len(b))
            scores[i, c] = first + second
    return scores


def slope(function: Callable[..., float], inputs: list, directions: list, step: float = 1e-6):
    """Derivative of a float64 function along directions, by central differences."""
    ahead = function(*(x + step * d for x, d in zip(inputs, directions, strict=True)))
    behind = function(*(x - step * d for x, d in zip(inputs, directions, strict=True)))
    return (ahead - behind) / (2 * step)
