"""How long SGRAF scores all images with all captions, in how much memory.

Tokens are random unit vectors; lengths of captions are like COCO's. The baseline goes about it as
the released code does: shards of 100 images and 100 captions, in each one caption after the other,
cut to its length, with its global vector computed again for each shard. It scores a sample of the
shards; its time for all pairs is extrapolated. Both score with the same weights, and their scores
are compared. CPU seconds are those of all cores together; they tell more than seconds where other
processes run as well.

usage: python benchmarks/sgraf.py [--images=1000] [--captions=5000] [--regions=36]
           [--dimension=1024] [--similarity-dimension=256] [--matcher=sgraf] [--shards=4]
           [--tile=256,1024]
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import time
from collections.abc import Iterator

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
from measuring import Row, compare

from keras_xmr.config.registry import components
from keras_xmr.evaluation.embed import Ragged
from keras_xmr.evaluation.scoring import MatcherScores
from keras_xmr.matchers import SAF, SCAN, SGR, SGRAF, Matcher
from keras_xmr.matchers.alignment import attend, linear
from keras_xmr.utils.tables import table

SHARD = 100
MEAN_LENGTH, LENGTH_DEVIATION, SHORTEST = 12.5, 2.4, 9  # words, <start> and <end>

Tokens = dict[str, Ragged]


def main() -> None:
    """Measures, and prints a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--captions", type=int, default=5000)
    parser.add_argument("--regions", type=int, default=36)
    parser.add_argument("--dimension", type=int, default=1024)
    parser.add_argument("--similarity-dimension", type=int, default=256)
    parser.add_argument("--matcher", choices=("saf", "sgr", "sgraf"), default="sgraf")
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--tile", default="256,1024")
    options = parser.parse_args()
    random = np.random.default_rng(0)
    images = generate(random, np.full(options.images, options.regions), options.dimension)
    lengths = np.maximum(
        SHORTEST, random.normal(MEAN_LENGTH, LENGTH_DEVIATION, options.captions).round()
    ).astype(int)
    captions = generate(random, lengths, options.dimension)
    matcher = components("matcher")[options.matcher](
        similarity_dimension=options.similarity_dimension
    )
    rows, columns = (int(size) for size in options.tile.split(","))
    build(matcher, images, captions)

    begin = peak()
    start, cpu = time.perf_counter(), time.process_time()
    scores = np.asarray(MatcherScores(matcher, images, captions, (rows, columns)))
    ours, ours_cpu = time.perf_counter() - start, time.process_time() - cpu
    ours_peak = peak()

    pairs = options.images * options.captions
    cpu = time.process_time()
    seconds, scored, gap = plain(matcher, images, captions, scores, options.shards)
    cpu = time.process_time() - cpu
    theirs, theirs_cpu = seconds / scored * pairs, cpu / scored * pairs
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores")
    print(
        f"{options.matcher}: {options.images} images of {options.regions} regions x "
        f"{options.captions} captions of {lengths.mean():.1f} tokens (longest {lengths.max()}), "
        f"D {options.dimension}, similarity vectors of {options.similarity_dimension}\n"
    )
    print(
        table(
            ["", "seconds", "CPU seconds", "pairs\na second"],
            [
                ["in tiles", f"{ours:.1f}", f"{ours_cpu:.1f}", f"{pairs / ours:,.0f}"],
                [
                    f"plain loop, extrapolated from {scored} pairs in {seconds:.1f} s",
                    f"{theirs:.1f}",
                    f"{theirs_cpu:.1f}",
                    f"{scored / seconds:,.0f}",
                ],
            ],
        )
    )
    print(
        f"\n{theirs / ours:.2f} times as fast as the plain loop; largest difference {gap:.1e}\n"
        f"peak memory {ours_peak / 1e9:.2f} GB, of which {begin / 1e9:.2f} GB before scoring; "
        f"the scores take {scores.nbytes / 1e9:.3f} GB"
    )


