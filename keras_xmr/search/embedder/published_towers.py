"""Towers of published models, with the inputs and outputs of an embedder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_xmr.search.embedder.sessions import EmbedderError, Graph
from keras_xmr.utils.sides import Side

_OUTPUTS: dict[Side, tuple[str, ...]] = {
    "text": ("text_embeds", "pooler_output", "sentence_embedding"),
    "image": ("image_embeds", "pooler_output"),
}
"""Outputs that are embeddings, the first to take first."""

_TYPES = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
}


class _Tower:
    """Base class of towers.

    Args:
        graph: The tower.
        side: The side.
        known: Names of inputs that it may have.
        output: The output that is the embedding; None for the first of those that are usual.

    Raises:
        EmbedderError: If it has other inputs or outputs.
    """

    def __init__(
        self, graph: Graph, side: Side, known: Sequence[str], output: str | None = None
    ) -> None:
        self._graph = graph
        usual = [name for name in _OUTPUTS[side] if name in graph.outputs]
        chosen = output or next(iter(usual), None)
        others = sorted(graph.inputs.keys() - set(known))
        if chosen is None or others or known[0] not in graph.inputs:
            raise EmbedderError(
                f"{graph.path} has the inputs {', '.join(graph.inputs)} and the outputs "
                f"{', '.join(graph.outputs)}, and not {known[0]} and {_OUTPUTS[side][0]}; take a "
                "CLIP or a SigLIP with separate towers"
            )
        self._output = chosen

    def _cast(self, name: str, values: np.ndarray) -> np.ndarray:
        return values.astype(_TYPES.get(self._graph.inputs[name].type, np.float32))

    def _run(self, inputs: Mapping[str, np.ndarray], last: bool = False) -> np.ndarray:
        """Returns embeddings float32 (N, D); see `Graph` for `last`."""
        feed = {name: self._cast(name, inputs[name]) for name in self._graph.inputs}
        values = self._graph(feed, [self._output], last)[self._output]
        return values.reshape(len(values), -1).astype(np.float32)


class PublishedTexts(_Tower):
    """Text tower.

    Args:
        graph: The tower.
        output: See `_Tower`.

    Attributes:
        length: The number of tokens that it takes; None for any.
    """

    def __init__(self, graph: Graph, output: str | None = None) -> None:
        super().__init__(graph, "text", ("input_ids", "attention_mask"), output)
        shape = graph.inputs["input_ids"].shape
        self._takes_one = shape[0] == 1
        self.length: int | None = shape[1] if isinstance(shape[1], int) else None

    def options(self) -> dict[str, Any]:
        """Returns the options that the constructor takes."""
        return {"output": self._output}

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns `mean` (N, D) of `input_ids` and `attention_mask` (N, L)."""
        step = 1 if self._takes_one else max(1, len(inputs["input_ids"]))
        vectors = [
            self._run({name: values[begin : begin + step] for name, values in inputs.items()})
            for begin in range(0, len(inputs["input_ids"]), step)
        ]
        return {"mean": np.concatenate(vectors)}


class PublishedImages(_Tower):
    """Image tower.

    Args:
        graph: The tower.
        mean: Subtracted from the scaled channels.
        deviation: By which they are divided then.
        scale: Factor of the pixels.
        output: See `_Tower`.

    Attributes:
        outputs: Names of its outputs.
    """

    def __init__(
        self,
        graph: Graph,
        mean: Sequence[float],
        deviation: Sequence[float],
        scale: float,
        output: str | None = None,
    ) -> None:
        super().__init__(graph, "image", ("pixel_values",), output)
        self.outputs = ["mean"]
        self._mean, self._deviation, self._scale = list(mean), list(deviation), scale

    def options(self) -> dict[str, Any]:
        """Returns the options that the constructor takes."""
        return {
            "mean": self._mean,
            "deviation": self._deviation,
            "scale": self._scale,
            "output": self._output,
        }

    def __call__(
        self,
        inputs: Mapping[str, np.ndarray],
        outputs: Sequence[str] | None = None,
        last: bool = False,
    ) -> dict[str, np.ndarray]:
        """Returns `mean` (N, D) of `images`, pixels uint8 (N, size, size, 3).

        See `Graph` for `last`.
        """
        scaled = inputs["images"].astype(np.float32) * np.float32(self._scale)
        mean, deviation = (np.array(x, np.float32) for x in (self._mean, self._deviation))
        values = (scaled - mean) / deviation
        pixels = np.ascontiguousarray(values.transpose(0, 3, 1, 2))
        return {"mean": self._run({"pixel_values": pixels}, last)}
