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


class Weights:
    """Reference weights by their name without a prefix."""

    def __init__(self, golden: Any, prefix: str = "param_") -> None:
        self.golden = golden
        self.prefix = prefix

    def f32(self, key: str) -> np.ndarray:
        return self.golden.f32(f"{self.prefix}{key}")


def load_attention(layer: Any, weights: Weights, prefix: str) -> None:
    """The local attention of PCME."""
    kernels = (f"{prefix}.w_1.weight", f"{prefix}.w_2.weight")
    layer.set_weights([weights.f32(key).T for key in kernels])


def load_gaussian(head: Any, weights: Weights) -> None:
    """Both branches of a Gaussian head, but for its poolings."""
    load_attention(head.mean_attention, weights, "pie_net.attention")
    load_attention(head.log_variance_attention, weights, "uncertain_net.attention")
    dense(head.mean_linear, weights, "pie_net.fc")
    dense(head.log_variance_linear, weights, "uncertain_net.fc")
    layer_norm(head.mean_norm, weights, "pie_net.layer_norm")
