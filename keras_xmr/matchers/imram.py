"""Matcher of regions and words that attends several times (Chen et al. 2020)."""

from __future__ import annotations

from typing import Any, Literal, Unpack

from keras_xmr.embeddings.kinds import Tokens
from keras_xmr.layers import l2_normalize
from keras_xmr.layers.backend import read_variables
from keras_xmr.layers.operations import ops
from keras_xmr.matchers.alignment import attention_logits, linear, score_in_tiles, softmax
from keras_xmr.matchers.base import Matcher
from keras_xmr.parts.contracts import MatcherContract, SearchContract
from keras_xmr.parts.option_types import LayerOptions, PositiveFloat, PositiveInt
from keras_xmr.parts.tensors import Shapes, Tensor, add_up

_SIDES = {"text_to_image": ("text", "image"), "image_to_text": ("image", "text")}
"""The side that attends, and the one that is attended to."""


class IMRAM(Matcher):
    """Iterative matching with recurrent attention memory (Chen et al. 2020, section 3.2 and 3.3).

    In each step every token attends to the tokens of the other side, as in `SCAN`. The mean cosine
    of the tokens with what they attend to is added to the score. The memory then changes the
    attending tokens: q becomes g q + (1 - g) tanh(W [q, a] + b), with g = sigmoid(V [q, a] + c) and
    a the mean that q attends to. With "both" directions the scores of both are added.

    The released code is followed where the paper leaves something open: logits pass a LeakyReLU
    and are divided by their norm over the attending tokens, and changed tokens keep their length.

    Args:
        direction: Whether words attend to regions (`text_to_image`), regions to words, or both.
        steps: Steps of attention; after 1 the memory is not used.
        smoothing: Factor of the attention logits.
        captions_at_once: Captions of a tile.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = MatcherContract(accepts=("tokens",))
    SEARCH = SearchContract(augmentation="token_means")

    def __init__(
        self,
        *,
        direction: Literal["both", "text_to_image", "image_to_text"] = "both",
        steps: PositiveInt = 3,
        smoothing: PositiveFloat = 9.0,
        captions_at_once: PositiveInt = 4,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.direction = direction
        self.steps = steps
        self.smoothing = smoothing
        self.captions_at_once = captions_at_once
        self._directions = list(_SIDES) if direction == "both" else [direction]

    def build(self, image_shape: Shapes, caption_shape: Shapes) -> None:
        width = caption_shape["tokens"][-1]
        self.memory = {}
        for direction in self._directions if self.steps > 1 else ():
            self.memory[direction] = [
                self.add_weight(shape, initializer, name=f"{direction}_{layer}_{name}")
                for layer in ("memory", "gate")
                for name, shape, initializer in (
                    ("kernel", (2 * width, width), "glorot_uniform"),
                    ("bias", (width,), "zeros"),
                )
            ]

    def call(self, image: Tokens, caption: Tokens, training: bool = False) -> Tensor:
        def score(weights: Any, image: Tokens, caption: Tokens) -> list[Tensor]:
            # Pairs have the axes (N, C), and either side is the same along one of them.
            sides: dict[str, Tokens] = {
                "image": {"tokens": image["tokens"][:, None], "mask": image["mask"][:, None]},
                "text": {"tokens": caption["tokens"][None], "mask": caption["mask"][None]},
            }
            scores = []
            for direction in self._directions:
                asking, asked = _SIDES[direction]
                memory, context_axes = weights.get(direction), "nk" if asked == "image" else "ck"
                scores.append(self._score(memory, sides[asking], sides[asked], context_axes))
            return [add_up(scores)]

        image, caption = self.checked(image, "image"), self.checked(caption, "text")
        weights = {name: read_variables(*memory) for name, memory in self.memory.items()}
        return score_in_tiles(score, weights, image, caption, self.captions_at_once, training)[0]

    def _score(
        self, memory: list[Tensor] | None, queries: Tokens, contexts: Tokens, axes: str
    ) -> Tensor:
        """Returns the scores (N, C) of one direction, added up over the steps.

        Args:
            memory: The weights of the memory, if there is one.
            queries: The tokens that ask, (N, 1, Q, D) or (1, C, Q, D).
            contexts: The tokens of the other side.
            axes: The axes of the contexts: "nk" for images, "ck" for texts.
        """
        tokens, mask = queries["tokens"], queries["mask"]
        units, count = l2_normalize(tokens), ops.maximum(ops.sum(mask, axis=-1), 1.0)
        # Of every pair: on a CPU TensorFlow corrupts memory where a product repeats an axis of 1.
        asked, scores = tokens + ops.zeros_like(contexts["mask"][..., :1, None]), []
        for step in range(self.steps):
            attended = self._attend(asked, mask, contexts, axes)
            cosines = ops.sum(units * l2_normalize(attended), axis=-1)
            scores.append(ops.sum(cosines * mask, axis=-1) / count)
            if step < self.steps - 1:
                asked = _remember(memory, asked, attended)
        return add_up(scores)

    def _attend(self, asked: Tensor, mask: Tensor, contexts: Tokens, axes: str) -> Tensor:
        """Returns the means of context tokens that queries attend to, (N, C, Q, D) as these."""
        there = contexts["mask"][..., None] > 0
        tokens = contexts["tokens"][:, 0] if axes == "nk" else contexts["tokens"][0]
        products = ops.einsum(f"{axes}d,ncqd->nckq", tokens, asked)
        logits = attention_logits(products, mask[..., None, :], there, self.smoothing)
        return ops.einsum(f"nckq,{axes}d->ncqd", softmax(logits, axis=-2), tokens)


def _remember(memory: Any, asked: Tensor, attended: Tensor) -> Tensor:
    """Returns the attending tokens after a step (N, C, Q, D), changed by what they attended to."""
    both = ops.concatenate([asked, attended], axis=-1)
    gate = ops.sigmoid(linear(both, memory[2:]))
    return gate * asked + (1.0 - gate) * ops.tanh(linear(both, memory[:2]))
