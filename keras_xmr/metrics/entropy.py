"""Information entropy of image embeddings over their captions."""

from __future__ import annotations

import numpy as np

from keras_xmr.utils.errors import ArgumentError

TEMPERATURE = 0.05
"""Divisor of cosines in the softmax; Wei et al. 2023 print no value of sigma^2."""


def embedding_entropy(
    cosines: np.ndarray, matches: np.ndarray, temperature: float = TEMPERATURE
) -> np.ndarray:
    """Computes the entropy of image embeddings (Wei et al. 2023, Eq. 1 and 2).

    -sum P(t) log P(t) over the captions t of the image, minus P(noise) log P(noise), where P(t) is
    the softmax of cosines over all captions, and P(noise) the rest. It is 0 if one caption has all
    of the probability, or none has any.

    Args:
        cosines: Cosines of images, or of their sub-embeddings, with all captions (..., M).
        matches: Whether each caption is of the image, bool, broadcast to the shape of `cosines`.
        temperature: sigma^2 of Eq. 1.

    Returns:
        Entropies in nats, float64 (...).

    Raises:
        ArgumentError: If the temperature is not above 0.
    """
    if not temperature > 0:
        raise ArgumentError(f"temperature must be above 0, not {temperature!r}")
    logits = np.asarray(cosines, np.float64) / temperature
    odds = np.exp(logits - logits.max(axis=-1, keepdims=True))
    probability = odds / odds.sum(axis=-1, keepdims=True)
    of_captions = np.where(matches, probability, 0.0)
    noise = np.where(matches, 0.0, probability).sum(axis=-1)
    entropy: np.ndarray = -_times_log(of_captions).sum(axis=-1) - _times_log(noise)
    return entropy


def _times_log(probability: np.ndarray) -> np.ndarray:
    """Returns p log p, which is 0 at 0."""
    product: np.ndarray = probability * np.log(np.where(probability > 0, probability, 1.0))
    return product
