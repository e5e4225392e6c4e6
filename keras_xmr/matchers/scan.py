"""Stacked cross attention (Lee et al. 2018)."""

from __future__ import annotations

from typing import Any, Literal

from keras import ops

from data_pipelines.option_types import PositiveFloat, PositiveInt
from keras_xmr.config.contracts import MatcherContract, SearchContract
from keras_xmr.embeddings.kinds import Embedding, Tensor
from keras_xmr.layers import l2_normalize
from keras_xmr.matchers.alignment import attend, score_in_tiles
from keras_xmr.matchers.base import Matcher


class SCAN(Matcher):
    """Stacked cross attention: cosines of each token with its attended tokens of the other side.

    Text to image, each word attends to the regions of the image, with weights softmax(smoothing *
    s) over the regions; s are LeakyReLU cosines, divided by their norm over the words, as in the
    released code (the paper has ReLU). Image to text, regions attend to words alike. The score is
    the mean of the cosines, or log(sum(exp(sharpness * cosine))) / sharpness (Lee et al. 2018,
    Eq. 1 to 9). Tokens are divided by their norms.

    Args:
        direction: Whether words attend to regions (`text_to_image`) or regions to words.
        aggregation: "mean" (AVG) or "log_sum_exp" (LSE).
        smoothing: Factor of the attention logits, lambda 1.
        sharpness: Factor of the cosines in "log_sum_exp", lambda 2.
        captions_at_once: Captions of a tile.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = MatcherContract(
        accepts=("tokens",), only_with={"sharpness": {"aggregation": "log_sum_exp"}}
    )
    SEARCH = SearchContract(augmentation="token_means")

    def __init__(
        self,
        *,
        direction: Literal["text_to_image", "image_to_text"] = "text_to_image",
        aggregation: Literal["mean", "log_sum_exp"] = "mean",
        smoothing: PositiveFloat = 9.0,
        sharpness: PositiveFloat = 6.0,
        captions_at_once: PositiveInt = 4,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.direction = direction
        self.aggregation = aggregation
        self.smoothing = smoothing
        self.sharpness = sharpness
        self.captions_at_once = captions_at_once

    def call(self, image: Embedding, caption: Embedding, training: bool = False) -> Tensor:
        def score(weights: Any, image: Embedding, caption: Embedding) -> list[Tensor]:
            return [self._score(image, caption)]

        image, caption = self.checked(image, "image"), self.checked(caption, "caption")
        return score_in_tiles(score, {}, image, caption, self.captions_at_once, training)[0]

    def _score(self, image: Embedding, caption: Embedding) -> Tensor:
        """Scores (N, C) of a tile."""
        sides = [(l2_normalize(side["tokens"]), side["mask"]) for side in (image, caption)]
        if self.direction == "image_to_text":
            sides.reverse()
        (contexts, context_mask), (queries, mask) = sides
        attended = attend(contexts, context_mask, queries, mask, self.smoothing)
        cosines = ops.sum(attended * queries, axis=-1)
        if self.aggregation == "mean":
            scores = ops.sum(cosines * mask, axis=-1) / ops.maximum(ops.sum(mask, axis=-1), 1.0)
        else:
            logits = ops.where(mask > 0, self.sharpness * cosines, -1e9)
            scores = ops.logsumexp(logits, axis=-1) / self.sharpness
        return ops.transpose(scores) if self.direction == "image_to_text" else scores
