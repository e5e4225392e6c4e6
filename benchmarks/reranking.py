"""Time and memory of the re-rankers at the size of COCO's test split.

Scores are cosines of made-up embeddings: unit vectors, the captions near to their images.
Fast re-ranking of both directions is measured against two passes over memory (reading the
scores and writing a matrix of their size, twice: as NumPy does it by itself, and in tiles and
threads as fast re-ranking does), and against the formula as one would write it in NumPy. The
columns "/ passes" divide by the product in tiles and threads. They take turns, so that other work
on the machine meets all of them, and the best time of each counts; where the machine is busy, CPU
seconds tell more. Memory is what NumPy allocates, also without the two results.

    python benchmarks/reranking.py
    python benchmarks/reranking.py --images=1000 --repeats=3
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from measuring import Elsewhere, Row, by_memory, compare
from released import released

from data_pipelines.processors import in_threads
from keras_xmr.judgements import Judgements
from keras_xmr.metrics import evaluate_scores
from keras_xmr.reranking import FastReranking, MultiFactor, ReciprocalNeighbours, Reranked

CAPTIONS_PER_IMAGE = 5
_ROWS = 64


def made_up(images: int, seed: int = 0) -> tuple[np.ndarray, Judgements]:
    """Cosines (images, captions) float32, and which captions are right."""
    random = np.random.default_rng(seed)
    owner = np.repeat(np.arange(images), CAPTIONS_PER_IMAGE)
    image = random.standard_normal((images, 32), dtype=np.float32)
    caption = image[owner] + 1.2 * random.standard_normal((len(owner), 32), dtype=np.float32)
    image /= np.linalg.norm(image, axis=1, keepdims=True)
    caption /= np.linalg.norm(caption, axis=1, keepdims=True)
    return image @ caption.T, Judgements.from_pairs(owner, images)


def two_plain_copies(scores: np.ndarray) -> Reranked:
    """Copies the scores twice, as NumPy does it by itself: in one thread."""
    return Reranked(scores.copy(), scores.copy())


def two_copies(scores: np.ndarray) -> Reranked:
    """Copies the scores twice, in tiles and threads."""
    results = np.empty_like(scores), np.empty_like(scores)
    for result in results:

        def copy(first: int, result: np.ndarray = result) -> None:
            np.copyto(result[first : first + _ROWS], scores[first : first + _ROWS])

        in_threads(copy, len(scores), _ROWS)
    return Reranked(*results)


def two_products(scores: np.ndarray) -> Reranked:
    """Multiplies the scores by a number, twice, in tiles and threads."""
    results = np.empty_like(scores), np.empty_like(scores)
    for result in results:

        def multiply(first: int, result: np.ndarray = result) -> None:
            rows = slice(first, first + _ROWS)
            np.multiply(scores[rows], np.float32(2), out=result[rows])

        in_threads(multiply, len(scores), _ROWS)
    return Reranked(*results)


def formula(scores: np.ndarray) -> Reranked:
    """Fast re-ranking as the formula stands, with the scales of COCO."""
    return Reranked(
        np.exp(25 * scores) / np.exp(25 * scores).sum(axis=0, keepdims=True),
        np.exp(20 * scores) / np.exp(20 * scores).sum(axis=1, keepdims=True),
    )


def in_turns(
    works: Mapping[str, Callable[[np.ndarray], Any]], scores: np.ndarray, repeats: int
) -> dict[str, tuple[float, float]]:
    """The shortest time of each in seconds, and the least CPU time of all its threads."""
    best = dict.fromkeys(works, (float("inf"), float("inf")))
    for _ in range(repeats):
        for name, work in works.items():
            begin, cpu_begin = time.perf_counter(), time.process_time()
            result = work(scores)
            cpu, seconds = time.process_time() - cpu_begin, time.perf_counter() - begin
            best[name] = (min(best[name][0], seconds), min(best[name][1], cpu))
            del result
    return best


def peak_gigabytes(work: Callable[[np.ndarray], Any], scores: np.ndarray) -> float:
    """The most that is allocated at one time while something runs, its results included."""
    tracemalloc.start()
    work(scores)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e9


def rows(smoke: bool = False) -> Iterator[Row]:
    """All re-rankers, both directions."""
    scores, _ = made_up(20 if smoke else 5000)
    size = f"{scores.shape[0]:,} x {scores.shape[1]:,}, both ways"
    yield compare(
        "fast re-ranking",
        size,
        lambda: FastReranking()(scores),
        lambda: formula(scores),
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
    if not smoke:
        yield from released_rerankers()


def released_rerankers() -> Iterator[Row]:
    """Those of which there is a released program, beside it, at the size of a fold of COCO."""
    scores, _ = made_up(1000)
    scores = (1 + scores) / 2  # Multi-factor re-ranking has shares of them, so none is below 0.
    for name, checkout, first, reranker in (
        ("reciprocal neighbours", "MTFN-RR-PyTorch-Code", 15, ReciprocalNeighbours()),
        ("multi-factor", "GaLR", 30, MultiFactor()),
    ):
        with tempfile.TemporaryDirectory() as folder:
            np.savez(f"{folder}/arrays.npz", scores=scores, first=first)
            with released(checkout, "re-ranking", arrays=f"{folder}/arrays.npz") as (ask, program):
                if ask is None:
                    continue
                theirs = Elsewhere(lambda ask=ask: ask("rerank"))
                row = compare(
                    f"{name}, K = {first}, as released",
                    f"{scores.shape[0]:,} x {scores.shape[1]:,}, both ways",
                    lambda reranker=reranker: reranker(scores),
                    theirs,
                    program,
                    repeats=3,
                    warm_up=False,
                )
                order = np.argsort(-reranker(scores).image_to_text, axis=1, kind="stable")
                # NumPy's quick sort, which they take, does not keep the order of equal places.
                if np.mean(theirs.found == order[:, :first].ravel()) < 0.5:
                    raise RuntimeError(f"{program} has another order than {name}")
                yield replace(row, at_least=1.0)


def reverse_places(scores: np.ndarray, query: int, count: int) -> np.ndarray:
    """The first candidates of a query, by its place among theirs (Wang et al. 2019)."""
    first = np.argsort(-scores[query], kind="stable")[:count]
    places = [int((scores[:, c] > scores[query, c]).sum()) for c in first]
    return first[np.argsort(places, kind="stable")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    scores, judgements = made_up(options.images)
    size = scores.nbytes / 1e9
    print(
        f"{scores.shape[0]:,} x {scores.shape[1]:,} scores, {size:.2f} GB, {os.cpu_count()} cores"
    )

    fast = {"two plain copies": two_plain_copies}
    fast |= {"two copies, threads": two_copies, "two products, threads": two_products}
    fast |= {"fast re-ranking": FastReranking(), "its formula in NumPy": formula}
    slow = {
        "reciprocal neighbours, K = 15": ReciprocalNeighbours(),
        "multi-factor, K = 30": MultiFactor(),
    }
    times = in_turns(fast, scores, options.repeats) | in_turns(slow, scores, 2)
    passes = times["two products, threads"]
    head = ("seconds", "/ passes", "CPU s", "/ passes", "peak GB", "no results")
    print(f"\n{'both directions':<32}" + "".join(f"{title:>11}" for title in head))
    for name, work in (fast | slow).items():
        (seconds, cpu), peak = times[name], peak_gigabytes(work, scores)
        cells = (seconds, seconds / passes[0], cpu, cpu / passes[1], peak, peak - 2 * size)
        print(f"{name:<32}" + "".join(f"{cell:>11.2f}" for cell in cells), flush=True)

    part = scores[:, : scores.shape[1] // 10]
    pairs = zip(FastReranking()(part), formula(part.astype(np.float64)), strict=True)
    error = max(float(np.abs(a - np.log(b)).max()) for a, b in pairs)
    print(f"\nfast re-ranking against its formula in float64: {error:.1e} in the logarithm at most")
    print(f"\n{'(transductive, but for the first)':<34}{'RSUM':>7}")
    print(f"{'made-up scores':<34}{_rsum(Reranked(scores, scores), judgements):>7.1f}")
    for name, work in (fast | slow).items():
        if not name.startswith("two"):
            print(f"{name:<34}{_rsum(work(scores), judgements):>7.1f}", flush=True)


def _rsum(reranked: Reranked, judgements: Judgements) -> float:
    return 100 * evaluate_scores(reranked, judgements).summary["rsum"]


if __name__ == "__main__":
    main()
