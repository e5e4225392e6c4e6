"""Embeddings as vectors with inner products that rank as a matcher does.

A search by a matcher is one search for the largest inner products where its score, for a fixed
query, grows with an inner product of something of the image alone and something of the query
alone. A matcher declares its augmentation, and whether that ranks exactly as the matcher
does; otherwise the results of the augmentation are candidates. The gallery is of images; the query
is a caption or an image.

With mean mu, variances v = sigma^2 and D dimensions, G of the gallery and Q of the query:

| augmentation | gallery | query | numbers |
| --- | --- | --- | --- |
| mean_cosine | mu / abs(mu) | mu / abs(mu) | D |
| mean_l2 | mu, -abs(mu)^2 / 2 | mu, 1 | D + 1 |
| closed_form_sampled | mu, -(abs(mu)^2 + sum v) / 2 | mu, 1 | D + 1 |
| wasserstein | mu, sigma, -(abs(mu)^2 + abs(sigma)^2) / 2 | mu, sigma, 1 | 2 D + 1 |
| kl_to_query | v + mu^2, mu, sum log v | -1 / v, 2 mu / v, 1 | 2 D + 1 |
| kl_from_query | 1 / v, mu / v, sum log v + mu^2 / v | -v - mu^2, 2 mu, -1 | 2 D + 1 |
| kl_both | both of these, the logarithms cancel | | 4 D + 1 |
| mahalanobis | mu^2, mu | -1 / v, 2 mu / v | 2 D |
| mahalanobis_cosine | mu^2, mu, mu / abs(mu) | -t / v, 2 t mu / v, l mu / abs(mu) | 3 D |
| smoothed_mahalanobis | mu^2, mu | as mahalanobis, v + mean of v of G | 2 D |
| sample_means | m, -abs(m)^2 / 2, m the mean of the samples | m, 1 | D + 1 |
| squared_samples | m, -mean abs(sample)^2 / 2 | m, 1 | D + 1 |
| set_points | K rows: points of length 1, the best counts | K' rows | D |
| set_means | mean of points of length 1 | mean of points of length 1 | D |
| token_means | mean of the tokens, of length 1 | mean of the tokens, of length 1 | D |

t and l are the temperature and the scale of the matcher. Closed-form sampled distance: Chun 2024,
Eq. 1; Mahalanobis: Wang et al. 2023, Eq. 4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from keras_xmr.utils.vectors import Arrays, unit_rows


@dataclass(frozen=True, eq=False)
class Reference:
    """Context of an augmentation in addition to the query.

    Attributes:
        constants: Numbers of the matcher, by name, such as its temperature.
        sample: Embeddings of some items of the gallery.
    """

    constants: Mapping[str, float]
    sample: Arrays


@dataclass(frozen=True)
class Augmentation:
    """A conversion of embeddings to vectors.

    Attributes:
        gallery: From embeddings of N items to vectors (N, D'), or (N, K, D') for K rows per item,
            of which the best counts.
        query: The same for queries, which may use a `Reference`.
    """

    gallery: Callable[[Arrays], np.ndarray]
    query: Callable[[Arrays, Reference], np.ndarray]

    def gallery_vectors(self, embedding: Arrays) -> np.ndarray:
        """Returns vectors float32 (N, K, D') of a gallery."""
        return _rows(self.gallery(_double(embedding)))

    def query_vectors(self, embedding: Arrays, reference: Reference) -> np.ndarray:
        """Returns vectors float32 (M, K', D') of queries."""
        return _rows(self.query(_double(embedding), reference))


def _double(embedding: Arrays) -> Arrays:
    # Squares and logarithms are summed in float64, and rounded at the end.
    return {name: np.asarray(values, np.float64) for name, values in embedding.items()}


def _rows(vectors: np.ndarray) -> np.ndarray:
    vectors = vectors if vectors.ndim == 3 else vectors[:, None]
    return np.ascontiguousarray(vectors, np.float32)


def _squares(vectors: np.ndarray) -> np.ndarray:
    return np.sum(vectors * vectors, axis=-1, keepdims=True)


def _join(*arrays: np.ndarray) -> np.ndarray:
    return np.concatenate(arrays, axis=-1)


def _add_one(vectors: np.ndarray, one: float = 1.0) -> np.ndarray:
    return _join(vectors, np.full((len(vectors), 1), one))


def _variance(embedding: Arrays) -> np.ndarray:
    return np.exp(embedding["log_variance"])


def _mean_and_sigma(embedding: Arrays) -> np.ndarray:
    return _join(embedding["mean"], np.exp(0.5 * embedding["log_variance"]))


def _near(vectors: np.ndarray) -> np.ndarray:
    """Returns vectors whose inner product with `_add_one` decreases with Euclidean distance."""
    return _join(vectors, -0.5 * _squares(vectors))


def _closed_form(embedding: Arrays) -> np.ndarray:
    mean = embedding["mean"]
    trace = np.sum(_variance(embedding), axis=-1, keepdims=True)
    return _join(mean, -0.5 * (_squares(mean) + trace))


def _moments(embedding: Arrays) -> np.ndarray:
    """Returns v + mu^2 and mu."""
    mean = embedding["mean"]
    return _join(_variance(embedding) + mean * mean, mean)


def _precisions(embedding: Arrays, variance: np.ndarray | None = None) -> np.ndarray:
    """Returns 1 / v and mu / v."""
    precision = 1.0 / (_variance(embedding) if variance is None else variance)
    return _join(precision, embedding["mean"] * precision)


def _signs(vectors: np.ndarray) -> np.ndarray:
    """Returns -a and 2 b of vectors that hold a and b."""
    first, second = np.split(vectors, 2, axis=-1)
    return _join(-first, 2.0 * second)


def _kl_to_query(embedding: Arrays) -> np.ndarray:
    return _join(_moments(embedding), embedding["log_variance"].sum(axis=-1, keepdims=True))


def _kl_from_query(embedding: Arrays) -> np.ndarray:
    terms = embedding["log_variance"] + embedding["mean"] ** 2 / _variance(embedding)
    return _join(_precisions(embedding), terms.sum(axis=-1, keepdims=True))


def _kl_both(embedding: Arrays) -> np.ndarray:
    terms = np.sum(embedding["mean"] ** 2 / _variance(embedding), axis=-1, keepdims=True)
    return _join(_moments(embedding), _precisions(embedding), terms)


def _square_and_mean(embedding: Arrays) -> np.ndarray:
    return _join(embedding["mean"] ** 2, embedding["mean"])


def _mahalanobis_with_cosine(embedding: Arrays, reference: Reference) -> np.ndarray:
    temperature, scale = (reference.constants[n] for n in ("temperature", "cosine_scale"))
    distance = temperature * _signs(_precisions(embedding))
    return _join(distance, scale * unit_rows(embedding["mean"]))


def _smoothed(embedding: Arrays, reference: Reference) -> np.ndarray:
    spread = _variance(reference.sample).mean(axis=0)
    return _signs(_precisions(embedding, _variance(embedding) + spread))


def _points(embedding: Arrays) -> np.ndarray:
    points = embedding["points"] if "points" in embedding else embedding["mean"][:, None]
    return unit_rows(points)


def _token_means(embedding: Arrays) -> np.ndarray:
    mask = embedding["mask"][..., None]
    return unit_rows(np.sum(embedding["tokens"] * mask, axis=1))


def _sample_means(embedding: Arrays) -> np.ndarray:
    return embedding["samples"].mean(axis=1)


def _squared_samples(embedding: Arrays) -> np.ndarray:
    squares = _squares(embedding["samples"]).mean(axis=1)
    return _join(_sample_means(embedding), -0.5 * squares)


AUGMENTATIONS: Mapping[str, Augmentation] = {
    "mean_cosine": Augmentation(lambda g: unit_rows(g["mean"]), lambda q, _: unit_rows(q["mean"])),
    "mean_l2": Augmentation(lambda g: _near(g["mean"]), lambda q, _: _add_one(q["mean"])),
    "closed_form_sampled": Augmentation(_closed_form, lambda q, _: _add_one(q["mean"])),
    "wasserstein": Augmentation(
        lambda g: _near(_mean_and_sigma(g)), lambda q, _: _add_one(_mean_and_sigma(q))
    ),
    "kl_to_query": Augmentation(_kl_to_query, lambda q, _: _add_one(_signs(_precisions(q)))),
    "kl_from_query": Augmentation(_kl_from_query, lambda q, _: _add_one(_signs(_moments(q)), -1)),
    "kl_both": Augmentation(
        _kl_both,
        lambda q, _: _add_one(_join(_signs(_precisions(q)), _signs(_moments(q))), -1),
    ),
    "mahalanobis": Augmentation(_square_and_mean, lambda q, _: _signs(_precisions(q))),
    "mahalanobis_cosine": Augmentation(
        lambda g: _join(_square_and_mean(g), unit_rows(g["mean"])), _mahalanobis_with_cosine
    ),
    "smoothed_mahalanobis": Augmentation(_square_and_mean, _smoothed),
    "sample_means": Augmentation(
        lambda g: _near(_sample_means(g)), lambda q, _: _add_one(_sample_means(q))
    ),
    "squared_samples": Augmentation(_squared_samples, lambda q, _: _add_one(_sample_means(q))),
    "set_points": Augmentation(_points, lambda q, _: _points(q)),
    "set_means": Augmentation(
        lambda g: _points(g).mean(axis=1), lambda q, _: _points(q).mean(axis=1)
    ),
    "token_means": Augmentation(_token_means, lambda q, _: _token_means(q)),
}
"""All augmentations by name."""
