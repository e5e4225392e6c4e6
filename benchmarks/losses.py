"""Losses of the papers: a forward and backward pass, compared with the printed formula.

B is the batch, J the number of samples or points per item, D the dimension. Sizes are the papers',
or smaller where the terms of the printed formula do not fit into memory. The bound is the time for
the matrix products of a pass, or for reading the inputs and writing their gradient.

usage: python benchmarks/losses.py [LOSS ...]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from measuring import Row, by_memory, by_products, compare, show

Size = tuple[int, int, int]
PAPERS, SMALL, SMOKE = (128, 7, 1024), (32, 7, 512), (4, 3, 8)
SETS = (128, 4, 1024)


@dataclass(frozen=True)
class Case:
    """A loss, and at which sizes it is measured.

    Attributes:
        loss: Its class in `keras_xmr.losses`.
        options: Of the loss.
        matcher: Makes its scores; empty where it reads none.
        sizes: Those at which the printed formula fits into memory, and those at which it does not.
        reads: What it takes gradients by.
        products: Operations of matrix products in one direction; None if it is bound by memory.
    """

    loss: str
    reads: tuple[str, ...] = ("mean",)
    matcher: str = ""
    options: tuple[tuple[str, Any], ...] = ()
    sizes: tuple[tuple[Size, bool], ...] = ((PAPERS, True),)
    products: Callable[[int, int, int], float] | None = None


def _of_means(b: int, j: int, d: int) -> float:
    return 2.0 * b * b * d


def _of_samples(b: int, j: int, d: int) -> float:
    return 2.0 * (b * j) ** 2 * d


_GAUSSIAN = ("mean", "log_variance")
_TWO_SIZES = ((PAPERS, False), (SMALL, True))

CASES: dict[str, Case] = {
    "triplet, all negatives": Case(
        "Triplet", matcher="Cosine", options=(("mining", "sum"),), products=_of_means
    ),
    "triplet, hardest negative": Case("Triplet", matcher="Cosine", products=_of_means),
    "info_nce": Case("InfoNCE", matcher="Cosine", products=_of_means),
    "smooth_ap": Case("SmoothAP", matcher="Cosine", products=_of_means),
    "soft_contrastive": Case(
        "SoftContrastive",
        ("samples",),
        "MatchProbability",
        sizes=_TWO_SIZES,
        products=_of_samples,
    ),
    "daa": Case("DAA", ("samples",), sizes=_TWO_SIZES, products=_of_samples),
    "mahalanobis_contrastive": Case(
        "MahalanobisContrastive",
        _GAUSSIAN,
        options=(("temperature", 0.01),),
        products=lambda b, j, d: 8.0 * b * b * d,
    ),
    "hypergraph_contrastive": Case(
        "HypergraphContrastive",
        _GAUSSIAN,
        options=(("residual", False),),
        products=lambda b, j, d: 10.0 * b * b * d + 8.0 * b * d * d,
    ),
    "probabilistic_matching": Case(
        "ProbabilisticMatching", _GAUSSIAN, "ClosedFormSampled", products=_of_means
    ),
    "variance_aware_weighting": Case(
        "VarianceAwareWeighting",
        ("points", "mean"),
        sizes=((SETS, True),),
        products=lambda b, j, d: 2.0 * b * b * j * d,
    ),
}


def rows(smoke: bool = False, names: list[str] | None = None) -> Iterator[Row]:
    """All losses, or some."""
    for name in names or CASES:
        sizes = ((SMOKE, True),) if smoke else CASES[name].sizes
        yield from (_row(name, size, fits) for size, fits in sizes)


def _row(name: str, size: Size, fits: bool) -> Row:
    case, inputs = CASES[name], made_up(*size)
    passes = 3  # One forward, and one for the gradient by either side.
    found = sum(inputs[side][key].numpy().nbytes for side in SIDES for key in read(case, side))
    bound = by_memory(2 * found)
    if case.products is not None:
        bound = by_products(passes * case.products(*size))
    return compare(
        name,
        "B {}, J {}, D {}".format(*size) if "samples" in case.reads else _plain_size(case, size),
        gradient(ours(name, inputs), case, inputs),
        gradient(PLAIN[name], case, inputs) if fits else None,
        "the printed formula",
        **bound,
    )


def _plain_size(case: Case, size: Size) -> str:
    batch, count, dimension = size
    return f"B {batch}, " + f"K {count}, " * ("points" in case.reads) + f"D {dimension}"


SIDES = ("image", "caption")


def read(case: Case, side: str) -> list[str]:
    """The keys that a loss reads of a side."""
    if case.loss == "VarianceAwareWeighting":
        return ["points"] if side == "image" else ["mean"]
    return list(case.reads)


def made_up(batch: int, samples: int, dimension: int) -> Any:
    """Embeddings of images, and of captions near them, of all kinds; and weights for MSRM."""
    import numpy as np

    random = np.random.default_rng(0)
    common, found = random.normal(size=(batch, dimension)), {}
    for side in SIDES:
        mean = common + random.normal(size=(batch, dimension))
        mean /= np.linalg.norm(mean, axis=1, keepdims=True)
        log_variance = random.normal(loc=-7, scale=0.1, size=(batch, dimension))
        noise = random.normal(size=(batch, samples, dimension))
        drawn = mean[:, None] + np.exp(0.5 * log_variance)[:, None] * noise
        arrays = {"mean": mean, "log_variance": log_variance, "samples": drawn}
        arrays["points"] = drawn
        found[side] = {key: tf.Variable(x.astype(np.float32)) for key, x in arrays.items()}
    found["weights"] = {"thetas": [tf.eye(dimension) for _ in range(4)]}
    return found


def ours(name: str, inputs: Any) -> Callable[[Any], Any]:
    """The loss of the project, as a function of `made_up`."""
    from keras_xmr import losses, matchers

    case = CASES[name]
    loss = getattr(losses, case.loss)(**dict(case.options))
    matcher = getattr(matchers, case.matcher)() if case.matcher else None
    shapes = {side: {"mean": (None, inputs[side]["mean"].shape[1])} for side in SIDES}
    loss.build(None, shapes["image"], shapes["caption"])
    for weight in loss.trainable_weights:
        if len(weight.shape) == 2:  # Weights of the hypergraph begin as the formula's.
            weight.assign(tf.eye(weight.shape[0]))

    def value(inputs: Any) -> Any:
        image, caption = ({k: inputs[s][k] for k in read(case, s)} for s in SIDES)
        batch = inputs["image"]["mean"].shape[0]
        related = {"positives": tf.eye(batch, dtype=tf.bool), "relevance": relevance(batch)}
        scores = None if matcher is None else matcher(image, caption)
        return sum(loss.terms(scores, image, caption, related).values())

    return value


def gradient(loss: Callable[[Any], Any], case: Case, inputs: Any) -> Callable[[], float]:
    """A compiled function that computes the loss and its gradients, and returns the value."""
    variables = [inputs[side][key] for side in SIDES for key in read(case, side)]

    @tf.function(autograph=False)
    def step() -> Any:
        with tf.GradientTape() as tape:
            value = loss(inputs)
        return value, tape.gradient(value, variables, unconnected_gradients="zero")

    def run() -> float:
        value, gradients = step()
        tf.convert_to_tensor(gradients[0]).numpy()
        return float(value)

    return run


# The losses as their formulas stand: each takes what `made_up` makes. Image i matches caption i.
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
        found, expected = ranks(s, 0.01), ranks(c, 0.003)
        ratio = tf.minimum(found, expected) / tf.maximum(found, expected)
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


def variance_aware_weighting(inputs: Inputs) -> Tensor:
    """Wei et al., Eq. 5 to 11: each sub-embedding in turn, all other candidates (B, B, B)."""
    points = tf.math.l2_normalize(inputs["image"]["points"], 2)
    caption = tf.math.l2_normalize(inputs["caption"]["mean"], 1)
    batch, total = points.shape[0], 0.0
    others = 1.0 - tf.eye(batch)
    for number in range(points.shape[1]):
        scores = tf.matmul(points[:, number], caption, transpose_b=True)
        p = tf.nn.softmax(scores / 0.05, 1)[:, None, :] * others
        mean = tf.reduce_sum(p, 2, keepdims=True) / (batch - 1)
        spread = tf.reduce_sum(others * (p - mean) ** 2, 2) / (batch - 2)
        sigma = 1 + tf.linalg.diag_part(tf.sqrt(spread + 1e-12))  # Over captions, for both.
        for s in (scores, tf.transpose(scores)):
            negative = tf.reduce_max(tf.where(tf.eye(batch) > 0, -1e30, s), 1)
            hinge = tf.nn.relu(0.2 + negative - tf.linalg.diag_part(s))
            total += tf.reduce_mean(hinge / sigma**2 + tf.math.log(sigma))
    return total


PLAIN: dict[str, Callable[[Inputs], Tensor]] = {
    "triplet, all negatives": compute_both_directions(_triplet_sum),
    "triplet, hardest negative": compute_both_directions(triplet_hardest),
    "info_nce": compute_both_directions(_cross_entropy),
    "smooth_ap": compute_both_directions(_smooth_ap),
    "soft_contrastive": soft_contrastive,
    "daa": daa,
    "mahalanobis_contrastive": mahalanobis_contrastive,
    "hypergraph_contrastive": hypergraph_contrastive,
    "probabilistic_matching": probabilistic_matching,
    "variance_aware_weighting": variance_aware_weighting,
}
"""By the name of the loss."""


if __name__ == "__main__":
    show(rows(names=sys.argv[1:]))
