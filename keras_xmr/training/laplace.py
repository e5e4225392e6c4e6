"""The posterior of the last matrix of a tower, in closed form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from keras_xmr.vectors import unit_rows

# Precisions of the prior that are tried.
_PRECISIONS = np.geomspace(1e-6, 1e8, 141)

# Rows of the score matrix that are held at once.
_ROWS = 1024


@dataclass(frozen=True, eq=False)
class Posterior:
    """A Gaussian over a matrix (F, D), whose covariance is a Kronecker product.

    Attributes:
        input_covariance: Its factor over the inputs, (F, F).
        output_variance: The diagonal of its factor over the outputs, (D,).
        prior_precision: That of the prior, which makes the data the most likely.
    """

    input_covariance: np.ndarray
    output_variance: np.ndarray
    prior_precision: float


def last_layer_posterior(
    inputs: np.ndarray, kernel: np.ndarray, others: np.ndarray, temperature: float
) -> Posterior:
    """The Laplace approximation of BayesVLM (Baumann et al. 2024).

    The generalised Gauss-Newton matrix of the loss over N items is taken to be A times B
    (Kronecker), A = sum phi phi^T / sqrt(N), and B the sum of the curvature by the embedding,
    / sqrt(N). To each the root of the precision of the prior is added, and both are inverted. The
    precision is that with the largest marginal likelihood under this posterior.

    The pseudo-count of the paper, by which the data count more or less, is 1, as in the released
    code. That code maximises a marginal likelihood whose determinant has no factor 1/2.

    Args:
        inputs: Inputs phi of the matrix, for the N training items (N, F).
        kernel: The matrix W (F, D).
        others: Embeddings of all training items of the other side (M, D), of any length.
        temperature: That of InfoNCE.
    """
    root = np.sqrt(len(inputs))
    factors = (inputs.T @ inputs / root, curvature(inputs @ kernel, others, temperature) / root)
    values, axes = zip(*(np.linalg.eigh(factor) for factor in factors), strict=True)
    values = tuple(np.maximum(each, 0.0) for each in values)
    precision = max(_PRECISIONS, key=lambda tried: _evidence(tried, kernel, *values))
    by_input, by_output = (1.0 / (each + np.sqrt(precision)) for each in values)
    return Posterior(
        (axes[0] * by_input) @ axes[0].T, np.square(axes[1]) @ by_output, float(precision)
    )


def curvature(embeddings: np.ndarray, others: np.ndarray, temperature: float) -> np.ndarray:
    """Sum of the Gauss-Newton matrices of InfoNCE by the embedding of each item, (D, D).

    Its scores are cosines with all others, divided by the temperature, and the cross entropy has
    the curvature diag(p) - p p^T in them, whatever the label. With g an embedding, u its
    direction and Y the directions of the others, that of one item is
    (I - u u^T) Y^T (diag(p) - p p^T) Y (I - u u^T) / (temperature |g|)^2, which is summed without
    one matrix per item.

    Args:
        embeddings: Embeddings of N items (N, D), not normalised.
        others: Those of the other side (M, D).
        temperature: That of InfoNCE.
    """
    candidates, total = unit_rows(others), np.zeros((embeddings.shape[1],) * 2)
    for first in range(0, len(embeddings), _ROWS):
        total += _row_curvature(embeddings[first : first + _ROWS], candidates, temperature)
    return total


def _row_curvature(
    embeddings: np.ndarray, candidates: np.ndarray, temperature: float
) -> np.ndarray:
    units = unit_rows(embeddings)
    weights = 1.0 / np.square(embeddings).sum(axis=1) / temperature**2
    cosines = units @ candidates.T
    shares = softmax(cosines / temperature, axis=1)
    means = shares @ candidates
    spread = (candidates.T * (weights @ shares)) @ candidates - (means.T * weights) @ means
    # The matrix of each item times its direction, and that again.
    along = (shares * cosines) @ candidates - means * np.sum(means * units, axis=1, keepdims=True)
    twice = np.sum(along * units, axis=1)
    crossed = (units.T * weights) @ along
    return spread - crossed - crossed.T + (units.T * (weights * twice)) @ units


def _evidence(
    precision: float, kernel: np.ndarray, by_input: np.ndarray, by_output: np.ndarray
) -> float:
    """Logarithm of the marginal likelihood, but for what does not depend on the prior."""
    root, (width, dimension) = np.sqrt(precision), kernel.shape
    determinant = dimension * np.log(by_input + root).sum() + width * np.log(by_output + root).sum()
    prior = kernel.size * np.log(precision) - precision * np.square(kernel).sum()
    return float(0.5 * (prior - determinant))
