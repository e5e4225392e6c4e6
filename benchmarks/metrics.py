"""Time and memory of the metrics and re-rankers at the size of COCO's test split.

Scores and relevance are random. Scores are normal, higher for the annotated pairs. Relevance is 0
for nine pairs in ten, and skewed for the rest, as CIDEr is. Images have about three of 80 labels.
The baselines compute the same numbers in straightforward ways, for a part of the queries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from measuring import Row, by_memory, compare, show

from keras_xmr.judgements import Judgements, multi_hot
from keras_xmr.metrics import evaluate_scores, plausible_match, semantic_precision
from keras_xmr.reranking import FastReranking, MultiFactor, ReciprocalNeighbours, Reranked

CAPTIONS_PER_IMAGE = 5


def made_up(images: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[Any]]:
    """Scores and relevance (images, captions), the image of each caption, labels."""
    random = np.random.default_rng(seed)
    owner = np.repeat(np.arange(images), CAPTIONS_PER_IMAGE)
    captions = np.arange(len(owner))
    scores = random.standard_normal((images, len(owner)), dtype=np.float32)
    scores[owner, captions] += 3
    relevance = random.standard_exponential((images, len(owner)), dtype=np.float32)
    relevance[random.random(relevance.shape, dtype=np.float32) < 0.9] = 0
    relevance[owner, captions] += 5
    often = 1 / (1 + np.arange(80.0))
    labels = [
        tuple(np.unique(random.choice(80, size, p=often / often.sum())))
        for size in 1 + random.poisson(1.9, images)
    ]
    return scores, relevance, owner, labels


def rows(smoke: bool = False) -> Iterator[Row]:
    """Ranks, PMRP and ASP, a query in turn; queries are the images and the captions."""
    images = 20 if smoke else 2000
    scores, relevance, owner, labels = made_up(images)
    judgements, label_vectors = Judgements.from_pairs(owner, images), multi_hot(labels, 80)
    captions, dense = len(owner), label_vectors.toarray().astype(int)
    size = f"a query; {images:,} x {captions:,}"
    sample = np.linspace(0, captions - 1, min(40, captions)).astype(int)

    def plain(work: Callable[[int], Any]) -> Callable[[], Any]:
        return lambda: [work(caption) for caption in sample]

    counts = {"items": images + captions, "baseline_items": len(sample), "repeats": 3}
    yield compare(
        "ranks, recall, R-precision, mAP@R",
        size,
        lambda: evaluate_scores(scores, judgements),
        plain(lambda c: recall_by_argsort(scores[:, c], owner[c : c + 1])),
        "the best rank alone, by argsort",
        warm_up=False,
        **counts,
    )
    yield compare(
        "PMRP, zeta 0, 1, 2",
        size,
        lambda: plausible_match(scores, label_vectors, label_vectors[owner]),
        plain(lambda c: plausible_by_argsort(scores[:, c], dense[owner[c]], dense)),
        "by argsort, query by query",
        warm_up=False,
        **counts,
    )
    yield compare(
        "ASP",
        size,
        lambda: semantic_precision(scores, relevance, (), "share"),
        plain(lambda c: asp_by_counting(scores[:, c], relevance[:, c])),
        "Li et al. 2022, Eq. 8: all pairs of candidates",
        warm_up=False,
        **counts,
    )
    yield from reranked(scores)


def reranked(scores: np.ndarray) -> Iterator[Row]:
    """The re-rankers, both directions."""
    size, cosines = f"{scores.shape[0]:,} x {scores.shape[1]:,}, both ways", scores / 10
    yield compare(
        "fast re-ranking",
        size,
        lambda: FastReranking()(cosines),
        lambda: formula(cosines),
        "the formula in NumPy",
        **by_memory(4 * scores.nbytes),
    )
    few = np.arange(min(8, len(scores)))
    for name, reranker in (
        ("reciprocal neighbours, K = 15", ReciprocalNeighbours()),
        ("multi-factor, K = 30", MultiFactor()),
    ):
        yield compare(
            name,
            f"a query; {size}",
            lambda reranker=reranker: reranker(scores),
            lambda: [reverse_places(scores, image, 15) for image in few],
            "a loop over the first 15 candidates",
            items=sum(scores.shape),
            baseline_items=len(few),
            repeats=3,
            warm_up=False,
        )


def formula(scores: np.ndarray) -> Reranked:
    """Fast re-ranking as the formula stands, with the scales of COCO."""
    return Reranked(
        np.exp(25 * scores) / np.exp(25 * scores).sum(axis=0, keepdims=True),
        np.exp(20 * scores) / np.exp(20 * scores).sum(axis=1, keepdims=True),
    )


def reverse_places(scores: np.ndarray, query: int, count: int) -> np.ndarray:
    """The first candidates of a query, by its place among theirs (Wang et al. 2019)."""
    first = np.argsort(-scores[query], kind="stable")[:count]
    places = [int((scores[:, c] > scores[query, c]).sum()) for c in first]
    return first[np.argsort(places, kind="stable")]


def plausible_by_argsort(scores: np.ndarray, own: np.ndarray, labels: np.ndarray) -> list[float]:
    """Plausible match R-precision of one query (Musgrave et al. 2020; Chun et al. 2021, 4.1)."""
    order = np.argsort(-scores, kind="stable")
    apart = np.abs(labels - own).sum(axis=1)
    found = [apart <= zeta for zeta in (0, 1, 2)]
    return [float(right[order[: right.sum()]].mean()) for right in found]


def recall_by_argsort(scores: np.ndarray, right: np.ndarray) -> float:
    """R@1 and the ranks of one query, by sorting its candidates."""
    order = np.argsort(-scores, kind="stable")
    return float(np.flatnonzero(np.isin(order, right)).min() + 1)


def asp_by_counting(scores: np.ndarray, relevance: np.ndarray) -> float:
    """ASP of one query, by comparing all pairs of its candidates, a block at a time."""
    terms = []
    for first in range(0, len(scores), 1000):
        part = slice(first, first + 1000)
        s = 1 + np.count_nonzero(scores[part, None] < scores, axis=1)
        c = 1 + np.count_nonzero(relevance[part, None] < relevance, axis=1)
        terms.append(np.minimum(s, c) / np.maximum(s, c))
    return float(np.concatenate(terms).mean())


if __name__ == "__main__":
    show(rows())
