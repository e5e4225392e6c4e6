"""Matchers: the scores of all images with all captions, as an evaluation computes them.

The baseline computes the printed formula for one image and all captions at a time. It runs for
some images, from which the time of all is projected. For matchers of regions and words it is the
released loop over captions, each cut to its length. Times are per pair.

usage: python benchmarks/matchers.py [MATCHER ...]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from measuring import Row, by_products, compare, show

from keras_xmr import matchers
from keras_xmr.experiments.evaluation.scoring import MatcherScores, score_tiles
from keras_xmr.experiments.evaluation.split_embeddings import Ragged
from keras_xmr.matchers.alignment import attend, linear

IMAGES, CAPTIONS, DIMENSION, SAMPLES, POINTS = 200, 1000, 1024, 7, 4
PLAIN_IMAGES = 2

Arrays = dict[str, np.ndarray]
"""An embedding: of one image, without its first axis, or of all captions."""


def _unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def _squares(one: np.ndarray, others: np.ndarray) -> np.ndarray:
    return ((one - others) ** 2).sum(-1)


def _variances(image: Arrays, caption: Arrays) -> tuple[np.ndarray, np.ndarray]:
    return np.exp(image["log_variance"]), np.exp(caption["log_variance"])


def _logits(distance: np.ndarray, scale: float = 30.0) -> np.ndarray:
    return scale - scale * distance


def _sampled(image: Arrays, caption: Arrays) -> np.ndarray:
    """Distances (M, J, J), Chun et al. 2021, Eq. 3."""
    apart = image["samples"][:, None] - caption["samples"][:, None]
    return np.sqrt((apart**2).sum(-1) + 1e-6)


def _match_probability(image: Arrays, caption: Arrays) -> np.ndarray:
    """Chun et al. 2021, Eq. 2, as log-odds."""
    logits = _logits(_sampled(image, caption))
    yes, no = (-np.logaddexp(0, -sign * logits) for sign in (1, -1))
    return np.logaddexp.reduce(yes, (1, 2)) - np.logaddexp.reduce(no, (1, 2))


def _mahalanobis(image: Arrays, caption: Arrays) -> np.ndarray:
    """Wang et al. 2023, Eq. 4, the image asking."""
    return -((image["mean"] - caption["mean"]) ** 2 / np.exp(image["log_variance"])).sum(-1)


def _set_cosines(image: Arrays, caption: Arrays) -> np.ndarray:
    """Cosines (M, K, K)."""
    image_points, caption_points = _unit(image["points"]), _unit(caption["points"])
    return (image_points[:, None] * caption_points[:, None]).sum(-1)


def _chamfer(image: Arrays, caption: Arrays) -> np.ndarray:
    """Kim et al. 2023, Eq. 5."""
    scaled = 16.0 * _set_cosines(image, caption)
    means = [np.logaddexp.reduce(scaled, axis).mean(-1) for axis in (1, 2)]
    return sum(means) / 32.0


PLAIN: dict[str, tuple[tuple[str, ...], Callable[[Arrays, Arrays], np.ndarray]]] = {
    "MatchProbability": (("mean", "log_variance"), _match_probability),
    "ClosedFormSampled": (
        ("mean", "log_variance"),
        lambda i, c: _logits(_squares(i["mean"], c["mean"]) + sum(_variances(i, c)).sum(-1), 5.0),
    ),
    "Mahalanobis": (("mean", "log_variance"), _mahalanobis),
    "MaxCosine": (("points",), lambda i, c: _set_cosines(i, c).max((1, 2))),
    "SmoothChamfer": (("points",), _chamfer),
}
"""For each matcher what it reads, and scores (M,) of one image with M captions.

