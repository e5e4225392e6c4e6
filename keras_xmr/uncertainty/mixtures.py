"""Inclusion of images in mixed and erased images (Chun et al. 2021, Fig. 8)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from data_pipelines.vectors import select
from keras_xmr.uncertainty.occlusion import GREY, Embed

PAIRS = {
    "halves, in their mixture": "mixture",
    "other images, in the mixture": "mixture",
    "whole images, in their left half": "half",
    "other images, in the left half": "half",
}
"""The compared pairs, and the changed image that is the outer one."""


def mix_images(
    embed: Embed, pixels: np.ndarray, whole: Mapping[str, np.ndarray] | None = None
) -> dict[str, np.ndarray] | None:
    """Puts halves of two images together, and erases the right half of the first.

    Args:
        embed: Embeds pixels.
        pixels: Images uint8 (N, size, size, 3), of which every two are mixed.
        whole: The embeddings of the unchanged images, if known.

    Returns:
        By a name of `PAIRS`, the divergences of Gaussians from those of mixed and of erased images:
        KL(inner, outer) of each pair of images, the mean over the dimensions, in nats. It is 0 of
        the same Gaussian, and small where the outer one has room for the inner one. None for a
        model without sigma, or for fewer than 6 images.
    """
    count = len(pixels) // 2
    first, second = pixels[: 2 * count : 2], pixels[1 : 2 * count : 2]
    if count < 3:
        return None
    middle = pixels.shape[2] // 2
    half, mixture = first.copy(), first.copy()
    half[:, :, middle:] = GREY
    mixture[:, :, middle:] = second[:, :, middle:]
    if whole is None:
        whole = embed(pixels[: 2 * count])
    if "log_variance" not in whole:
        return None
    outer = {"mixture": embed(mixture), "half": embed(half)}
    a, b = 2 * np.arange(count), 2 * np.arange(count) + 1
    others = np.roll(a, 1)
    inner = [(a, b), (others, np.roll(b, 1)), (a,), (others,)]
    return {
        name: np.mean([divergence(select(whole, rows), outer[kind]) for rows in sides], axis=0)
        for (name, kind), sides in zip(PAIRS.items(), inner, strict=True)
    }


def divergence(inner: Mapping[str, np.ndarray], outer: Mapping[str, np.ndarray]) -> np.ndarray:
    """KL(inner, outer) of Gaussians, the mean over the dimensions: float (N,).

    Args:
        inner: N Gaussian embeddings.
        outer: N others, one for each.
    """
    log_v, log_w = (np.asarray(e["log_variance"], np.float64) for e in (inner, outer))
    apart = np.square(np.asarray(inner["mean"], np.float64) - outer["mean"])
    all_dimensions = log_w - log_v - 1 + np.exp(log_v - log_w) + apart * np.exp(-log_w)
    divergences: np.ndarray = 0.5 * all_dimensions.mean(axis=1)
    return divergences
