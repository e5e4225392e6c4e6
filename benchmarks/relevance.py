"""Time and memory of semantic relevance on captions of COCO's size and statistics.

The captions are generated: words and phrases are as unevenly frequent as in COCO, those of one
image share phrases, and lengths are like COCO's. The baseline scores pairs one by one with
`pycocoevalcap` (CIDEr-D) or a plain loop (CIDEr), on a sample of the pairs; its time for all of
them is extrapolated.

usage: python benchmarks/relevance.py [--images=5000] [--train-images=113287] [--batch=128]
           [--sample=4000]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from statistics import median
from typing import Any

import numpy as np
from measuring import Peak, Row, compare

from keras_xmr.relevance import BatchRelevance, RelevanceMatrix, ptb_tokenize, weigh
from keras_xmr.utils.tables import table

CAPTIONS_PER_IMAGE = 5
MEAN_LENGTH, LENGTH_DEVIATION, SHORTEST = 10.5, 2.4, 7
WORDS, PHRASES, PHRASES_PER_IMAGE = 9000, 60000, 15


@lru_cache(maxsize=1)
def generate(images: int, seed: int = 0) -> tuple[list[str], np.ndarray]:
    """Captions, and the image of each.

    A caption is a row of phrases of one to four words. Half of them belong to its image.
    """
    random = np.random.default_rng(seed)
    words = np.array([_word(number) for number in range(WORDS)], object)
    sizes = random.choice(4, PHRASES, p=[0.3, 0.35, 0.25, 0.1]) + 1
    drawn = words[np.searchsorted(_zipf(WORDS, 1.0), random.random(sizes.sum()))]
    phrases = [list(phrase) for phrase in np.split(drawn, np.cumsum(sizes)[:-1])]
    frequent = _zipf(PHRASES, 0.9)
    owner = np.repeat(np.arange(images), CAPTIONS_PER_IMAGE)
    own = np.searchsorted(frequent, random.random((images, PHRASES_PER_IMAGE)))
    longest = 32
    of_image = own[owner[:, None], random.integers(PHRASES_PER_IMAGE, size=(len(owner), longest))]
    of_all = np.searchsorted(frequent, random.random(of_image.shape))
    chosen = np.where(random.random(of_image.shape) < 0.5, of_image, of_all)
    lengths = np.maximum(SHORTEST, random.normal(MEAN_LENGTH, LENGTH_DEVIATION, len(owner)))
    captions = []
    for numbers, length in zip(chosen.tolist(), lengths.round().astype(int).tolist(), strict=True):
        caption: list[str] = []
        for number in numbers:
            caption += phrases[number]
            if len(caption) >= length:
                break
        captions.append(" ".join(caption[:length]) + " .")
    return captions, owner


def _word(number: int) -> str:
    """A word of letters: b, c, ..., ba, bb, ..."""
    letters = ""
    while True:
        number, letter = divmod(number, 26)
        letters += "abcdefghijklmnopqrstuvwxyz"[letter]
        if not number:
            return letters + "o"
        number -= 1


def _zipf(size: int, exponent: float) -> np.ndarray:
    """The cumulated shares of things whose frequency falls with their rank."""
    shares = np.cumsum(1 / np.arange(1, size + 1) ** exponent)
    return shares / shares[-1]


def whole_matrix(images: int, measure: str) -> dict[str, float]:
    """Time and memory of the relevance of all pairs, from the text of the captions."""
    texts, owner = generate(images)
    begin = time.perf_counter()
    matrix = RelevanceMatrix(weigh(ptb_tokenize(texts), owner, images, measure)).dense()
    seconds = time.perf_counter() - begin
    return {"seconds": seconds, "peak": _peak(), "pairs": matrix.size}


def batches(images: int, measure: str, size: int) -> dict[str, float]:
    """Time of the relevance of a batch, and what it takes to get there."""
    texts, owner = generate(images)
    begin = time.perf_counter()
    words = ptb_tokenize(texts)
    weighted = weigh(words, owner, images, measure)
    relevance = BatchRelevance(weighted)
    seconds = time.perf_counter() - begin
    peak = _peak()
    matrices = (weighted.references, weighted.candidates)
    arrays = [array for m in matrices for array in (m.data, m.indices, m.indptr)]
    held = sum({array.__array_interface__["data"][0]: array.nbytes for array in arrays}.values())
    random = np.random.default_rng(1)
    times, cpu = [], []
    for _ in range(300):
        captions = random.integers(0, len(texts), size)
        begin, begin_cpu = time.perf_counter(), time.process_time()
        relevance(owner[captions], captions)
        times.append(time.perf_counter() - begin)
        cpu.append(time.process_time() - begin_cpu)
    return {
        "build": seconds,
        "peak": peak,
        "held": held + 4 * weighted.candidates.shape[1],
        "terms": weighted.candidates.shape[1],
        "batch": float(np.median(times)),
        "batch_cpu": float(np.median(cpu)),
        "batch_95": float(np.quantile(times, 0.95)),
    }


def baseline_cider_d(images: int, pairs: int) -> dict[str, float]:
    """Seconds a pair of `pycocoevalcap`, scoring random captions against random images."""
    from pycocoevalcap.cider.cider_scorer import CiderScorer

    texts, _ = generate(images)
    lines = [" ".join(words) for words in ptb_tokenize(texts)]
    random = np.random.default_rng(2)
    frequencies = CiderScorer()
    for image in range(images):
        frequencies += (lines[5 * image], lines[5 * image : 5 * image + 5])
    frequencies.compute_doc_freq()
    asked = CiderScorer()
    for _ in range(pairs):
        image = int(random.integers(images))
        caption = lines[random.integers(len(lines))]
        asked += (caption, lines[5 * image : 5 * image + 5])
    asked.document_frequency = frequencies.document_frequency
    begin = time.perf_counter()
    asked.compute_cider()
    return {"seconds": (time.perf_counter() - begin) / pairs}


def baseline_cider(images: int, pairs: int) -> dict[str, float]:
    """Seconds a pair of a plain loop over the references, with the vectors made beforehand."""
    texts, _ = generate(images)
    words = ptb_tokenize(texts)
    found = [Counter(_ngrams(caption)) for caption in words]
    documents: Counter[tuple[str, ...]] = Counter()
    for image in range(images):
        documents.update(set().union(*found[5 * image : 5 * image + 5]))
    random = np.random.default_rng(2)
    image_query_mask = random.integers(images, size=pairs).tolist()
    caption_query_mask = random.integers(len(words), size=pairs).tolist()
    needed = {*caption_query_mask, *(5 * image + k for image in image_query_mask for k in range(5))}
    vectors = {c: _vectors(found[c], documents, images) for c in needed}
    begin = time.perf_counter()
    for image, caption in zip(image_query_mask, caption_query_mask, strict=True):
        mine = vectors[caption]
        for reference in range(5 * image, 5 * image + 5):
            theirs = vectors[reference]
            sum(
                sum(value * right.get(gram, 0.0) for gram, value in left.items())
                for left, right in zip(mine, theirs, strict=True)
            )
    return {"seconds": (time.perf_counter() - begin) / pairs}


def _ngrams(words: list[str]) -> list[tuple[str, ...]]:
    return [tuple(words[i : i + n]) for n in range(1, 5) for i in range(len(words) - n + 1)]


def _vectors(
    counts: Counter[tuple[str, ...]], documents: Counter[tuple[str, ...]], images: int
) -> list[dict[tuple[str, ...], float]]:
    """Normalised TF-IDF vectors of each order."""
    orders: list[dict[tuple[str, ...], float]] = [{} for _ in range(4)]
    for gram, count in counts.items():
        orders[len(gram) - 1][gram] = count * np.log(images / documents[gram])
    norms = [sum(v * v for v in order.values()) ** 0.5 or 1.0 for order in orders]
    return [{g: v / n for g, v in o.items()} for o, n in zip(orders, norms, strict=True)]


def _peak() -> float:
    """The most memory that this process has held, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def _alone(work: Callable[..., dict[str, float]], *arguments: Any) -> dict[str, float]:
    """Does something in a process of its own, whose peak memory is its own."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(work, arguments)


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 3600:.1f} h" if seconds > 7200 else f"{seconds / 60:.1f} min"


def rows(smoke: bool = False) -> Iterator[Row]:
    """All pairs of a split from their text, a pair; and the relevance of batches."""
    images, sample = (20, 40) if smoke else (2000, 2000)
    texts, owner = generate(images)
    for measure, baseline, against in (
        ("cider", baseline_cider, "a loop over references, their vectors made before"),
        ("cider_d", baseline_cider_d, "pycocoevalcap's CiderScorer"),
    ):
        with Peak() as peak:
            matrix = RelevanceMatrix(weigh(ptb_tokenize(texts), owner, images, measure)).dense()
        slow = median(baseline(images, sample)["seconds"] for _ in range(1 if smoke else 3))
        yield Row(
            f"relevance by {measure}",
            f"a pair; {images:,} x {len(texts):,}",
            peak.seconds / matrix.size,
            slow,
            against,
            peak.bytes,
        )
    relevance = BatchRelevance(weigh(ptb_tokenize(texts), owner, images, "cider"))
    batch = 8 if smoke else 128
    captions = np.random.default_rng(1).integers(0, len(texts), batch)
    slow = baseline_cider(images, sample)["seconds"] * batch**2
    found = compare(
        "relevance of a training batch",
        f"{batch} pairs of {len(texts):,}",
        lambda: relevance(owner[captions], captions),
    )
    yield replace(found, baseline=slow, against="that loop")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--train-images", type=int, default=113_287)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--sample", type=int, default=4000, help="pairs that the baseline scores")
    options = parser.parse_args()
    load = f"load {os.getloadavg()[0]:.1f} when it began"
    print(f"{platform.platform()}, {os.cpu_count()} cores, numpy {np.__version__}, {load}")
    captions = CAPTIONS_PER_IMAGE * options.images
    print(f"\nAll pairs of {options.images:,} images and {captions:,} captions, from their text:\n")
    rows = []
    for measure, baseline in (("cider", baseline_cider), ("cider_d", baseline_cider_d)):
        found = _alone(whole_matrix, options.images, measure)
        slow = _alone(baseline, options.images, options.sample)["seconds"]
        rows.append(
            [
                measure,
                _duration(found["seconds"]),
                f"{found['peak'] / 1e9:.2f} GB",
                f"{1e9 * found['seconds'] / found['pairs']:.0f} ns",
                f"{1e6 * slow:.0f} us",
                _duration(slow * found["pairs"]),
                f"{slow * found['pairs'] / found['seconds']:,.0f} x",
            ]
        )
    header = ["measure", "time", "peak", "a pair", "baseline\na pair", "baseline\nall*", "ratio"]
    print(table(header, rows))
    print(
        f"\n* extrapolated from {options.sample:,} pairs. cider: a loop over references with "
        "vectors made\nbeforehand; cider_d: CiderScorer of pycocoevalcap. peak: the whole process"
    )
    captions = CAPTIONS_PER_IMAGE * options.train_images
    print(f"\nBatches of {options.batch} pairs out of {captions:,} captions:\n")
    rows = []
    for measure in ("cider", "cider_d", "tf_idf"):
        found = _alone(batches, options.train_images, measure, options.batch)
        rows.append(
            [
                measure,
                f"{1e3 * found['batch']:.2f} ms",
                f"{1e3 * found['batch_cpu']:.2f} ms",
                f"{1e3 * found['batch_95']:.2f} ms",
                _duration(found["build"]),
                f"{found['held'] / 1e9:.2f} GB",
                f"{found['peak'] / 1e9:.2f} GB",
                f"{found['terms'] / 1e6:.2f} M",
                f"{4 * captions * found['terms'] / 1e9:,.0f} GB",
            ]
        )
    header = [
        "measure",
        "batch\nmedian",
        "batch\nCPU",
        "batch\n95 %",
        "build",
        "held",
        "peak of\nthe build",
        "terms",
        "dense\nmatrix",
    ]
    print(table(header, rows))


if __name__ == "__main__":
    main()
