"""Canonical correlation analysis of all pairs in full, by scipy."""

from __future__ import annotations

import numpy as np
import scipy.linalg


def oracle(images, captions, image_ids, image_ridge, caption_ridge):
    """Canonical correlations and directions: of all pairs in full, by scipy's eigh."""
    left = images[image_ids] - images[image_ids].mean(axis=0)
    right = captions - captions.mean(axis=0)
    count, width, other = len(left), left.shape[1], right.shape[1]
    a, b, c = left.T @ left / count, right.T @ right / count, left.T @ right / count
    a += image_ridge * np.trace(a) / width * np.eye(width)
    b += caption_ridge * np.trace(b) / other * np.eye(other)
    crossed = np.block([[np.zeros_like(a), c], [c.T, np.zeros_like(b)]])
    values, vectors = scipy.linalg.eigh(crossed, scipy.linalg.block_diag(a, b))
    order = np.argsort(-values)[: min(width, other)]
    # A pair has the norm 1 in both blocks together, so 1/2 in each.
    vectors = vectors[:, order] * np.sqrt(2)
    return values[order], vectors[:width], vectors[width:]
