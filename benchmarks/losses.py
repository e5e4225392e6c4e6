"""Losses: one forward and backward pass, compared with the formula as it is printed.

At the batch B, the samples or points per item J and the dimension D of the papers, and next to the
printed formula at a size at which all of its terms fit into memory. The bound is that of the matrix
products of a pass, or of reading the inputs and writing their gradient.

usage: python benchmarks/losses.py [LOSS ...]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

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
    "nt_xent": Case("NTXent", matcher="Cosine", products=_of_means),
    "supervised_contrastive": Case(
        "SupervisedContrastive",
        matcher="Cosine",
        options=(("temperature", 0.07),),
        products=_of_means,
    ),
    "smooth_ap": Case("SmoothAP", matcher="Cosine", products=_of_means),
    "soft_contrastive": Case(
        "SoftContrastive",
        ("samples",),
        "MatchProbability",
        sizes=_TWO_SIZES,
        products=_of_samples,
    ),
    "kl_divergence": Case("KLDivergence", _GAUSSIAN),
    "uniformity": Case(
        "Uniformity",
        ("samples",),
        sizes=_TWO_SIZES,
        products=lambda b, j, d: 8.0 * (b * j) ** 2 * d,
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
    "mmd": Case(
        "MMD",
        ("points",),
        sizes=((SETS, True),),
        products=lambda b, j, d: 6.0 * (b * j) ** 2 * d,
    ),
    "diversity": Case("Diversity", ("residuals",), sizes=((SETS, True),)),
    "set_uniformity": Case("SetUniformity", ("residuals",), sizes=((SETS, True),)),
    "dynamic_orthogonality": Case(
        "DynamicOrthogonality", ("residuals",), options=(("masked", False),), sizes=((SETS, True),)
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
    from plain_losses import PLAIN

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
    several = {"points", "residuals"} & set(case.reads)
    return f"B {batch}, " + (f"K {count}, " if several else "") + f"D {dimension}"


SIDES = ("image", "caption")


def read(case: Case, side: str) -> list[str]:
    """The keys that a loss reads of a side."""
    if case.loss == "VarianceAwareWeighting":
        return ["points"] if side == "image" else ["mean"]
    return list(case.reads)


def made_up(batch: int, samples: int, dimension: int) -> Any:
    """Embeddings of images, and of captions near them, of all kinds; and weights for MSRM."""
    import numpy as np
    import tensorflow as tf

    random = np.random.default_rng(0)
    common, found = random.normal(size=(batch, dimension)), {}
    for side in SIDES:
        mean = common + random.normal(size=(batch, dimension))
        mean /= np.linalg.norm(mean, axis=1, keepdims=True)
        log_variance = random.normal(loc=-7, scale=0.1, size=(batch, dimension))
        noise = random.normal(size=(batch, samples, dimension))
        drawn = mean[:, None] + np.exp(0.5 * log_variance)[:, None] * noise
        arrays = {"mean": mean, "log_variance": log_variance, "samples": drawn}
        arrays |= {"points": drawn, "residuals": noise}
        arrays |= {"reconstruction": drawn[:, 0], "log_scale": 0.5 * log_variance}
        arrays["log_shape"] = random.normal(scale=0.1, size=(batch, dimension))
        found[side] = {key: tf.Variable(x.astype(np.float32)) for key, x in arrays.items()}
    found["weights"] = {"thetas": [tf.eye(dimension) for _ in range(4)]}
    return found


def ours(name: str, inputs: Any) -> Callable[[Any], Any]:
    """The loss of the project, as a function of `made_up`."""
    import tensorflow as tf
    from plain_losses import relevance

    from keras_xmr import losses, matchers

    case = CASES[name]
    loss = getattr(losses, case.loss)(**dict(case.options))
    matcher = getattr(matchers, case.matcher)() if case.matcher else None
    shapes = {side: {"mean": (None, inputs[side]["mean"].shape[1])} for side in SIDES}
    loss.build(None, shapes["image"], shapes["caption"])
    for weight in loss.trainable_weights:
        if len(weight.shape) == 2:  # Those of the hypergraph begin as the printed formula's.
            weight.assign(tf.eye(weight.shape[0]))

    def value(inputs: Any) -> Any:
        image, caption = ({k: inputs[s][k] for k in read(case, s)} for s in SIDES)
        batch = inputs["image"]["mean"].shape[0]
        related = {"positives": tf.eye(batch, dtype=tf.bool), "relevance": relevance(batch)}
        scores = None if matcher is None else matcher(image, caption)
        return sum(loss.parts(scores, image, caption, related).values())

    return value


def gradient(loss: Callable[[Any], Any], case: Case, inputs: Any) -> Callable[[], float]:
    """A compiled function that computes the loss and its gradients, and returns the value."""
    import tensorflow as tf

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


if __name__ == "__main__":
    show(rows(names=sys.argv[1:]))
