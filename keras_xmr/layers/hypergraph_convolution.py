"""Convolution over the nodes of a hypergraph."""

from __future__ import annotations

from typing import Any

from keras import ops

from keras_xmr.layers.part import RecordedLayer


class HypergraphConvolution(RecordedLayer):
    """sigmoid(Dv^-1/2 H De^-1 H^T Dv^-1/2 U Theta), without a bias.

    The convolution of HGNN (Feng et al. 2019, Eq. 11) with hyperedges of weight 1, as Wang et al.
    2023, Eq. 10 have it. The degrees are the sums of the rows (Dv) and of the columns (De) of the
    incidence matrix H, which can hold any nonnegative numbers.

    Args:
        residual: Whether the nodes are added to the output, with a tanh instead of the sigmoid.
            The sigmoid gives all nodes a large common part, so that they are hardly
            distinguishable after two layers.
        **kwargs: Passed on to `keras.layers.Layer`.

    Inputs are nodes (N, D) and their incidence (N, E) with the hyperedges. The output is nodes
    (N, D).
    """

    def __init__(self, residual: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.residual = residual

    def build(self, nodes_shape: Any, incidence_shape: Any = None) -> None:
        width = nodes_shape[-1]
        self.theta = self.add_weight(
            name="theta", shape=(width, width), initializer="glorot_uniform"
        )

    def call(self, nodes: Any, incidence: Any) -> Any:
        degrees = ops.sum(incidence, axis=1, keepdims=True)
        inverse_root = 1.0 / ops.sqrt(ops.maximum(degrees, 1e-12))
        sizes = ops.maximum(ops.sum(incidence, axis=0), 1e-12)[:, None]
        edges = ops.matmul(ops.transpose(incidence), inverse_root * nodes) / sizes
        nodes_again = inverse_root * ops.matmul(incidence, edges)
        convolved = ops.matmul(nodes_again, self.theta)
        return nodes + ops.tanh(convolved) if self.residual else ops.sigmoid(convolved)