def rows(smoke: bool = False) -> Iterator[Row]:
    """SAF, SGR, SGRAF and SCAN, a pair."""
    count, captions, dimension, similarity = (2, 3, 16, 8) if smoke else (36, 128, 1024, 256)
    random = np.random.default_rng(0)
    lengths = np.maximum(SHORTEST, random.normal(MEAN_LENGTH, LENGTH_DEVIATION, captions).round())
    sides = (
        generate(random, np.full(count, 36), dimension),
        generate(random, lengths.astype(int), dimension),
    )
    done = min(captions, 8)
    for name in ("saf", "sgr", "sgraf"):
        matcher = components("matcher")[name](similarity_dimension=similarity)
        build(matcher, *sides)
        modules = [matcher.saf, matcher.sgr] if name == "sgraf" else [matcher]
        image = part(sides[0], slice(0, count))
        prepared = [module.prepare(image, "image") for module in modules]

        def plain(modules: list = modules, prepared: list = prepared) -> None:
            for caption in range(done):
                one_caption(modules, prepared, part(sides[1], slice(caption, caption + 1))).numpy()

        yield compare(
            name,
            f"a pair; 36 regions, {lengths.mean():.0f} words, D {dimension}",
            lambda matcher=matcher: np.asarray(MatcherScores(matcher, *sides, (256, 1024))),
            plain,
            "the released loop over captions",
            items=count * captions,
            baseline_items=count * done,
            repeats=3,
        )
    scan = SCAN()
    build(scan, *sides)
    yield compare(
        "scan",
        f"a pair; 36 regions, {lengths.mean():.0f} words, D {dimension}",
        lambda: np.asarray(MatcherScores(scan, *sides, (256, 1024))),
        items=count * captions,
        repeats=3,
    )


def generate(random: np.random.Generator, lengths: np.ndarray, dimension: int) -> Tokens:
    """Random unit vectors for items of given lengths."""
    values = random.normal(size=(lengths.sum(), dimension)).astype(np.float32)
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    ones = np.ones(len(values), np.float32)
    return {"tokens": Ragged(values, lengths), "mask": Ragged(ones, lengths)}


def part(tokens: Tokens, items: slice) -> dict[str, tf.Tensor]:
    """Some items, padded to the longest of them."""
    return {name: tf.constant(values[items]) for name, values in tokens.items()}


def build(matcher: Matcher, images: Tokens, captions: Tokens) -> None:
    """Makes the weights, before any time is taken."""
    one = slice(0, 1)
    matcher(
        matcher.prepare(part(images, one), "image"), matcher.prepare(part(captions, one), "caption")
    )


def plain(
    matcher: Matcher, images: Tokens, captions: Tokens, expected: np.ndarray, shards: int
) -> tuple[float, int, float]:
    """Scores the first shards caption by caption.

    Returns:
        Seconds, pairs scored, and the largest difference from the expected scores.
    """
    modules = [matcher.saf, matcher.sgr] if isinstance(matcher, SGRAF) else [matcher]
    shape = [-(-len(side["tokens"]) // SHARD) for side in (images, captions)]
    shards = min(shards, shape[0] * shape[1])
    scored, gap = 0, 0.0
    start = time.perf_counter()
    for number in range(shards):
        row, column = (SHARD * place for place in divmod(number, shape[1]))
        image = part(images, slice(row, row + SHARD))
        prepared = [module.prepare(image, "image") for module in modules]
        for caption in range(column, min(column + SHARD, expected.shape[1])):
            found = one_caption(modules, prepared, part(captions, slice(caption, caption + 1)))
            difference = np.abs(found.numpy() - expected[row : row + SHARD, caption])
            gap = max(gap, float(difference.max()))
            scored += difference.size
    return time.perf_counter() - start, scored, gap


def one_caption(
    modules: list[SAF | SGR],
    images: list[dict[str, tf.Tensor]],
    caption: dict[str, tf.Tensor],
) -> tf.Tensor:
    """Scores (images,) of one caption, as the released code computes them."""
    scores = []
    for module, image in zip(modules, images, strict=True):
        caption_global = module.prepare(caption, "caption")["global"]
        weights = module.pair_weights()
        attended = attend(
            image["tokens"], image["mask"], caption["tokens"], caption["mask"], module.smoothing
        )
        local = linear((attended - caption["tokens"]) ** 2, weights["local_similarity"])
        whole = (image["global"][:, None] - caption_global) ** 2
        whole = linear(whole, weights["global_similarity"])[:, :, None]
        nodes = tf.math.l2_normalize(tf.concat([whole, local], axis=2), axis=-1)
        counts = tf.ones([1, nodes.shape[2]])
        vectors, _ = module.reason(weights, nodes, counts, training=False)
        scores.append(tf.sigmoid(linear(vectors, weights["evaluation"])[:, 0, 0]))
    return tf.add_n(scores) / len(scores)


def peak() -> float:
    """The most memory that this process has had so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


if __name__ == "__main__":
    main()