Cosines are in shortest.py: anybody computes them as one product."""

_PRODUCTS = {
    "MatchProbability": SAMPLES**2,
    "MaxCosine": POINTS**2,
    "SmoothChamfer": POINTS**2,
    "Mahalanobis": 2,
}
"""Products of vectors a pair, where it is not 1."""


def rows(smoke: bool = False, names: list[str] | None = None) -> Iterator[Row]:
    """All matchers, or some matchers of points, Gaussians and sets."""
    images, captions, dimension = (4, 10, 16) if smoke else (IMAGES, CAPTIONS, DIMENSION)
    for name in names or PLAIN:
        ours, plain = both(name, *made_up(images, captions, dimension))
        done = min(PLAIN_IMAGES, images)
        bound = by_products(2 * dimension * _PRODUCTS.get(name, 1))
        yield compare(
            name,
            f"a pair; D {dimension}" + _several(name),
            ours,
            lambda plain=plain, done=done: plain(done),
            "the printed formula, image by image",
            items=images * captions,
            baseline_items=done * captions,
            **bound,
            repeats=3,
        )
    if not names:
        yield from rows_of_tokens(smoke)


def _several(name: str) -> str:
    if name == "MatchProbability":
        return f", J {SAMPLES}"
    return f", K {POINTS}" if "points" in PLAIN[name][0] else ""


def made_up(images: int, captions: int, dimension: int) -> list[Arrays]:
    """Embeddings of images and of captions: Gaussians, and sets."""
    random = np.random.default_rng(0)
    found = []
    for count in (images, captions):
        shape = (count, dimension)
        arrays = {
            "mean": _unit(random.normal(size=shape)),
            "log_variance": random.normal(-7, 0.1, shape),
            "points": _unit(random.normal(size=(count, POINTS, dimension))),
        }
        found.append({key: x.astype(np.float32) for key, x in arrays.items()})
    return found


def both(
    name: str, images: Arrays, captions: Arrays
) -> tuple[Callable[[], np.ndarray], Callable[[int], np.ndarray]]:
    """Functions that score all pairs, and functions of some images by the formula."""
    matcher = getattr(matchers, name)()
    reads, formula = PLAIN[name]
    sides = [{key: side[key] for key in reads} for side in (images, captions)]
    prepared = [
        {key: np.asarray(x) for key, x in matcher.prepare(embedding, side).items()}
        for embedding, side in zip(sides, ("image", "text"), strict=True)
    ]

    def ours() -> np.ndarray:
        return np.asarray(score_tiles(matcher, *sides, (256, 1024)).dense().image_to_text)

    def plain(count: int) -> np.ndarray:
        return np.stack(
            [formula({k: x[i] for k, x in prepared[0].items()}, prepared[1]) for i in range(count)]
        )

    return ours, plain


MEAN_LENGTH, LENGTH_DEVIATION, SHORTEST = 12.5, 2.4, 9
"""Words of captions of COCO, with <start> and <end>."""

Tokens = dict[str, Ragged]


def rows_of_tokens(smoke: bool = False) -> Iterator[Row]:
    """SAF, SGR, SGRAF and SCAN, a pair."""
    count, captions, dimension, similarity = (2, 3, 16, 8) if smoke else (36, 128, 1024, 256)
    random = np.random.default_rng(0)
    lengths = np.maximum(SHORTEST, random.normal(MEAN_LENGTH, LENGTH_DEVIATION, captions).round())
    sides = (
        generate(random, np.full(count, 36), dimension),
        generate(random, lengths.astype(int), dimension),
    )
    done = min(captions, 8)
    for name in ("SAF", "SGR", "SGRAF"):
        matcher = getattr(matchers, name)(similarity_dimension=similarity)
        build(matcher, *sides)
        modules = [matcher.saf, matcher.sgr] if name == "SGRAF" else [matcher]
        image = part(sides[0], slice(0, count))
        prepared = [module.prepare(image, "image") for module in modules]

        def plain(modules: Any = modules, prepared: Any = prepared) -> None:
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
    scan = matchers.SCAN()
    build(scan, *sides)
    yield compare(
        "SCAN",
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


def build(matcher: Any, images: Tokens, captions: Tokens) -> None:
    """Makes the weights, before any time is taken."""
    one = slice(0, 1)
    matcher(
        matcher.prepare(part(images, one), "image"), matcher.prepare(part(captions, one), "text")
    )


def one_caption(
    modules: list[Any], images: list[dict[str, tf.Tensor]], caption: dict[str, tf.Tensor]
) -> tf.Tensor:
    """Scores (images,) of one caption, as the released code computes them."""
    scores = []
    for module, image in zip(modules, images, strict=True):
        caption_global = module.prepare(caption, "text")["global"]
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


if __name__ == "__main__":
    show(rows(names=sys.argv[1:]))
