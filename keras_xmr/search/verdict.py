"""Estimates of how many results of a query are right, and whether any photo is.

Two small logistic models, fitted on the captions of the validation split and short queries made of
them. Their photos are put into galleries of several sizes, with and without the relevant ones.

**Right photos.** The photo that a caption was written for, and others if their captions are near
enough to it. Similarity is the mean cosine of a photo's two nearest captions with the query, in
deviations from that between captions of one photo (`likely_right`). On the judgements of
47,109 pairs of Flickr8K by people, the probability of a majority of yes follows it by nearly the
same curve for three different text embeddings; `_OFFSET` and `_SLOPE` are fitted on the judgements
of one half of the captions. A complete truth replaces this.

**Scores** are standardised by those of the reference, a fixed set of other photos: in standard
deviations above their mean. The standard deviation, the maximum, the mean of the highest five and
the skewness of the reference, with the number of words, are the *background* of a query: how
common photos near to it are.

**How many.** The probability that a photo is right, by its score, the background, and
the share of photos that are right, which is larger in small galleries with the photo of the
query. Summed over the first k it is the count. The interval is that of independent draws;
a normal deviate moves their log-odds together: how queries differ from the model.

**Whether any.** The log-odds that the gallery holds a right photo, by the best score, the
background, and sqrt(2 log N), as the largest of N normal deviates grows (Leadbetter et al. 1983,
Theorem 1.5.3). A query is called absent if they are lower than for nine of ten validation captions
with a right photo.

**Words.** If half of the rarer words of a query are in too few captions of training, its
score is unreliable (`keras_xmr.search.vocabulary`), and the count is unknown.

Probabilities are calibrated on the average over queries and photos like those of the validation
split, as far as its labels are right. This is not a conformal guarantee, and it depends on the size
of the gallery through the models above: other sizes were measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logsumexp

from keras_xmr.search.answer_sets import centre_and_scale, group_weights, low_quantile
from keras_xmr.utils.vectors import unit_rows

LEVEL = 0.9
"""The share of counts within their interval, and of present queries that are not absent."""

FEWEST = 50
"""Minimum number of photos of a calibration."""

_OFFSET, _SLOPE = -0.07, 1.55
"""Log-odds of a majority of yes, by deviations of similarity between captions of one photo."""

_FARTHEST = -3.0
"""Below this similarity photos count as wrong: at most 2 of 1,000 judged pairs were right."""

_ABSENT = -2.75
"""Photos above this similarity are removed from galleries without a right photo."""

_SIZES = (0.05, 0.1, 0.25, 0.5, 1.0)
"""Sizes of galleries, as shares of the validation photos."""

_TOP = 50
"""Number of top results by which the count is fitted."""

_NODES = np.polynomial.hermite_e.hermegauss(15)


@dataclass(frozen=True, eq=False)
class Background:
    """Statistics of the scores of queries with the reference.

    Attributes:
        mean: Of the scores of the reference, (queries,).
        deviation: Their standard deviation, (queries,).
        features: Deviation, and maximum, mean of the highest five and skewness of standardised
            scores, and the logarithm of the number of words, (queries, 5).
    """

    mean: np.ndarray
    deviation: np.ndarray
    features: np.ndarray

    @classmethod
    def fit(cls, reference: np.ndarray, words: np.ndarray) -> Background:
        """Computes the background from scores with the reference.

        Args:
            reference: Scores of queries with the photos of the reference, (queries, R).
            words: The number of words of each query, (queries,).
        """
        mean, deviation = centre_and_scale(reference)
        standard = (reference - mean[:, None]) / deviation[:, None]
        highest = np.sort(standard, axis=1)[:, -5:]
        features = [deviation, highest[:, -1], highest.mean(axis=1), (standard**3).mean(axis=1)]
        features.append(np.log(np.maximum(words, 1)))
        return cls(mean, deviation, np.stack(features, axis=1))


@dataclass(frozen=True)
class Logistic:
    """A logistic regression.

    Attributes:
        centre: The mean of each feature.
        scale: The standard deviation of each feature.
        weights: The weight of each feature; the last is the constant.
    """

    centre: list[float]
    scale: list[float]
    weights: list[float]

    @classmethod
    def fit(
        cls, features: np.ndarray, labels: np.ndarray, weights: np.ndarray, ridge: float = 1e-3
    ) -> Logistic:
        """Maximises the likelihood by Newton's method.

        Args:
            features: (rows, F).
            labels: Probabilities of yes, (rows,).
            weights: Of the rows, (rows,).
            ridge: Of the squares of the weights, for a mean weight of 1.
        """
        centre, scale = features.mean(axis=0), np.maximum(features.std(axis=0), 1e-9)
        x = np.concatenate([(features - centre) / scale, np.ones((len(features), 1))], axis=1)
        weights = weights / weights.sum()
        penalty = np.diag([ridge] * features.shape[1] + [1e-9])
        solution = np.zeros(x.shape[1])
        for _ in range(50):
            chance = expit(x @ solution)
            slope = x.T @ (weights * (chance - labels)) + penalty @ solution
            curve = (x * (weights * chance * (1 - chance))[:, None]).T @ x + penalty
            step = np.linalg.solve(curve, slope)
            solution = solution - step / max(1.0, float(np.abs(step).max()))
            if np.abs(step).max() < 1e-8:
                break
        return cls(centre.tolist(), scale.tolist(), solution.tolist())

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """Log-odds, (rows,)."""
        standard = (features - np.asarray(self.centre)) / np.asarray(self.scale)
        log_odds: np.ndarray = standard @ np.asarray(self.weights[:-1]) + self.weights[-1]
        return log_odds


@dataclass(frozen=True)
class Count:
    """The number of right results.

    Attributes:
        expected: The sum of their probabilities.
        low: The lower end of the interval.
        high: The upper end.
        of: The number of results.
    """

    expected: float
    low: int
    high: int
    of: int


@dataclass(frozen=True)
class VerdictModel:
    """Estimates how many results are right, and whether any photo is.

    Attributes:
        presence: Log-odds that there is a right photo, by the best score.
        cutoff: Below these log-odds the gallery has no right photo.
        right: Log-odds that a photo is right.
        spread: Standard deviation of the shift of the log-odds of all photos of a query.
        share: The mean share of other photos that are right.
        gallery: The number of photos of the validation split.
        queries: Number of captions in the calibration.
        complete: Whether the truth was complete, not inferred from captions.
    """

    presence: Logistic
    cutoff: float
    right: Logistic
    spread: float
    share: float
    gallery: int
    queries: int
    complete: bool

    def is_absent(self, best: float, background: np.ndarray, gallery: int) -> bool:
        """Whether probably no photo of the gallery is right.

        The log-odds that one is are for as many queries with as without one, and are compared with
        `cutoff` alone.

        Args:
            best: The best standardised score.
            background: `Background.features` of the query, (5,).
            gallery: The number of photos.
        """
        log_odds = self.presence(_presence_features(np.array([best]), background[None], gallery))
        return bool(log_odds[0] < self.cutoff)

    def probabilities(self, scores: np.ndarray, background: np.ndarray, gallery: int) -> np.ndarray:
        """The probability that each photo is right, if any is, (k,).

        Args:
            scores: Standardised scores of photos, (k,).
            background: `Background.features` of the query, (5,).
            gallery: The number of photos.
        """
        return expit(self.right(_right_features(scores, background, gallery, self.share)))

    def count(self, probabilities: np.ndarray, level: float = LEVEL) -> Count:
        """The number of right photos by their probabilities.

        Args:
            probabilities: Of the first results, (k,).
            level: The coverage of the interval.
        """
        below = np.cumsum(count_distribution(probabilities, self.spread))
        tail = (1 - level) / 2
        low, high = (int(np.searchsorted(below, part + 1e-9)) for part in (tail, 1 - tail))
        size = len(probabilities)
        return Count(float(probabilities.sum()), min(low, size), min(high, size), size)


def calibrate_verdict(
    scores: np.ndarray,
    reference: np.ndarray,
    words: np.ndarray,
    right: np.ndarray,
    wrong: np.ndarray,
    photo_of: np.ndarray,
    is_caption: np.ndarray,
    complete: bool = False,
) -> VerdictModel | None:
    """Calibrates on queries and photos of a split; None with fewer than `FEWEST` photos.

    Args:
        scores: Of queries with photos, (queries, photos).
        reference: Of queries with the photos of the reference, (queries, R).
        words: The number of words of each query, (queries,).
        right: The probability that a photo is right, (queries, photos).
        wrong: Photos that may stay in galleries without a right photo, bool (queries, photos).
        photo_of: The column of the photo that each query was written for, (queries,).
        is_caption: Whether a query is a whole caption, bool (queries,). Captions alone calibrate
            the presence of a right photo: too many parts of captions are vague.
        complete: Whether `right` is a complete truth.
    """
    if scores.shape[1] < FEWEST:
        return None
    background = Background.fit(reference, words)
    standard = (scores - background.mean[:, None]) / background.deviation[:, None]
    others = right.sum(axis=1) - right[np.arange(len(right)), photo_of]
    share = float(max(others.mean() / max(right.shape[1] - 1, 1), 1e-6))
    random = np.random.default_rng(0)
    drawn = _draw(standard, right, wrong, photo_of, random)
    whole = [each for each in drawn if is_caption[each.query]]
    features, weights = background.features, group_weights(photo_of)
    rows, labels, queries = _presence_rows(whole, features)
    presence = Logistic.fit(rows, labels, weights[queries])
    of_captions = np.zeros(len(photo_of))
    of_captions[is_caption] = group_weights(photo_of[is_caption])
    rows, queries = rows[labels == 1], queries[labels == 1]
    # The weight of a query is shared by its rows.
    kept = of_captions[queries] / np.bincount(queries)[queries]
    cutoff = low_quantile(presence(rows), kept, 1.0 - LEVEL)
    rows, labels, number = _right_rows(drawn, features, share)
    queries = np.array([each.query for each in drawn])
    right_model = Logistic.fit(rows, labels, weights[queries[number]])
    # By the largest galleries: if only one photo is right, no two of them can be.
    largest = [each for each in drawn if each.gallery == drawn[-1].gallery]
    rows, labels, number = _right_rows(largest, features, share)
    spread = _spread(right_model, rows, random.random(len(labels)) < labels, number)
    return VerdictModel(
        presence, cutoff, right_model, spread, share, scores.shape[1], len(scores), complete
    )


@dataclass(frozen=True, eq=False)
class _Drawn:
    """A query in a gallery.

    Attributes:
        query: Its row.
        gallery: The number of photos.
        scores: The best standardised scores, descending.
        right: The probabilities that these photos are right.
        best_absent: The best score without right photos; -inf without photos.
    """

    query: int
    gallery: int
    scores: np.ndarray
    right: np.ndarray
    best_absent: float


def _draw(
    scores: np.ndarray,
    right: np.ndarray,
    wrong: np.ndarray,
    photo_of: np.ndarray,
    random: np.random.Generator,
) -> list[_Drawn]:
    """Draws galleries of several sizes for every query, with the photo of the query."""
    photos, drawn = scores.shape[1], []
    sizes = sorted({max(10, round(part * photos)) for part in _SIZES})
    for size in sizes:
        order = random.permutation(photos)
        for query in range(len(scores)):
            # Another gallery for every query: a rotation of the same order.
            start = int(random.integers(photos))
            gallery = order[np.arange(start, start + size) % photos]
            if photo_of[query] not in gallery:
                gallery = np.append(gallery[1:], photo_of[query])
            values = scores[query, gallery]
            top = np.argsort(-values)[:_TOP]
            best = float(values[wrong[query, gallery]].max(initial=-np.inf))
            drawn.append(_Drawn(query, size, values[top], right[query, gallery[top]], best))
    return drawn


def _presence_rows(
    drawn: Sequence[_Drawn], features: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features of galleries with a right photo (1) and without (0), these labels, and queries."""
    best = np.array([d.scores[0] for d in drawn] + [d.best_absent for d in drawn])
    labels = np.repeat([1.0, 0.0], len(drawn))
    queries, galleries = np.tile([(d.query, d.gallery) for d in drawn], (2, 1)).T
    has_photos = np.isfinite(best)
    rows = _presence_features(best, features[queries], galleries)
    return rows[has_photos], labels[has_photos], queries[has_photos]


