"""Every loss and every matcher with embeddings that it accepts, with any backend.

Arrays are of 4 images and 5 captions; of tokens and sets with K = 3, of 6 dimensions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from keras_xmr import losses, matchers

IMAGES, CAPTIONS, SIZE, DIMENSION = 4, 5, 3, 6
IMAGE_IDS = np.array([0, 0, 1, 2, 3])
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Case:
    """A part, and how it is called.

    Attributes:
        make: Makes the part.
        kinds: The kinds of embedding of images and captions; "residuals" is a set with all keys.
        matcher: Makes the matcher of a loss; None for none.
        relevance: Whether the loss reads a relevance.
        seeded: Whether the part draws something in training.
    """

    make: Callable[[], Any]
    kinds: tuple[str, str] = ("point", "point")
    matcher: Callable[[], Any] | None = None
    relevance: bool = False
    seeded: bool = False


GAUSSIANS, SETS, TOKENS = ("gaussian",) * 2, ("set",) * 2, ("tokens",) * 2

LOSSES: dict[str, Case] = {
    "InfoNCE": Case(losses.InfoNCE),
    "InfoNCE_learnable": Case(lambda: losses.InfoNCE(learnable=True)),
    "SupervisedContrastive": Case(losses.SupervisedContrastive),
    "Triplet": Case(losses.Triplet),
    "Triplet_sum": Case(lambda: losses.Triplet(mining="sum", reduction="mean")),
    "Triplet_mean": Case(lambda: losses.Triplet(mining="mean")),
    "SmoothAP": Case(losses.SmoothAP),
    "DAA": Case(losses.DAA, relevance=True),
    "DAA_dot": Case(lambda: losses.DAA(similarity="dot"), relevance=True),
    "DAA_scores": Case(lambda: losses.DAA(similarity="scores"), relevance=True),
    "SoftContrastive": Case(
        losses.SoftContrastive, GAUSSIANS, matchers.MatchProbability, seeded=True
    ),
    "SoftContrastive_mean": Case(losses.SoftContrastive, matcher=matchers.MeanOnly),
    "ProbabilisticMatching": Case(
        losses.ProbabilisticMatching, GAUSSIANS, matchers.ClosedFormSampled
    ),
    "KLDivergence": Case(losses.KLDivergence, GAUSSIANS),
    "Uniformity": Case(losses.Uniformity),
    "Uniformity_max_vectors": Case(lambda: losses.Uniformity(max_vectors=4), GAUSSIANS),
    "MahalanobisContrastive": Case(losses.MahalanobisContrastive, GAUSSIANS),
    "HypergraphContrastive": Case(losses.HypergraphContrastive, GAUSSIANS),
    "HypergraphContrastive_printed": Case(
        lambda: losses.HypergraphContrastive(residual=False), GAUSSIANS
    ),
    "AdaptiveOfflineQuintuplet": Case(losses.AdaptiveOfflineQuintuplet),
    "VarianceAwareWeighting": Case(losses.VarianceAwareWeighting, ("set", "point")),
    "VarianceAwareWeighting_shared": Case(
        lambda: losses.VarianceAwareWeighting(sigma="shared", sigma_of="scores", mining="mean"),
        ("point", "set"),
    ),
    "Diversity": Case(losses.Diversity, ("residuals", "point")),
    "SetUniformity": Case(losses.SetUniformity, ("residuals", "residuals")),
    "DynamicOrthogonality": Case(losses.DynamicOrthogonality, ("residuals", "point")),
    "DynamicOrthogonality_products": Case(
        lambda: losses.DynamicOrthogonality(normalize=False), ("residuals", "point")
    ),
    "MMD": Case(losses.MMD, SETS),
}
"""All losses but `Captioning`, which reads words in a model alone."""

MATCHERS: dict[str, Case] = {
    "Cosine": Case(matchers.Cosine),
    "CosineLogits": Case(matchers.CosineLogits),
    "MeanOnly": Case(matchers.MeanOnly),
    "PointToRectangle": Case(matchers.PointToRectangle, ("rectangle", "point")),
    "MaxCosine": Case(matchers.MaxCosine, SETS),
    "MeanCosine": Case(matchers.MeanCosine, ("set", "point")),
    "SmoothChamfer": Case(matchers.SmoothChamfer, SETS),
    **{
        name: Case(getattr(matchers, name), GAUSSIANS)
        for name in (
            *("Bhattacharyya", "ClosedFormSampled", "ELK", "KL", "Mahalanobis"),
            *("MahalanobisCosine", "ReverseKL", "SymmetricKL", "Wasserstein"),
        )
    },
    **{
        name: Case(getattr(matchers, name), GAUSSIANS, seeded=True)
        for name in ("AverageL2", "JensenShannon", "MatchProbability")
    },
    "SCAN": Case(matchers.SCAN, TOKENS),
    "SCAN_regions": Case(
        lambda: matchers.SCAN(direction="image_to_text", aggregation="log_sum_exp"), TOKENS
    ),
    "IMRAM": Case(lambda: matchers.IMRAM(steps=2), TOKENS),
    "NAAF": Case(matchers.NAAF, TOKENS),
    "SAF": Case(lambda: matchers.SAF(similarity_dimension=4), TOKENS, seeded=True),
    "SGR": Case(lambda: matchers.SGR(similarity_dimension=4, steps=2), TOKENS, seeded=True),
    "SGRAF": Case(lambda: matchers.SGRAF(similarity_dimension=4, steps=2), TOKENS, seeded=True),
}


def embedding(kind: str, items: int, random: np.random.Generator) -> Arrays:
    """Returns random embeddings of some items, float32."""

    def normal(*shape: int) -> np.ndarray:
        return random.normal(size=shape).astype(np.float32)

    if kind == "gaussian":
        return {"mean": normal(items, DIMENSION), "log_variance": normal(items, DIMENSION) - 1.0}
    if kind == "set":
        return {"points": normal(items, SIZE, DIMENSION)}
    if kind == "residuals":
        return {
            "points": normal(items, SIZE, DIMENSION),
            "residuals": normal(items, SIZE, DIMENSION),
        }
    if kind == "rectangle":
        return {"mean": normal(items, DIMENSION), "offset": np.abs(normal(items, DIMENSION))}
    if kind == "tokens":
        mask = (np.arange(SIZE) < 1 + np.arange(items)[:, None] % SIZE).astype(np.float32)
        return {"tokens": normal(items, SIZE, DIMENSION) * mask[..., None], "mask": mask}
    return {"mean": normal(items, DIMENSION)}


def sides(case: Case, random: np.random.Generator) -> tuple[Arrays, Arrays]:
    """Returns random embeddings of images and captions that a part accepts."""
    return embedding(case.kinds[0], IMAGES, random), embedding(case.kinds[1], CAPTIONS, random)


def relevance(case: Case, random: np.random.Generator) -> dict[str, np.ndarray]:
    """Returns the keyword argument of a loss that reads a relevance; else nothing."""
    if not case.relevance:
        return {}
    return {"relevance": random.uniform(size=(IMAGES, CAPTIONS)).astype(np.float32)}


IDLE = {
    "common/bias": "softmax does not depend on a number that is added to all logits",
    "slots_norm/beta": "likewise: it adds the same number to the logits of all slots",
}
"""Weights whose gradient is 0, by the end of their path: rounding makes it 0, or nearly so."""

IDLE_IN_TRAINING = {
    "gate/bias": "the statistics of the batch have it, too, and it cancels",
    "image_attention/mean/bias": "likewise",
}


def check_slopes(paths: list[str], slopes: list[Any], idle: dict[str, str]) -> None:
    """Checks that those weights, and no others, have no gradient."""
    sizes = [float(np.abs(slope).max()) for slope in slopes]
    least = 1e-6 * max(sizes, default=0.0)
    still = {path for path, size in zip(paths, sizes, strict=True) if size <= least}
    assert still == {path for path in paths if path.endswith(tuple(idle))}
