"""The losses as their formulas stand, for benchmarks to compare with.

Each takes what `losses.py` makes of its size, and returns a scalar. Image i matches caption i.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

Tensor = Any
Inputs = dict[str, dict[str, Tensor]]
"""By side, "image" and "caption": `mean`, `log_variance`, `samples`, `points`, `residuals`."""


def cosines(inputs: Inputs) -> Tensor:
    """Cosines (B, B) of the means."""
    sides = [tf.math.l2_normalize(inputs[side]["mean"], 1) for side in ("image", "caption")]
    return tf.matmul(*sides, transpose_b=True)


def compute_both_directions(loss: Callable[[Tensor], Tensor]) -> Callable[[Inputs], Tensor]:
    """A loss of score matrices, with images and with captions as queries."""

    def value(inputs: Inputs) -> Tensor:
        scores = cosines(inputs)
        return loss(scores) + loss(tf.transpose(scores))

    return value


def _sides(loss: Callable[[Tensor], Tensor], key: str) -> Callable[[Inputs], Tensor]:
    return lambda inputs: loss(inputs["image"][key]) + loss(inputs["caption"][key])


def _triplet_sum(scores: Tensor) -> Tensor:
    """Faghri et al. 2018, Eq. 5."""
    hinges = tf.nn.relu(0.2 + scores - tf.linalg.diag_part(scores)[:, None])
    return tf.reduce_sum(tf.linalg.set_diag(hinges, tf.zeros(scores.shape[0])))


def triplet_hardest(scores: Tensor) -> Tensor:
    """Faghri et al. 2018, Eq. 6."""
    hinges = tf.nn.relu(0.2 + scores - tf.linalg.diag_part(scores)[:, None])
    hinges = tf.linalg.set_diag(hinges, tf.zeros(scores.shape[0]))
    return tf.reduce_sum(tf.reduce_max(hinges, 1))


def _cross_entropy(scores: Tensor) -> Tensor:
    """Radford et al. 2021, Figure 3."""
    labels = tf.range(scores.shape[0])
    entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores / 0.07)
    return 0.5 * tf.reduce_mean(entropy)


def _smooth_ap(scores: Tensor) -> Tensor:
    """Brown et al. 2020, Eq. 6, with all comparisons (B, B, B) at once."""
    above = tf.sigmoid((scores[:, None, :] - scores[:, :, None]) / 0.01)
    ranks = 0.5 + tf.reduce_sum(above, 2)
    return 0.5 * tf.reduce_mean(1 - 1 / tf.linalg.diag_part(ranks))


def soft_contrastive(inputs: Inputs) -> Tensor:
    """Chun et al. 2021, Eq. 1 to 3, with all differences (B, B, J, J, D) at once."""
    image, caption = (inputs[side]["samples"] for side in ("image", "caption"))
    apart = image[:, None, :, None] - caption[None, :, None]
    logits = 30.0 - 30.0 * tf.sqrt(tf.reduce_sum(apart**2, -1) + 1e-6)
    match = tf.reduce_logsumexp(tf.math.log_sigmoid(logits), (2, 3))
    scores = match - tf.reduce_logsumexp(tf.math.log_sigmoid(-logits), (2, 3))
    positives = tf.eye(image.shape[0], dtype=tf.bool)
    return 2 * tf.reduce_sum(tf.nn.softplus(tf.where(positives, -scores, scores)))


def daa(inputs: Inputs) -> Tensor:
    """Li et al. 2022, Eq. 10 to 12, with all comparisons (B J, B J, B J) at once."""

    def ranks(values: Tensor, temperature: float) -> Tensor:
        compared = tf.sigmoid((values[:, None, :] - values[:, :, None]) / temperature)
        return 0.5 + tf.reduce_sum(compared, -1)

    samples = [inputs[side]["samples"] for side in ("image", "caption")]
    batch, count, dimension = samples[0].shape
    left, right = (tf.math.l2_normalize(tf.reshape(x, (-1, dimension)), 1) for x in samples)
    scores = tf.matmul(left, right, transpose_b=True)
    relevant = tf.repeat(tf.repeat(relevance(batch), count, 0), count, 1)
    total = 0.0
    for s, c in ((scores, relevant), (tf.transpose(scores), tf.transpose(relevant))):
        mine, right_ones = ranks(s, 0.01), ranks(c, 0.003)
        ratio = tf.minimum(mine, right_ones) / tf.maximum(mine, right_ones)
        total += 1 - tf.reduce_mean(ratio)
    return total


def relevance(batch: int) -> Tensor:
    """Some relevance, mostly 0, as it is between captions."""
    random = tf.random.stateless_uniform((batch, batch), (0, 0))
    return tf.eye(batch) + tf.nn.relu(random - 0.8)


def _match_loss(logits: Tensor) -> Tensor:
    """Wang et al. 2023, Eq. 5 to 7."""
    p = tf.nn.softmax(logits, 1)
    positives = tf.eye(logits.shape[0], dtype=tf.bool)
    return -tf.reduce_mean(tf.math.log(tf.where(positives, p, 1 - p + 1e-12) + 1e-12))


def _mahalanobis(mean: Tensor, log_variance: Tensor, nodes: Tensor) -> Tensor:
    """Wang et al. 2023, Eq. 4, with all differences (B, B, D) at once."""
    apart = nodes[None] - mean[:, None]
    return tf.reduce_sum(apart**2 / tf.exp(log_variance)[:, None], -1)


def _queries(inputs: Inputs) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Means and variances that ask, and the means that are asked for, of both directions."""
    image, caption = inputs["image"], inputs["caption"]
    return [
        (image["mean"], image["log_variance"], caption["mean"]),
        (caption["mean"], caption["log_variance"], image["mean"]),
    ]


