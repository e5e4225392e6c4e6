"""Pictures of Gaussians in the plane, and of mixtures."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from keras_xmr.experiments.evaluation.split_evaluation import EmbeddedSplit, Evaluation
from keras_xmr.experiments.evaluation.uncertainty.probes import (
    PAIRS,
    Probes,
    divergence,
    mix_images,
)
from keras_xmr.experiments.reports.evaluation_plots import shape_pictures
from keras_xmr.judgements import GroundTruth, Judgements


def gaussians(random, count, dimension=2):
    shape = (count, dimension)
    return {"mean": random.normal(size=shape), "log_variance": random.normal(size=shape)}


def test_the_divergence_is_that_of_the_integral(random):
    inner, outer = gaussians(random, 1, 1), gaussians(random, 1, 1)
    x = np.linspace(-30, 30, 300_001)
    p, q = (
        scipy.stats.norm.logpdf(x, e["mean"][0, 0], np.exp(0.5 * e["log_variance"][0, 0]))
        for e in (inner, outer)
    )
    expected = np.sum(np.exp(p) * (p - q)) * (x[1] - x[0])
    assert divergence(inner, outer)[0] == pytest.approx(expected, rel=1e-4)


class Spread:
    """A model whose sigma is the spread of the pixels, and whose mean is their mean."""

    def embed_pixels(self, pixels):
        flat = pixels.reshape(len(pixels), -1).astype(np.float64) / 255
        mean, spread = flat.mean(axis=1, keepdims=True), flat.std(axis=1, keepdims=True)
        return {"mean": mean, "log_variance": 2 * np.log(spread + 0.01)}


def test_a_mixture_covers_its_halves(random):
    plain = np.repeat(random.integers(0, 255, (12, 1, 1, 1)), 3, axis=3)
    pixels = np.broadcast_to(plain, (12, 8, 8, 3)).astype(np.uint8)
    found = mix_images(Spread().embed_pixels, pixels)
    assert set(found) == set(PAIRS)
    halves, others, whole, others_of_half = (values.mean() for values in found.values())
    assert halves < others
    assert whole < others_of_half
    assert mix_images(Spread().embed_pixels, pixels[:4]) is None


def test_the_plane(random):
    truth = GroundTruth(
        list("abc"), list("012345"), np.repeat(np.arange(3), 2),
        Judgements.from_pairs(np.repeat(np.arange(3), 2), 3),
    )  # fmt: skip
    embedded = EmbeddedSplit(gaussians(random, 3), gaussians(random, 6))
    evaluation = Evaluation("test", [], embedded, truth, unknown=gaussians(random, 1))
    (plane,) = shape_pictures(evaluation)
    rows = list(plane.rows)
    assert len(rows) == len(plane.drawing.axes[0].patches) == 3 + 6 + 1
    assert rows[-1][1] == "<unk>"
    ellipse = plane.drawing.axes[0].patches[0]
    # Half of a Gaussian in the plane lies within 1.1774 deviations.
    sigma = np.exp(0.5 * embedded.images["log_variance"][0, 0])
    assert ellipse.width == pytest.approx(2 * 1.17741 * sigma, rel=1e-4)


def test_mixtures_are_drawn(random):
    values = {name: random.normal(size=5) for name in PAIRS}
    probes = Probes(mixtures=values)
    empty = GroundTruth([], [], np.zeros(0, int), Judgements.from_pairs(np.zeros(0, int), 0))
    evaluation = Evaluation("test", [], EmbeddedSplit({}, {}), empty, probes=probes)
    (picture,) = shape_pictures(evaluation)
    assert [row[0] for row in picture.rows] == list(PAIRS)
