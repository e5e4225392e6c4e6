"""Images of DVSE by Wei et al. 2023, Eq. 3 and 4, item by item: three readings of the mask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def sub_embeddings(
    features: np.ndarray, weights: Mapping[str, Any], reading: str
) -> dict[str, Any]:
    """Computes the embeddings and masked sub-embeddings of one item.

    Args:
        features: Valid local features (L, F).
        weights: "hidden" (F, H), "heads" (H, K), "fc" (F, D), "fc_bias", "pool" (F, D),
            "pool_bias", "gamma", "beta" (D,), and "mask" (F, K), or (F, D) for coordinates.
        reading: "sub_embeddings", "sub_embeddings_in_loss", "coordinates" or "none".

    Returns:
        "points" and "residuals" (K, D), and the number of sub-embeddings that are not masked.
    """
    scores = np.tanh(features @ weights["hidden"]) @ weights["heads"]
    pooled = features.mean(axis=0) @ weights["pool"] + weights["pool_bias"]
    kept = 1 / (1 + np.exp(-(features.mean(axis=0) @ weights["mask"]))) > 0.5
    points, residuals = [], []
    for k in range(scores.shape[1]):
        attention = np.exp(scores[:, k] - scores[:, k].max())
        local = (attention[:, None] * features).sum(axis=0) / attention.sum()
        value = np.tanh(local @ weights["fc"] + weights["fc_bias"])
        masked = value
        if reading == "coordinates":
            masked = np.array([x if stays else 0.0 for x, stays in zip(value, kept, strict=True)])
        elif reading != "none":
            masked = value if kept[k] else np.zeros_like(value)
        total = pooled + (masked if reading == "sub_embeddings" else value)
        centred = total - total.mean()
        normed = centred / np.sqrt((centred**2).mean() + 1e-5) * weights["gamma"] + weights["beta"]
        points.append(normed / np.linalg.norm(normed))
        residuals.append(masked)
    return {"points": np.array(points), "residuals": np.array(residuals), "kept": kept}


def correlation(residuals: np.ndarray, beta: float) -> float:
    """Computes L_dc of one item with cosines (Wei et al. 2023, Eq. 4)."""
    total = 0.0
    for i, left in enumerate(residuals):
        for j, right in enumerate(residuals):
            lengths = np.linalg.norm(left) * np.linalg.norm(right)
            if i != j and lengths > 0:
                total += abs(left @ right) / lengths
    return max(0.0, total - beta)
