"""Comparison of regions and words, a few captions at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Unpack

import keras

from keras_xmr.embeddings.kinds import Tensor, Tokens
from keras_xmr.layers import l2_normalize
from keras_xmr.layers.backend import backend, is_concrete, map_tiles
from keras_xmr.layers.operations import ops
from keras_xmr.layers.positions import ends
from keras_xmr.matchers.base import Matcher
from keras_xmr.parts.contracts import MatcherContract, SearchContract
from keras_xmr.parts.option_types import LayerOptions, PositiveFloat, PositiveInt


def linear(values: Tensor, weights: list[Tensor]) -> Tensor:
    """Returns values (..., F) times a kernel (F, G), plus a bias (G,), as one matrix product."""
    kernel, bias = weights
    flat = ops.matmul(ops.reshape(values, (-1, kernel.shape[0])), kernel) + bias
    return ops.reshape(flat, (*ops.shape(values)[:-1], kernel.shape[1]))


def softmax(logits: Tensor, axis: int = -1) -> Tensor:
    """Returns the softmax, without the warning of Keras about captions of one word."""
    return ops.exp(logits - ops.logsumexp(logits, axis=axis, keepdims=True))


def attention_logits(products: Tensor, asks: Tensor, exists: Tensor, smoothing: float) -> Tensor:
    """Returns the logits of stacked cross attention (..., contexts, queries).

    LeakyReLU of the products, divided by its norm over the queries (Lee et al. 2018, and the
    released code of Diao et al. 2021).

    Args:
        products: Inner products of contexts and queries (..., contexts, queries).
        asks: 1 for queries, 0 for padding, of a shape that broadcasts.
        exists: Whether there is a context, likewise; others have -1e9.
        smoothing: Factor of the logits.
    """
    logits = l2_normalize(ops.leaky_relu(products, 0.1) * asks)
    return ops.where(exists, smoothing * logits, -1e9)


def attend(
    regions: Tensor, region_mask: Tensor, words: Tensor, word_mask: Tensor, smoothing: float
) -> Tensor:
    """Returns the mean of an image's regions that each word attends to, on the unit sphere.

    Stacked cross attention of Lee et al. 2018, text to image, with the LeakyReLU of the released
    code of Diao et al. 2021: weights softmax over regions of smoothing * LeakyReLU(v . t), the
    latter divided by its norm over the words of the caption.

    Args:
        regions: Regions (N, R, D) of images.
        region_mask: 1 for regions, 0 for padding (N, R).
        words: Words (C, L, D) of captions.
        word_mask: 1 for words, 0 for padding (C, L).
        smoothing: Factor of the attention logits.

    Returns:
        (N, C, L, D).
    """
    n, r, width = ops.shape(regions)
    c, length = ops.shape(words)[:2]
    flat = ops.transpose(ops.reshape(words, (-1, width)))
    products = ops.matmul(ops.reshape(regions, (-1, width)), flat)
    products, exists = ops.reshape(products, (n, r, c, length)), region_mask[:, :, None, None] > 0
    logits = attention_logits(products, word_mask, exists, smoothing)
    weights = ops.reshape(ops.softmax(logits, axis=1), (n, r, c * length))
    weights = ops.transpose(weights, (0, 2, 1))
    # |w V|^2 = w (V V^T) w: dividing the weights by it spares two passes over the vectors. Where
    # regions cancel out, rounding bounds the smallest value distinct from 0.
    similar = ops.matmul(regions, ops.transpose(regions, (0, 2, 1)))
    squares = ops.sum(ops.matmul(weights, similar) * weights, axis=-1, keepdims=True)
    longest = ops.amax(ops.sum(ops.square(regions), axis=-1), axis=1)[:, None, None]
    weights = weights * ops.rsqrt(ops.maximum(squares, 1e-6 * longest + 1e-24))
    return ops.reshape(ops.matmul(weights, regions), (n, c, length, width))


def score_in_tiles(
    score: Callable[[Any, Tokens, Tokens], list[Tensor]],
    weights: object,
    image: Tokens,
    caption: Tokens,
    captions_at_once: int,
    training: bool,
    numbers: int = 0,
) -> list[Tensor]:
    """Scores all images with all captions, a tile of captions of about one length at a time.

    Args:
        score: Makes scores (N, C), and numbers of each caption (C,), of `weights`, images, and C
            captions, cut to the longest of them. It is a function of nothing else.
        weights: A structure of tensors, of which `score` gets copies in the type of the tokens.
        image: Tokens of N images, with all that `score` reads.
        caption: Tokens of M captions.
        captions_at_once: Captions of a tile.
        training: Whether gradients are needed. Tiles are then computed again for their gradients,
            so that memory holds one tile.
        numbers: Number of statistics that `score` returns per caption.

    Returns:
        Scores (N, M), and the numbers (M,) each, in the order of the captions.
    """

    def flat_score(*tensors: Tensor) -> list[Tensor]:
        weights, image, caption = keras.tree.pack_sequence_as(structure, list(tensors))
        return score(weights, image, _cut(caption))

    dtype = caption["tokens"].dtype
    weights = keras.tree.map_structure(lambda weight: ops.cast(weight, dtype), weights)
    structure = (weights, image, dict.fromkeys(caption))
    scored = keras.remat(flat_score) if training else flat_score
    captions = ops.shape(caption["mask"])[0]
    if isinstance(captions, int) and captions <= captions_at_once:
        return scored(*keras.tree.flatten((weights, image, dict(caption))))
    order = ops.argsort(ends(caption["mask"]))
    tile = (
        captions_at_once if isinstance(captions, int) else ops.minimum(captions_at_once, captions)
    )
    # The first tile is made whole by repeating the shortest caption in front.
    spare = (-captions) % tile
    places = ops.concatenate([ops.broadcast_to(order[:1], (spare,)), order], axis=0)
    tiles = {
        name: ops.reshape(ops.take(values, places, axis=0), (-1, tile, *ops.shape(values)[1:]))
        for name, values in caption.items()
    }
    tiled = map_tiles(
        lambda texts: scored(*keras.tree.flatten((weights, image, texts))), tiles, 1 + numbers
    )
    scores = ops.reshape(ops.transpose(tiled[0], (1, 0, 2)), (ops.shape(tiled[0])[1], -1))
    back = ops.argsort(order)
    scores = ops.take(scores[:, spare:], back, axis=1)
    return [scores, *(ops.take(ops.reshape(n, (-1,))[spare:], back, axis=0) for n in tiled[1:])]


def _cut(caption: Tokens) -> Tokens:
    """Removes padding that all captions have; JAX and graphs of PyTorch need shapes before."""
    if backend() == "jax" or (backend() == "torch" and not is_concrete(caption["mask"])):
        return caption
    longest = ops.maximum(ops.amax(ends(caption["mask"])), 1)
    tokens, mask = caption["tokens"][:, :longest], caption["mask"][:, :longest]
    return {**caption, "tokens": tokens, "mask": mask}


class SCAN(Matcher):
    """Stacked cross attention: cosines of each token with its attended tokens of the other side.

    Text to image, each word attends to the regions of the image, with weights softmax(smoothing *
    s) over the regions; s are LeakyReLU cosines, divided by their norm over the words, as in the
    released code (the paper has ReLU). Image to text, regions attend to words alike. The score is
    the mean of the cosines, or log(sum(exp(sharpness * cosine))) / sharpness (Lee et al. 2018,
    Eq. 1 to 9), and 0 where nothing attends: a mask may be 0 everywhere. Tokens are divided by
    their norms.

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
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.direction = direction
        self.aggregation = aggregation
        self.smoothing = smoothing
        self.sharpness = sharpness
        self.captions_at_once = captions_at_once

    def call(self, image: Tokens, caption: Tokens, training: bool = False) -> Tensor:
        def score(weights: object, image: Tokens, caption: Tokens) -> list[Tensor]:
            return [self._score(image, caption)]

        image, caption = self.checked(image, "image"), self.checked(caption, "text")
        return score_in_tiles(score, {}, image, caption, self.captions_at_once, training)[0]

    def _score(self, image: Tokens, caption: Tokens) -> Tensor:
        """Returns scores (N, C) of a tile."""
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
            scores = ops.where(ops.amax(mask, axis=-1) > 0, scores, 0.0)
        return ops.transpose(scores) if self.direction == "image_to_text" else scores
