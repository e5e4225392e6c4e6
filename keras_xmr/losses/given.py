"""What a loss is called on, of what somebody gives who has embeddings and no model."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from keras import ops

from keras_xmr.embeddings import distances
from keras_xmr.embeddings.given import as_embedding, check_dimensions, items, shapes
from keras_xmr.embeddings.kinds import Embedding, kind, points
from keras_xmr.errors import ArgumentError
from keras_xmr.judgements.given import as_array, checked_image_of
from keras_xmr.matchers import Matcher

Tensor = Any


def checked_inputs(
    loss: Any,
    images: Any,
    captions: Any,
    image_of: Any,
    positives: Any,
    relevance: Any,
    matcher: Any,
) -> tuple[Tensor, Embedding, Embedding, dict[str, Tensor]]:
    """Scores, both embeddings and the relations that a loss is called on; see `Loss.of`.

    Raises:
        ArgumentError: If shapes do not fit, or the loss needs something else.
    """
    image, caption = as_embedding(images, "images"), as_embedding(captions, "captions")
    if 0 in (items(image), items(caption)):
        raise ArgumentError("a loss needs at least one image and one caption")
    if matcher is not None:
        if not isinstance(matcher, Matcher):
            raise ArgumentError(f"matcher is one of keras_xmr.matchers, not {matcher!r}")
        matcher.check_kinds(kind(image), kind(caption))
    check_loss(loss, image, caption, matcher)
    if loss.NEEDS_CAPTION_IDS:
        raise ArgumentError(
            f"{_name(loss)} reads the words of captions, and trains in a model only"
        )
    relations = {"positives": _positives(image_of, positives, items(image), items(caption))}
    if loss.NEEDS_RELEVANCE:
        relations["relevance"] = _relevance(loss, relevance, relations["positives"].shape)
    elif relevance is not None:
        raise ArgumentError(f"{_name(loss)} reads no relevance; leave it out")
    if matcher is not None:
        image, caption = matcher.prepare(image, "image"), matcher.prepare(caption, "caption")
    return _scores(loss, matcher, image, caption), image, caption, relations


def check_loss(loss: Any, image: Embedding, caption: Embedding, matcher: Any) -> None:
    """Checks that a loss works on two embeddings, and on the scores of a matcher, or of none.

    Raises:
        ArgumentError: If it does not.
    """
    _check_kinds(loss, image, caption)
    _check_keys(loss, image, caption)
    check_dimensions(image, caption)
    if loss.NEEDS_LOGITS and not getattr(matcher, "LOGITS", False):
        raise ArgumentError(
            f"{_name(loss)} reads scores as log-odds of a match: take a matcher such as "
            "keras_xmr.matchers.MeanOnly() for points or MatchProbability() for Gaussians, and "
            "keep it: its scale and shift are learned"
        )


def _name(loss: Any) -> str:
    return type(loss).__name__


def _check_kinds(loss: Any, image: Embedding, caption: Embedding) -> None:
    """Checks the kinds of embedding that the loss works on."""
    kinds = (kind(image), kind(caption))
    if loss.NEEDS and not set(kinds) <= set(loss.NEEDS):
        raise ArgumentError(
            f"{_name(loss)} works on embeddings of the kind {' or '.join(loss.NEEDS)}, not on "
            f"{kinds[0]} and {kinds[1]}: {shapes(*loss.NEEDS)}"
        )
    if getattr(loss, "similarity", "scores") != "scores" and set(kinds) - {"point", "gaussian"}:
        raise ArgumentError(
            f"{_name(loss)} compares vectors, of which an item of {kinds[0]} and {kinds[1]} has "
            'several; take similarity="scores"'
        )
    if loss.ACCEPTS and kinds not in loss.ACCEPTS:
        pairs = ", ".join(f"{i} and {c}" for i, c in loss.ACCEPTS)
        raise ArgumentError(
            f"{_name(loss)} works on images and captions of the kinds {pairs}, not {kinds[0]} and "
            f"{kinds[1]}: {shapes(*dict.fromkeys(k for pair in loss.ACCEPTS for k in pair))}"
        )


def _check_keys(loss: Any, image: Embedding, caption: Embedding) -> None:
    """Checks that one side has what the loss reads beyond its kind."""
    keys = loss.keys_read()
    if not any(keys <= side.keys() for side in (image, caption)):
        raise ArgumentError(
            f"{_name(loss)} reads {' and '.join(sorted(keys))} of an embedding, which neither side "
            "has. Heads of sets make them (PIENet, SlotAttention, DynamicSubEmbeddings): "
            'residuals (N, K, D), and mask (N, D), beside "points"'
        )


def _positives(image_of: Any, positives: Any, images: int | None, captions: int | None) -> Tensor:
    """Who matches whom, boolean (N, M)."""
    if positives is not None:
        if image_of is not None:
            raise ArgumentError("image_of and positives both say who matches whom; give one")
        found = ops.convert_to_tensor(_numbers(positives, "positives"), "bool")
        if tuple(found.shape) != (images, captions):
            raise ArgumentError(
                f"positives are of {images} images and {captions} captions, so of shape "
                f"({images}, {captions}), not {tuple(found.shape)}"
            )
        return found
    if images is None or captions is None:
        raise ArgumentError("the first axis of embeddings is of a known size; set it in the graph")
    if tf.is_tensor(image_of) and not tf.executing_eagerly():
        # In a graph nobody knows its values yet.
        return ops.equal(ops.arange(images, dtype=image_of.dtype)[:, None], image_of[None, :])
    rows = checked_image_of(image_of, images, captions)
    return ops.convert_to_tensor(np.arange(images)[:, None] == rows[None, :])


def _numbers(given: Any, name: str) -> Any:
    """A tensor as it is, and an array of finite numbers of anything else."""
    if tf.is_tensor(given):
        return given
    array = as_array(given, name)
    if array.dtype.kind not in "biuf" or not np.isfinite(array).all():
        raise ArgumentError(f"{name}: a matrix of finite numbers is needed, not {array.dtype}")
    return array


def _relevance(loss: Any, relevance: Any, shape: Any) -> Tensor:
    if relevance is None:
        raise ArgumentError(
            f"{_name(loss)} learns from how relevant captions are to images: give relevance, float "
            f"{tuple(shape)}, such as keras_xmr.relevance.cider(captions, image_of)"
        )
    found = ops.convert_to_tensor(_numbers(relevance, "relevance"), "float32")
    if tuple(found.shape) != tuple(shape):
        raise ArgumentError(
            f"relevance is of images and captions, of shape {tuple(shape)}, not "
            f"{tuple(found.shape)}"
        )
    return found


def _scores(loss: Any, matcher: Any, image: Embedding, caption: Embedding) -> Tensor:
    """Scores (N, M) of the matcher, or cosines where there is none."""
    if matcher is not None:
        return matcher(image, caption)
    if "tokens" in image.keys() | caption.keys():
        if loss.READS_SCORES:
            raise ArgumentError("a matcher scores tokens: give one, such as SGR()")
        return ops.zeros((items(image), items(caption)))
    if "mean" in image and "mean" in caption:
        return distances.cosine(image["mean"], caption["mean"])
    return ops.max(distances.set_cosines(points(image), points(caption)), axis=(1, 3))