def mahalanobis_contrastive(inputs: Inputs) -> Tensor:
    """Wang et al. 2023, Eq. 4 to 7."""
    return sum(_match_loss(-0.01 * _mahalanobis(*asked)) for asked in _queries(inputs))


def hypergraph_contrastive(inputs: Inputs) -> Tensor:
    """Wang et al. 2023, Eq. 8 to 11, with the matrices of HGNN."""
    thetas, total = inputs["weights"]["thetas"], 0.0
    for number, (mean, log_variance, nodes) in enumerate(_queries(inputs)):
        positives = tf.eye(mean.shape[0], dtype=tf.bool)
        distance = _mahalanobis(mean, log_variance, nodes)
        incidence = tf.transpose(tf.where(positives, 1.0, tf.exp(-2.0 * distance)))
        root = tf.linalg.diag(tf.reduce_sum(incidence, 1) ** -0.5)
        edges = tf.linalg.diag(1 / tf.reduce_sum(incidence, 0))
        graph = root @ incidence @ edges @ tf.transpose(incidence) @ root
        for theta in (thetas[2 * number], thetas[2 * number + 1]):
            nodes = tf.sigmoid(graph @ nodes @ theta)
        sides = [tf.math.l2_normalize(x, 1) for x in (mean, nodes)]
        total += _match_loss(5.0 * tf.matmul(*sides, transpose_b=True))
    return total


def probabilistic_matching(inputs: Inputs) -> Tensor:
    """Chun 2024, Eq. 1 to 3, with all differences (B, B, D) at once."""
    (mean, log_variance, other), (_, other_log_variance, _) = _queries(inputs)
    apart = tf.reduce_sum((mean[:, None] - other[None]) ** 2, -1)
    spread = tf.exp(log_variance)[:, None] + tf.exp(other_log_variance)[None]
    logits = 5.0 - 5.0 * (apart + tf.reduce_sum(spread, -1))
    targets, own = tf.eye(mean.shape[0]), tf.linalg.diag_part(logits)

    def entropy(labels: Tensor) -> Tensor:
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels, logits))

    pseudo = [
        tf.maximum(targets, tf.cast(logits >= rank, tf.float32))
        for rank in (own[:, None], own[None])
    ]
    return 2 * entropy(targets) + 0.1 * sum(entropy(labels) for labels in pseudo)


def kl_divergence(inputs: Inputs) -> Tensor:
    """Chun et al. 2021, section 3.2.1, by the library of distributions."""
    import tensorflow_probability as tfp

    total = 0.0
    for side in ("image", "caption"):
        mean, deviation = inputs[side]["mean"], tf.exp(0.5 * inputs[side]["log_variance"])
        own = tfp.distributions.MultivariateNormalDiag(mean, deviation)
        standard = tfp.distributions.MultivariateNormalDiag(tf.zeros_like(mean), tf.ones_like(mean))
        total += tf.reduce_sum(own.kl_divergence(standard))
    return total


def _squares(left: Tensor, right: Tensor) -> Tensor:
    """Squared distances (N, M), with all differences (N, M, D) at once."""
    return tf.reduce_sum((left[:, None] - right[None]) ** 2, -1)


def _flat(inputs: Inputs, key: str) -> list[Tensor]:
    vectors = [inputs[side][key] for side in ("image", "caption")]
    return [tf.reshape(x, (-1, x.shape[-1])) for x in vectors]


