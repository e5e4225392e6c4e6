"""Plain, slow, float64 readings of the papers' formulas, to check the fast ones against."""

from __future__ import annotations

import math

import numpy as np


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x))


def match_probability(image: np.ndarray, caption: np.ndarray, scale: float, shift: float):
    """Match probability (N, M) of samples (N, J, D) and (M, J, D): Chun et al. 2021, Eq. 2, 3."""
    n, j, _ = image.shape
    m, k, _ = caption.shape
    result = np.zeros((n, m))
    for a in range(n):
        for b in range(m):
            for x in image[a].astype(np.float64):
                for y in caption[b].astype(np.float64):
                    distance = np.sqrt(np.sum((x - y) ** 2) + 1e-6)
                    result[a, b] += sigmoid(-scale * distance + shift) / (j * k)
    return result


def soft_contrastive(probability: np.ndarray, positives: np.ndarray) -> float:
    """Sum over all pairs, both directions: Chun et al. 2021, Eq. 1."""
    nll = np.where(positives, -np.log(probability), -np.log1p(-probability))
    return 2 * nll.sum()


def kl_to_standard_normal(mean: np.ndarray, log_variance: np.ndarray) -> np.ndarray:
    """KL of each Gaussian (N, D) to N(0, I)."""
    return 0.5 * np.sum(mean**2 + np.exp(log_variance) - 1 - log_variance, axis=1)


def uniformity(vectors: np.ndarray, t: float) -> float:
    """log mean exp(-t |x - y|^2) over all pairs of vectors (N, D)."""
    kernels = [
        np.exp(-t * np.sum((x - y) ** 2))
        for i, x in enumerate(vectors)
        for j, y in enumerate(vectors)
        if i < j
    ]
    return float(np.log(np.mean(kernels)))


def ranking(scores: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The order of one query's candidates: by score, the wrong ones first among equals."""
    return np.array(sorted(range(len(scores)), key=lambda c: (-scores[c], right[c])))


def ranks(values: np.ndarray) -> np.ndarray:
    """Ranks of one query's candidates: Li et al. 2022, Eq. 8."""
    return np.array([1 + sum(other > value for other in values) for value in values])


def asp(scores: np.ndarray, relevance: np.ndarray) -> float:
    """ASP of one query whose tied scores count against it: its worst place among its ties."""
    terms = []
    for c, s in zip(ranks(relevance), scores, strict=True):
        first = 1 + sum(scores > s)
        places = range(first, first + sum(scores == s))
        terms.append(min(min(c, place) / max(c, place) for place in places))
    return float(np.mean(terms))


def query_metrics(scores: np.ndarray, right: np.ndarray) -> dict[str, float]:
    """Metrics of one query, read off its ranking; grades above 0 are right."""
    grades = right[ranking(scores, right)].astype(float)
    hits = grades > 0
    right = right > 0
    count = int(right.sum())
    precision = np.cumsum(hits) / np.arange(1, len(hits) + 1)
    return {
        "recall_1": float(hits[:1].any()),
        "recall_5": float(hits[:5].any()),
        "recall_10": float(hits[:10].any()),
        "rank": float(np.argmax(hits)) + 1,
        "r_precision": float(hits[:count].mean()),
        "map_at_r": float((precision * hits)[:count].sum() / count),
        "relevant_5": float(hits[:5].sum()),
        "relevant_10": float(hits[:10].sum()),
        "precision_5": float(hits[:5].sum() / 5),
        "ndcg_10": gain(grades) / gain(sorted(grades, reverse=True)),
        "bpref": preference(hits),
    }


def gain(grades, k: int = 10) -> float:
    """Discounted cumulative gain of the first K."""
    return sum(grade / math.log2(1 + rank) for rank, grade in enumerate(grades[:k], 1))


def preference(hits) -> float:
    """bpref, as trec_eval counts it while it goes down the list."""
    right, wrong = sum(hits), sum(not hit for hit in hits)
    total, before = 0.0, 0
    for hit in hits:
        if not hit:
            before += 1
        elif before:
            total += 1 - min(before, right) / min(wrong, right)
        else:
            total += 1
    return total / right


def reverse_place(scores: np.ndarray, query: int, candidate: int) -> int:
    """How many queries come before a query when the candidate is what is asked with."""
    return int((scores[:, candidate] > scores[query, candidate]).sum())


def reciprocal_neighbours(scores: np.ndarray, count: int) -> np.ndarray:
    """The candidates of each query in their new order: Wang et al. 2019, re-ranking."""
    orders = []
    for query, row in enumerate(scores):
        order = sorted(range(len(row)), key=lambda c: (-row[c], c))
        first = sorted(order[:count], key=lambda c: reverse_place(scores, query, c))
        orders.append(first + order[count:])
    return np.array(orders)


def multi_factor(scores, count, significance, reverse, decay) -> np.ndarray:
    """The candidates of each query in their new order: Yuan et al. 2022, re-ranking."""
    orders = []
    positive = scores.astype(np.float64) - min(scores.min(), 0)
    for query, row in enumerate(scores):
        order = sorted(range(len(row)), key=lambda c: (-row[c], c))
        first = order[:count]
        by_reverse = sorted(first, key=lambda c: reverse_place(scores, query, c))
        worth = {
            c: significance * positive[query, c] / max(positive[:, c].sum(), 1e-300)
            + np.exp(-decay * (first.index(c) + 1))
            + reverse * np.exp(-decay * (by_reverse.index(c) + 1))
            for c in first
        }
        orders.append(sorted(first, key=lambda c: -worth[c]) + order[count:])
    return np.array(orders)


def smooth_asp_loss(scores: np.ndarray, relevance: np.ndarray, temperature: float) -> float:
    """1 - smooth ASP with the rows as queries: Li et al. 2022, Eq. 4, 10 to 12."""

    def ranks(values: np.ndarray) -> np.ndarray:
        others = [
            [sigmoid((v - u) / temperature) for j, v in enumerate(values) if j != i]
            for i, u in enumerate(values)
        ]
        return 1 + np.array(others).sum(1)

    precision = []
    for scored, related in zip(scores.astype(float), relevance.astype(float), strict=True):
        found, right = ranks(scored), ranks(related)
        precision.append(np.mean(np.minimum(found, right) / np.maximum(found, right)))
    return 1 - float(np.mean(precision))


def match_loss(logits: np.ndarray, positives: np.ndarray) -> float:
    """-log P of matches and -log(1 - P) of the others: Wang et al. 2023, Eq. 5 to 7."""
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    return float(np.mean(np.where(positives, -np.log(p), -np.log(1 - p))))
