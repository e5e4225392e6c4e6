"""Slow readings of AOQ, IMRAM, NAAF and P2RM: loops over pairs and tokens, in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def _leaky(x: Any) -> Any:
    return np.where(x > 0, x, 0.1 * x)


def _softmax(logits: Any) -> Any:
    powers = np.exp(logits - np.max(logits))
    return powers / powers.sum()


def _cosine(x: Any, y: Any) -> float:
    return float(x @ y / max(np.linalg.norm(x) * np.linalg.norm(y), 1e-12))


def imram(queries: Any, contexts: Any, steps: int, smoothing: float, memory: Any = None) -> float:
    """The score of a pair by one direction (Chen et al. 2020, and their released code)."""
    first, now, score = list(queries), list(queries), 0.0
    for _ in range(steps):
        logits = np.array([[float(c @ q) for q in now] for c in contexts])
        logits = np.array([row / np.linalg.norm(row) for row in _leaky(logits)])
        attended = [
            sum(w * c for w, c in zip(_softmax(smoothing * column), contexts, strict=True))
            for column in logits.T
        ]
        score += sum(_cosine(q, a) for q, a in zip(first, attended, strict=True)) / len(first)
        if memory is not None:
            kernel, bias, gate_kernel, gate_bias = memory
            changed = []
            for q, a in zip(now, attended, strict=True):
                both = np.concatenate([q, a])
                gate = 1.0 / (1.0 + np.exp(-(both @ gate_kernel + gate_bias)))
                changed.append(gate * q + (1 - gate) * np.tanh(both @ kernel + bias))
            now = changed
    return score


def naaf(
    words: Any, regions: Any, boundary: float, smoothing: float, training: bool
) -> tuple[float, list[float]]:
    """The score of a pair, and the best cosine of each word (released code of NAAF)."""
    cosines = np.array([[_cosine(w, r) for r in regions] for w in words])
    best = [max(row) for row in cosines]
    total = 0.0
    attention = np.array([column / np.linalg.norm(column) for column in _leaky(cosines).T]).T
    for number, row in enumerate(cosines):
        sign = best[number] - boundary
        if not training:
            related = _softmax([5.0 * _cosine(words[number], other) for other in words])
            sign = sum(r * (b - boundary) for r, b in zip(related, best, strict=True))
        total += min(best[number] - boundary, 9.0) if sign < 0 else 0.0
        above = [k for k, cosine in enumerate(row) if cosine > boundary]
        if above:
            weights = [math.exp(smoothing * (row[k] - boundary)) for k in above]
            units = [regions[k] / np.linalg.norm(regions[k]) for k in above]
            mean = sum(w * u for w, u in zip(weights, units, strict=True)) / sum(weights)
            total += _cosine(words[number], mean)
        weights = _softmax(smoothing * attention[number])
        total += float(np.sum(weights * row))
    return total / len(words), best


def boundary_between(matching: Any, others: Any, penalty: float) -> float:
    """Where the normal density of some numbers is `penalty` times that of others, by bisection."""

    def above(x: float) -> bool:
        logs = [
            -0.5 * ((x - np.mean(n)) / np.std(n, ddof=1)) ** 2 - math.log(np.std(n, ddof=1))
            for n in (matching, others)
        ]
        return bool(logs[0] > logs[1] + math.log(penalty))

    low, high = float(np.mean(others)), float(np.mean(matching))
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if above(middle) else (middle, high)
    return high


def aoq(scores: Any, matches: Any, margin: float, offline: float, alpha: float, beta: float) -> Any:
    """The parts of the adaptive offline quintuplet loss, with "sum" (Chen et al. 2020, Eq. 6)."""
    anchors = len(scores) // 3
    parts = np.zeros(3)
    for a in range(anchors):
        right, hard_caption, hard_image = float(scores[a, a]), anchors + a, 2 * anchors + a
        for row in (True, False):
            negatives = [
                float(scores[a, b] if row else scores[b, a])
                for b in range(anchors)
                if not (matches[a, b] if row else matches[b, a])
            ]
            hard = scores[a, hard_caption] if row else scores[hard_image, a]
            pair = (hard_image, hard_caption) if row else (hard_caption, hard_image)
            if negatives:
                weight = max(0.0, beta - (hard - max(negatives)) / alpha)
                parts[0] += weight * max(0.0, margin + max(negatives) - right)
            parts[1] += max(0.0, offline + hard - right)
            parts[2] += max(0.0, offline + scores[pair] - right)
    return parts


def rectangle_distance(point: Any, center: Any, offset: Any, inside_weight: float) -> float:
    """Of a point to a rectangle: up to its nearest point, and from there to the center."""
    total = 0.0
    for p, c, o in zip(point, center, offset, strict=True):
        nearest = min(max(p, c - o), c + o)
        # Inside, the point is its own nearest one.
        total += (p - nearest) ** 2 + inside_weight * (nearest - c) ** 2
    return total