def uniformity(inputs: Inputs) -> Tensor:
    """Wang and Isola 2020, Eq. 2, on samples."""
    vectors = tf.concat(_flat(inputs, "samples"), 0)
    kernel = tf.exp(-2.0 * _squares(vectors, vectors))
    count = float(vectors.shape[0])
    others = tf.reduce_sum(tf.linalg.set_diag(kernel, tf.zeros(vectors.shape[0])))
    return tf.math.log(others / (count * (count - 1)))


def mmd(inputs: Inputs) -> Tensor:
    """Song and Soleymani 2019, Eq. 6."""
    x, y = _flat(inputs, "points")
    kernel = [tf.exp(-0.5 * tf.sqrt(_squares(*p) + 1e-12)) for p in ((x, x), (x, y), (y, y))]
    within, across, within_other = map(tf.reduce_mean, kernel)
    return within - 2 * across + within_other


def _pairs(size: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(size) for j in range(size) if i != j]


def _diversity(residuals: Tensor) -> Tensor:
    """Song and Soleymani 2019, Eq. 7, pair by pair."""
    unit, size = tf.math.l2_normalize(residuals, 2), residuals.shape[1]
    squares = [tf.reduce_sum(unit[:, i] * unit[:, j], 1) ** 2 for i, j in _pairs(size)]
    return tf.reduce_mean(tf.sqrt(tf.add_n(squares) + 1e-12)) / size**2


def _set_uniformity(residuals: Tensor) -> Tensor:
    """Kim et al. 2023, section 3.4, pair by pair."""
    unit, pairs = tf.math.l2_normalize(residuals, 2), _pairs(residuals.shape[1])
    kernel = [tf.exp(-2.0 * tf.reduce_sum((unit[:, i] - unit[:, j]) ** 2, 1)) for i, j in pairs]
    return tf.reduce_mean(tf.add_n(kernel)) / len(pairs)


def orthogonality(residuals: Tensor) -> Tensor:
    """Wei et al., Eq. 4, pair by pair."""
    unit = tf.math.l2_normalize(residuals, 2)
    products = [tf.abs(tf.reduce_sum(unit[:, i] * unit[:, j], 1)) for i, j in _pairs(unit.shape[1])]
    return tf.reduce_mean(tf.nn.relu(tf.add_n(products) - 0.4))


def variance_aware_weighting(inputs: Inputs) -> Tensor:
    """Wei et al., Eq. 5 to 11: each sub-embedding in turn, all other candidates (B, B, B)."""
    points = tf.math.l2_normalize(inputs["image"]["points"], 2)
    caption = tf.math.l2_normalize(inputs["caption"]["mean"], 1)
    batch, total = points.shape[0], 0.0
    others = 1.0 - tf.eye(batch)
    for number in range(points.shape[1]):
        scores = tf.matmul(points[:, number], caption, transpose_b=True)
        for s in (scores, tf.transpose(scores)):
            p = tf.nn.softmax(s / 0.05, 1)[:, None, :] * others
            mean = tf.reduce_sum(p, 2, keepdims=True) / (batch - 1)
            spread = tf.reduce_sum(others * (p - mean) ** 2, 2) / (batch - 2)
            sigma = 1 + tf.linalg.diag_part(tf.sqrt(spread + 1e-12))
            negative = tf.reduce_max(tf.where(tf.eye(batch) > 0, -1e30, s), 1)
            hinge = tf.nn.relu(0.2 + negative - tf.linalg.diag_part(s))
            total += tf.reduce_mean(hinge / sigma**2 + tf.math.log(sigma))
    return total


PLAIN: dict[str, Callable[[Inputs], Tensor]] = {
    "triplet, all negatives": compute_both_directions(_triplet_sum),
    "triplet, hardest negative": compute_both_directions(triplet_hardest),
    "nt_xent": compute_both_directions(_cross_entropy),
    "supervised_contrastive": compute_both_directions(_cross_entropy),
    "smooth_ap": compute_both_directions(_smooth_ap),
    "soft_contrastive": soft_contrastive,
    "kl_divergence": kl_divergence,
    "uniformity": uniformity,
    "daa": daa,
    "mahalanobis_contrastive": mahalanobis_contrastive,
    "hypergraph_contrastive": hypergraph_contrastive,
    "probabilistic_matching": probabilistic_matching,
    "mmd": mmd,
    "diversity": _sides(_diversity, "residuals"),
    "set_uniformity": _sides(_set_uniformity, "residuals"),
    "dynamic_orthogonality": _sides(orthogonality, "residuals"),
    "variance_aware_weighting": variance_aware_weighting,
}
"""By the name of the loss."""
