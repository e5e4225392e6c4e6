"""Puts weights that PyTorch keeps into Keras layers."""

from __future__ import annotations

from typing import Any

import numpy as np


def dense(layer: Any, weights: Any, prefix: str, bias: bool = True) -> None:
    """A Linear layer: its weight is (out, in)."""
    values = [weights.f32(f"{prefix}.weight").T]
    layer.set_weights([*values, weights.f32(f"{prefix}.bias")] if bias else values)


def layer_norm(layer: Any, weights: Any, prefix: str) -> None:
    """A LayerNorm."""
    layer.set_weights([weights.f32(f"{prefix}.weight"), weights.f32(f"{prefix}.bias")])


def gru_kernel(torch_kernel: np.ndarray) -> np.ndarray:
    """Gates of PyTorch are r, z, n along the first axis; of Keras z, r, h along the last."""
    r, z, n = np.split(torch_kernel, 3, axis=0)
    return np.concatenate([z, r, n], axis=0).T


def gru(layer: Any, weights: Any, prefix: str, suffix: str) -> None:
    """One direction of a GRU, with `reset_after=True`."""
    get = {k: weights.f32(f"{prefix}.{k}_l0{suffix}") for k in ("weight_ih", "weight_hh")}
    biases = [weights.f32(f"{prefix}.{k}_l0{suffix}") for k in ("bias_ih", "bias_hh")]
    bias = np.stack([gru_kernel(b[:, None])[0] for b in biases])
    layer.set_weights([gru_kernel(get["weight_ih"]), gru_kernel(get["weight_hh"]), bias])


def gru_gradient(gradient: np.ndarray) -> np.ndarray:
    """A kernel gradient of Keras in the layout of PyTorch."""
    z, r, h = np.split(gradient.T, 3, axis=0)
    return np.concatenate([r, z, h], axis=0)
