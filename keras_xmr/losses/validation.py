"""Validates the arguments of `Loss.compute`."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from keras import ops

from keras_xmr.embeddings import distances
from keras_xmr.embeddings.kinds import Embedding, points
from keras_xmr.embeddings.validation import as_embedding, check_dimensions, check_fit, items
from keras_xmr.errors import ArgumentError
from keras_xmr.judgements.relation import as_array, check_image_ids
from keras_xmr.matchers import Matcher

Tensor = Any


def validate_inputs(
    loss: Any,
    images: Any,
    captions: Any,
    image_ids: Any,
    positives: Any,
    relevance: Any,
    matcher: Any,
) -> tuple[Tensor, Embedding, Embedding, dict[str, Tensor]]:
    """Converts the arguments of `Loss.compute` to those of `Loss.call`.

    Raises:
        ArgumentError: If shapes do not fit, or the loss needs something else.
    """
    image, caption = as_embedding(images, "images"), as_embedding(captions, "captions")
    if 0 in (items(image), items(caption)):
        raise ArgumentError("a loss needs at least one image and one caption")
    if matcher is not None:
        if not isinstance(matcher, Matcher):
            raise ArgumentError(f"matcher is one of keras_xmr.matchers, not {matcher!r}")
        check_fit(matcher, image, caption)
    check_loss(loss, image, caption, matcher)
    if loss.contract.reads_words:
        raise ArgumentError(
            f"{_name(loss)} reads the words of captions, and trains in a model only"
        )
    relations = {"positives": _positives(image_ids, positives, items(image), items(caption))}
    if loss.contract.reads_relevance:
        relations["relevance"] = _relevance(loss, relevance, relations["positives"].shape)
    elif relevance is not None:
        raise ArgumentError(f"{_name(loss)} does not use relevance; remove the argument")
    if matcher is not None:
        image, caption = matcher.prepare(image, "image"), matcher.prepare(caption, "caption")
    return _scores(loss, matcher, image, caption), image, caption, relations


def check_loss(loss: Any, image: Embedding, caption: Embedding, matcher: Any) -> None:
    """Checks that a loss works on two embeddings, and on the scores of a matcher, or of none.

    Raises:
        ArgumentError: If it does not.
    """
    check_fit(loss, image, caption, matcher is not None and matcher.contract.log_odds)
    check_dimensions(image, caption)


def _name(loss: Any) -> str:
    return type(loss).__name__


def _positives(image_ids: Any, positives: Any, images: int | None, captions: int | None) -> Tensor:
    """Matching pairs, boolean (N, M)."""
    if positives is not None:
        if image_ids is not None:
            raise ArgumentError(
                "image_ids and positives both define the matching pairs; pass one of them"
            )
        matches = ops.convert_to_tensor(_numbers(positives, "positives"), "bool")
        if tuple(matches.shape) != (images, captions):
            raise ArgumentError(
                f"positives are of {images} images and {captions} captions, so of shape "
                f"({images}, {captions}), not {tuple(matches.shape)}"
            )
        return matches
    if images is None or captions is None:
        raise ArgumentError("the first axis of embeddings is of a known size; set it in the graph")
    if tf.is_tensor(image_ids) and not tf.executing_eagerly():
        # In a graph its values are unknown.
        return ops.equal(ops.arange(images, dtype=image_ids.dtype)[:, None], image_ids[None, :])
    rows = check_image_ids(image_ids, images, captions)
    return ops.convert_to_tensor(np.arange(images)[:, None] == rows[None, :])


def _numbers(values: Any, name: str) -> Any:
    """A tensor as it is, and an array of finite numbers of anything else."""
    if tf.is_tensor(values):
        return values
    array = as_array(values, name)
    if array.dtype.kind not in "biuf" or not np.isfinite(array).all():
        raise ArgumentError(f"{name}: a matrix of finite numbers is needed, not {array.dtype}")
    return array


def _relevance(loss: Any, relevance: Any, shape: Any) -> Tensor:
    if relevance is None:
        raise ArgumentError(
            f"{_name(loss)} learns from how relevant captions are to images: give relevance, float "
            f"{tuple(shape)}, such as keras_xmr.relevance.cider(captions, image_ids)"
        )
    tensor = ops.convert_to_tensor(_numbers(relevance, "relevance"), "float32")
    if tuple(tensor.shape) != tuple(shape):
        raise ArgumentError(
            f"relevance is of images and captions, of shape {tuple(shape)}, not "
            f"{tuple(tensor.shape)}"
        )
    return tensor


def _scores(loss: Any, matcher: Any, image: Embedding, caption: Embedding) -> Tensor:
    """Scores (N, M) of the matcher, or cosines where there is none."""
    if matcher is not None:
        return matcher(image, caption)
    if "tokens" in image.keys() | caption.keys():
        if loss.contract.reads_scores:
            raise ArgumentError("a matcher scores tokens: give one, such as SGR()")
        return ops.zeros((items(image), items(caption)))
    if "mean" in image and "mean" in caption:
        return distances.cosine(image["mean"], caption["mean"])
    return ops.max(distances.set_cosines(points(image), points(caption)), axis=(1, 3))
