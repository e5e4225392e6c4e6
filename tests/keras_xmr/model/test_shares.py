"""Shares of a batch: what replicas add up to is the loss of the whole batch, and its gradients."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from keras_xmr import losses
from keras_xmr.losses.queries_base import Queries
from keras_xmr.matchers import MatchProbability, MaxCosine
from keras_xmr.model.objective import Objective
from keras_xmr.model.replicas import Part, shares

IMAGES, CAPTIONS = (3, 2, 2), (2, 4, 3)
"""Items of each of three replicas."""

GAUSSIANS = (
    losses.SoftContrastive(),
    losses.SoftContrastive(reduction="mean"),
    losses.KLDivergence(),
    losses.KLDivergence(reduction="mean"),
    losses.Uniformity(),
    losses.Uniformity(max_vectors=5),
    losses.DAA(temperature=0.1, relevance_temperature=0.1),
    losses.DAA(temperature=0.1, directions="text_to_image", similarity="scores"),
    losses.MahalanobisContrastive(temperature=0.1),
    losses.HypergraphContrastive(alpha=0.1),
    losses.ProbabilisticMatching(),
    losses.Inclusion(scale=3.0),
    losses.GeneralizedGaussianLikelihood(cross=0.5),
    losses.SphericalLikelihood(),
    losses.SphericalLikelihood(distribution="von_mises_fisher"),
)
SETS = (
    losses.Triplet(),
    losses.Triplet(mining="sum", reduction="mean"),
    losses.Triplet(mining="mean"),
    losses.NTXent(),
    losses.SupervisedContrastive(),
    losses.SmoothAP(temperature=0.1),
    losses.Diversity(),
    losses.SetUniformity(),
    losses.DynamicOrthogonality(beta=0.1),
    losses.DynamicOrthogonality(reduction="sum", masked=False),
    losses.MMD(),
)
DVSE = tuple(
    losses.VarianceAwareWeighting(sigma=sigma, mining=mining, reduction=reduction)
    for sigma, mining, reduction in (
        ("query", "hardest", "mean"),
        ("query", "mean", "sum"),
        ("shared", "hardest", "mean"),
        ("one", "hardest", "mean"),
    )
)


def embedded(kind: str, random) -> list[dict[str, tf.Variable]]:
    """Embeddings of images and of captions."""
    sides = []
    for count in (sum(IMAGES), sum(CAPTIONS)):
        keys: dict[str, tuple[int, ...]] = {"points": (2, 6), "residuals": (2, 6), "mask": (6,)}
        if kind == "gaussian":
            keys = {"mean": (6,), "log_variance": (6,), "samples": (2, 6)}
            keys |= {"reconstruction": (6,), "log_scale": (6,), "log_shape": (6,)}
        elif kind == "dvse" and sides:
            keys = {"mean": (6,)}
        arrays = {name: random.normal(size=(count, *shape)) for name, shape in keys.items()}
        sides.append({name: tf.Variable(a.astype(np.float32)) for name, a in arrays.items()})
    return sides


def parts(sizes: tuple[int, ...]) -> list[Part]:
    firsts = np.cumsum([0, *sizes[:-1]])
    return [
        Part(tf.constant(int(first)), tf.constant(size), tf.constant(sum(sizes)))
        for first, size in zip(firsts, sizes, strict=True)
    ]


def relations(random) -> dict[str, tf.Tensor]:
    """Captions of the images in turn, so that some images have two; one image has none."""
    of = np.arange(sum(CAPTIONS)) % (sum(IMAGES) - 1)
    positives = np.arange(sum(IMAGES))[:, None] == of[None]
    relevance = positives + 0.5 * random.random(positives.shape)
    return {"positives": tf.constant(positives), "relevance": tf.constant(relevance, tf.float32)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "found", "slices"),
    [
        ("gaussian", GAUSSIANS, True),
        ("set", SETS, True),
        ("dvse", DVSE, True),
        ("set", (losses.Triplet(), losses.SmoothAP()), False),
    ],
)
def test_what_replicas_add_up_to_is_the_whole(random, kind, found, slices):
    (image, caption), related = embedded(kind, random), relations(random)
    matcher = MatchProbability(scale=3.0, shift=3.0) if kind == "gaussian" else MaxCosine()
    variables = [*image.values(), *caption.values()]
    for loss in found:
        if not loss.built:
            loss.build(None, {"mean": (None, 6)}, {"mean": (None, 6)})
        objective, totals = Objective([loss], [0.7]), []

        def exchange(value, totals=totals):
            # The first time a replica is asked, the others have not been.
            if len(totals) < len(IMAGES):
                totals.append(float(value))
            return tf.constant(totals)

        def added(objective=objective, exchange=exchange):
            local = tuple({k: tf.identity(v) for k, v in e.items()} for e in (image, caption))
            whole = Queries(lambda: matcher(*local), *local, related)
            score = matcher if slices and not objective.reads_whole_scores else None
            for own in zip(parts(IMAGES), parts(CAPTIONS), strict=True):
                mine = tuple(
                    {k: part.take(v) for k, v in side.items()}
                    for part, side in zip(own, local, strict=True)
                )
                rows, columns = shares(whole, own, mine, score, exchange)
                yield objective.compute_replica_share(
                    whole, rows, columns, len(IMAGES), tf.constant(9)
                )

        list(added())
        with tf.GradientTape(persistent=True) as tape:
            whole, log = objective(matcher(image, caption), image, caption, related)
            found_parts = list(added())
            total = sum(value for value, _ in found_parts)
        name = f"{type(loss).__name__} {loss.get_config()}"
        np.testing.assert_allclose(total, whole, rtol=1e-5, atol=1e-6, err_msg=name)
        for key, value in log.items():
            np.testing.assert_allclose(
                sum(part[key] for _, part in found_parts), value, rtol=1e-5, atol=1e-6, err_msg=name
            )
        gradients, expected = (
            list(map(tf.convert_to_tensor, tape.gradient(y, variables, None, "zero")))
            for y in (total, whole)
        )
        assert max(np.abs(gradient).max() for gradient in expected) > 0, name
        for gradient, right in zip(gradients, expected, strict=True):
            np.testing.assert_allclose(gradient, right, rtol=1e-4, atol=1e-5, err_msg=name)


def test_every_loss_is_shared_or_said_to_be_whole():
    known = {type(loss).__name__ for loss in (*GAUSSIANS, *SETS, *DVSE)}
    # Captioning reads features and words; its own tests have its shares.
    assert known == set(losses.__all__) - {"Loss", "Relations", "Captioning"}
    whole = {
        type(loss).__name__ for loss in (*GAUSSIANS, *SETS, *DVSE) if not loss.is_sum_over_queries
    }
    assert whole == {"HypergraphContrastive", "MMD", "Uniformity", "VarianceAwareWeighting"}
