"""Time and memory of the metrics at the size of COCO's test split.

Scores and relevance are made up: scores are normal, higher for the annotated pairs; relevance is
0 for nine pairs in ten, and skewed for the rest, as CIDEr is; images carry about three of 80
labels. Straightforward ways to the same numbers run too, on a part of the queries, and are
extrapolated to all of them; their results are compared.

    python benchmarks/metrics.py
    python benchmarks/metrics.py --images=1000 --sample=50
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np
from measuring import Elsewhere, Peak, Row, compare
from released import released

from keras_xmr.judgements import Judgements, multi_hot
from keras_xmr.judgements.formats import extended_coco
from keras_xmr.metrics import evaluate_scores, plausible_match, semantic_precision

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
    if not smoke:
        yield from released_pmrp(scores, label_vectors, owner)
    yield compare(
        "ASP",
        size,
        lambda: semantic_precision(scores, relevance, (), "share"),
        plain(lambda c: asp_by_counting(scores[:, c], relevance[:, c])),
        "Li et al. 2022, Eq. 8: all pairs of candidates",
        warm_up=False,
        **counts,
    )
    if not smoke and find_spec("eccv_caption"):
        yield eccv_row()


def released_pmrp(scores: np.ndarray, labels: Any, owner: np.ndarray) -> Iterator[Row]:
    """PMRP compared with the program of PCME, which is given lists that are sorted already."""
    images, captions = scores.shape
    asked = [np.linspace(0, count - 1, count // 250).astype(int) for count in scores.shape]
    with tempfile.TemporaryDirectory() as folder:
        arrays = {"scores": scores, "labels": labels.toarray().astype(np.int8), "owner": owner}
        np.savez(f"{folder}/arrays.npz", **arrays, images=asked[0], captions=asked[1])
        with released("pcme", "metrics of PCME", arrays=f"{folder}/arrays.npz") as (ask, program):
            if ask is None:
                return
            found = plausible_match(scores, labels, labels[owner])
            ours = [
                np.nanmean(side.values[f"pmrp_{zeta}"][queries])
                for side, queries in zip(
                    (found.image_to_text, found.text_to_image), asked, strict=True
                )
                for zeta in (0, 1, 2)
            ]
            theirs = Elsewhere(lambda: ask("pmrp"))
            row = compare(
                "PMRP, as released",
                f"a query; {images:,} x {captions:,}",
                lambda: plausible_match(scores, labels, labels[owner]),
                theirs,
                f"{program}, on lists that are sorted already",
                items=images + captions,
                baseline_items=sum(map(len, asked)),
                repeats=3,
                warm_up=False,
            )
            np.testing.assert_allclose(theirs.found, ours, atol=1e-3)
            yield replace(row, at_least=1.0)


def eccv_row() -> Row:
    """All metrics by the judgements of ECCV Caption, beside its package as PCME++ calls it."""
    from eccv_caption import Metrics

    package = Metrics()
    images, captions = np.array(list(package.coco_gts["i2t"])), np.array(package.coco_ids)
    random = np.random.default_rng(0)
    scores = random.standard_normal((len(images), len(captions)), dtype=np.float32)
    judgements = extended_coco("eccv_caption", [*map(str, images)], [*map(str, captions)])
    asked = {side: set(found) for side, found in package.eccv_gts.items()}
    sides = (("i2t", scores, images, captions), ("t2i", scores.T, captions, images))

    def best(values: np.ndarray) -> np.ndarray:
        first = np.argpartition(-values, 500)[:500]
        return first[np.argsort(-values[first])]

    def theirs() -> Any:
        retrieved = {
            side: {
                int(query): candidates[best(values[number])].tolist()
                for number, query in enumerate(queries)
                if query in asked[side]
            }
            for side, values, queries, candidates in sides
        }
        return package.compute_all_metrics(
            *(retrieved["i2t"], retrieved["t2i"]),
            target_metrics=("eccv_r1", "eccv_map_at_r", "eccv_rprecision"),
            Ks=(1, 5, 10),
            verbose=False,
        )

    size = f"{len(images):,} x {len(captions):,}, {sum(map(len, asked.values())):,} queries"
    row = compare(
        "ECCV Caption: recalls, R-precision, mAP@R",
        size,
        lambda: evaluate_scores(scores, judgements),
        theirs,
        "the best 500 of each query, and the package eccv_caption",
        repeats=3,
    )
    why = (
        "The scores of all 30,000 queries are read to see that none is NaN; the judged are ranked."
    )
    return replace(row, at_least=1.0, why=why)


def plausible_by_argsort(scores: np.ndarray, own: np.ndarray, labels: np.ndarray) -> list[float]:
    """Plausible match R-precision of one query (Musgrave et al. 2020; Chun et al. 2021, 4.1)."""
    order = np.argsort(-scores, kind="stable")
    apart = np.abs(labels - own).sum(axis=1)
    found = [apart <= zeta for zeta in (0, 1, 2)]
    return [float(right[order[: right.sum()]].mean()) for right in found]


def report(name: str, work: Callable[[], Any]) -> Any:
    """Runs something, and prints its time and memory."""
    with Peak() as peak:
        result = work()
    print(
        f"{name:<44} {peak.seconds:9.1f} s   {peak.cpu_seconds:9.1f} CPU s   "
        f"{peak.gigabytes:6.2f} GB",
        flush=True,
    )
    return result


def extrapolated(name: str, work: Callable[[int], Any], queries: int, sample: int) -> np.ndarray:
    """Runs a query at a time on a sample, and prints what all of them would take."""
    chosen = np.linspace(0, queries - 1, min(sample, queries)).astype(int)
    begin = time.process_time()
    found = [work(query) for query in chosen]
    seconds = (time.process_time() - begin) * queries / len(chosen)
    print(
        f"{name:<44} {'':9}     {seconds:9.1f} CPU s   from {len(chosen)} of {queries:,} queries",
        flush=True,
    )
    return np.array([chosen, found])


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


def main(images: int, sample: int) -> None:
    """Prints a line for each way to each number."""
    scores, relevance, owner, labels = made_up(images)
    judgements = Judgements.from_pairs(owner, images)
    label_vectors = multi_hot(labels, 80)
    captions = len(owner)
    print(
        f"{images:,} images, {captions:,} captions, {os.cpu_count()} cores; scores take "
        f"{scores.nbytes / 1e9:.2f} GB; memory is what comes on top; other work on the machine "
        "lengthens the first column alone"
    )
    ranked = report(
        "ranks, recall, R-P, mAP@R; both ways", lambda: evaluate_scores(scores, judgements)
    )
    report(
        "PMRP, zeta 0, 1, 2; both ways",
        lambda: plausible_match(scores, label_vectors, label_vectors[owner]),
    )
    alone = report("ASP; both ways", lambda: semantic_precision(scores, relevance, (), "share"))
    report("ASP with its curve over N; both ways", lambda: semantic_precision(scores, relevance))

    print("straightforward, one query at a time:")
    rows = [np.flatnonzero(owner == image) for image in range(images)]
    for name, queries, rank, asp, ranks, precision in (
        (
            "image-to-text",
            images,
            lambda i: recall_by_argsort(scores[i], rows[i]),
            lambda i: asp_by_counting(scores[i], relevance[i]),
            ranked.image_to_text,
            alone.image_to_text,
        ),
        (
            "text-to-image",
            captions,
            lambda c: recall_by_argsort(scores[:, c], owner[c : c + 1]),
            lambda c: asp_by_counting(scores[:, c], relevance[:, c]),
            ranked.text_to_image,
            alone.text_to_image,
        ),
    ):
        chosen, found = extrapolated(f"{name}: best rank by argsort", rank, queries, 20 * sample)
        np.testing.assert_array_equal(found, ranks.values["rank"][chosen.astype(int)])
        chosen, found = extrapolated(f"{name}: ASP by counting pairs", asp, queries, sample)
        np.testing.assert_allclose(found, precision.values["asp"][chosen.astype(int)])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--sample", type=int, default=20, help="queries that the slow ways do")
    main(**vars(parser.parse_args()))