def _right_rows(
    drawn: Sequence[_Drawn], features: np.ndarray, share: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features of the first photos, their labels, and the numbers of their galleries."""
    rows = np.concatenate(
        [_right_features(d.scores, features[d.query], d.gallery, share) for d in drawn]
    )
    number = np.repeat(np.arange(len(drawn)), [len(d.scores) for d in drawn])
    return rows, np.concatenate([d.right for d in drawn]), number


def _spread(model: Logistic, rows: np.ndarray, labels: np.ndarray, number: np.ndarray) -> float:
    """Fits the shift of the log-odds of a query, by maximum likelihood on a grid."""
    chance, likelihoods = expit(model(rows)), []
    candidates = np.arange(0.0, 3.01, 0.1)
    for spread in candidates:
        moved, parts = _shifted(chance, spread)
        moved = np.clip(moved, 1e-9, 1 - 1e-9)
        each = labels * np.log(moved) + (1 - labels) * np.log1p(-moved)
        total = np.array([np.bincount(number, row) for row in each])
        likelihoods.append(logsumexp(total, axis=0, b=parts[:, None]).sum())
    return float(candidates[int(np.argmax(likelihoods))])


def _shifted(chance: np.ndarray, spread: float) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities at each node of the deviate (nodes, k), and the weights of the nodes.

    Their mean is `chance`, by the approximation of the logistic by a normal distribution.
    """
    nodes, parts = _NODES
    log_odds = np.log(np.clip(chance, 1e-9, 1 - 1e-9) / np.clip(1 - chance, 1e-9, 1))
    wider = np.sqrt(1 + (16 * np.sqrt(3) / (15 * np.pi)) ** 2 * spread**2)
    return expit(log_odds * wider + spread * nodes[:, None]), parts / parts.sum()


def count_distribution(probabilities: np.ndarray, spread: float = 0.0) -> np.ndarray:
    """The probability of each count from 0 to k, (k + 1,).

    A mixture of Poisson-binomial distributions.

    Args:
        probabilities: Of each photo, (k,).
        spread: Standard deviation of the shift of their log-odds.
    """
    moved, parts = _shifted(probabilities, spread)
    distribution = np.zeros((len(parts), len(probabilities) + 1))
    distribution[:, 0] = 1.0
    for place in range(len(probabilities)):
        chance = moved[:, place, None]
        longer = distribution[:, : place + 2] * (1 - chance)
        longer[:, 1:] += distribution[:, : place + 1] * chance
        distribution[:, : place + 2] = longer
    return np.asarray(parts @ distribution)


def _presence_features(
    best: np.ndarray, background: np.ndarray, gallery: int | np.ndarray
) -> np.ndarray:
    grown = np.broadcast_to(np.sqrt(2 * np.log(np.maximum(gallery, 1))), best.shape)
    return np.column_stack([best, grown, background[:, :-1]])


def _right_features(
    scores: np.ndarray, background: np.ndarray, gallery: int, share: float
) -> np.ndarray:
    prior = np.log(share + 1 / max(gallery, 1))
    same = np.broadcast_to([prior, *background], (len(scores), 1 + len(background)))
    return np.column_stack([scores, same])


def caption_similarity(
    queries: np.ndarray, captions: np.ndarray, photo_of: np.ndarray
) -> np.ndarray:
    """The mean cosine of a query with the two nearest captions of each photo, (queries, photos).

    Args:
        queries: Vectors at unit length, (queries, D).
        captions: Likewise, (captions, D).
        photo_of: The photo of each caption, (captions,), from 0 on, ascending.
    """
    counts = np.bincount(photo_of)
    starts = np.cumsum(counts) - counts
    similarity = np.empty((len(queries), len(counts)), np.float32)
    for start in range(0, len(queries), 256):
        batch = queries[start : start + 256]
        first = batch @ captions[starts].T
        second = np.where(counts > 1, -np.inf, first).astype(first.dtype)
        for place in range(1, counts.max()):
            photos = np.flatnonzero(counts > place)
            new = batch @ captions[starts[photos] + place].T
            second[:, photos] = np.maximum(second[:, photos], np.minimum(new, first[:, photos]))
            first[:, photos] = np.maximum(first[:, photos], new)
        similarity[start : start + 256] = (first + second) / 2
    return similarity


@dataclass(frozen=True)
class SimilarityScale:
    """The mean and standard deviation of the similarity between captions of one photo."""

    mean: float
    deviation: float

    @classmethod
    def from_captions(cls, captions: np.ndarray, photo_of: np.ndarray) -> SimilarityScale | None:
        """Computes the scale from captions at unit length; None if no photo has two.

        Args:
            captions: (captions, D).
            photo_of: The photo per caption, ascending.
        """
        values = []
        for photo in np.unique(photo_of):
            vectors = captions[photo_of == photo]
            if len(vectors) < 2:
                continue
            cosines = vectors @ vectors.T
            np.fill_diagonal(cosines, -np.inf)
            values.append(-np.sort(-cosines, axis=1)[:, : min(2, len(vectors) - 1)].mean(axis=1))
        if not values:
            return None
        joined = np.concatenate(values)
        return cls(float(joined.mean()), float(max(joined.std(), 1e-6)))


def likely_right(similarity: np.ndarray, scale: SimilarityScale) -> tuple[np.ndarray, np.ndarray]:
    """Estimates the probability that a photo is right, and whether it is surely wrong.

    Args:
        similarity: The result of `caption_similarity`.
        scale: The scale between captions of one photo.
    """
    deviations = (similarity - scale.mean) / scale.deviation
    right = np.where(deviations < _FARTHEST, 0.0, expit(_OFFSET + _SLOPE * deviations))
    return right, deviations < _ABSENT


def unit_vectors(vectors: np.ndarray) -> np.ndarray:
    """Centres vectors, and scales them to unit length."""
    return unit_rows(vectors - vectors.mean(axis=0))
