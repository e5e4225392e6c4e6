"""Base class of losses, and checks of their inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_xmr.embeddings import Embedding, Tensor, distances, points
from keras_xmr.embeddings.validation import (
    as_embedding,
    check_fit,
    described,
    items,
    to_numpy,
)
from keras_xmr.judgements.relation import as_array, check_image_ids
from keras_xmr.layers.backend import is_concrete, split_seed
from keras_xmr.parts.contracts import LossContract, MatcherContract
from keras_xmr.parts.part import Part
from keras_xmr.utils.errors import ArgumentError


def _positives(image_ids: Any, positives: Any, images: int | None, captions: int | None) -> Any:
    """Makes `positives`, boolean (N, M), and `pairs`, where each caption has one image."""
    if positives is not None:
        if image_ids is not None:
            raise ArgumentError(
                "image_ids and positives both define the matching pairs; pass one of them"
            )
        return {"positives": _matrix(positives, "positives", (images, captions), "bool")}
    if images is None or captions is None:
        raise ArgumentError("the first axis of embeddings is of a known size; set it in the graph")
    if not is_concrete(image_ids):
        rows = ops.cast(image_ids, "int32")
    else:
        known = check_image_ids(to_numpy(image_ids), images, captions)
        rows = ops.convert_to_tensor(known, "int32")
    matches = ops.equal(ops.arange(images, dtype="int32")[:, None], rows[None, :])
    return {"positives": matches, "pairs": ops.stack([rows, ops.arange(captions, dtype="int32")])}


def _relevance(loss: Any, relevance: Any, shape: Any) -> Tensor:
    if relevance is None:
        raise ArgumentError(
            f"{type(loss).__name__} learns from how relevant captions are to images: give "
            f"relevance, float {tuple(shape)}, such as keras_xmr.relevance.cider(captions, "
            "image_ids)"
        )
    matrix = _matrix(relevance, "relevance", tuple(shape), "float32")
    if is_concrete(matrix) and ops.convert_to_numpy(ops.min(matrix)) < 0:
        raise ArgumentError("relevance is from 0 on, and some of it is negative")
    return matrix


def _matrix(values: Any, name: str, shape: tuple[int | None, ...], dtype: str) -> Tensor:
    """Returns finite numbers of all images and captions, as a tensor of this shape."""
    if is_concrete(values):
        values = as_array(to_numpy(values), name)
        if values.dtype.kind not in "biuf" or not np.isfinite(values).all():
            raise ArgumentError(f"{name}: a matrix of finite numbers is needed, not {values.dtype}")
        if dtype == "bool" and not np.isin(values, (0, 1)).all():
            raise ArgumentError(
                f"{name} says of each pair whether it matches, true or false; the rows of images "
                "are image_ids"
            )
    tensor = ops.convert_to_tensor(values, dtype)
    if tuple(tensor.shape) != shape:
        raise ArgumentError(
            f"{name} are of {shape[0]} images and {shape[1]} captions, so of shape {shape}, not "
            f"{tuple(tensor.shape)}"
        )
    return tensor


def even_log_odds(scores: Tensor, relations: Relations) -> Tensor:
    """Returns log-odds (N, M), equal for all pairs, of the share of pairs that match."""
    share = ops.mean(ops.cast(relations["positives"], "float32"))
    return ops.zeros_like(scores) + ops.log(share) - ops.log1p(-share)


def _scores(loss: Any, matcher: Any, image: Embedding, caption: Embedding) -> Tensor:
    """Returns scores (N, M) of the matcher, or cosines without one."""
    if matcher is not None:
        return matcher(image, caption)
    if "tokens" in image.keys() | caption.keys():
        if loss.contract.reads_scores:
            raise ArgumentError("a matcher scores tokens: give one, such as SGR()")
        return ops.zeros((items(image), items(caption)))
    if "mean" in image and "mean" in caption:
        if loss.contract.reads_log_odds:
            return _LOG_ODDS * (1.0 - distances.euclidean(image["mean"], caption["mean"]))
        return distances.cosine(image["mean"], caption["mean"])
    return ops.max(distances.set_cosines(points(image), points(caption)), axis=(1, 3))


_LOG_ODDS = 30.0
"""Scale and shift of log-odds without a matcher: where PCME starts (Chun et al. 2021) on COCO."""

Relations = dict[str, Tensor]
"""Relations of the pairs of a batch: `positives`, boolean (N, M), true where an image and a caption
match; for losses that need it `relevance`, float32 (N, M), from 0; where pairs were judged,
`targets`, float32 (N, M), how far an image and a caption match, from 0 to 1; and where each caption
matches one image, perhaps `pairs`, int32 (2, M), the rows and columns of all matches."""


class Loss(Part):
    """A loss over one global batch of N images and M captions.

    A subclass declares its inputs and outputs in `CONTRACT`; see
    `keras_xmr.parts.contracts.LossContract`. It implements `call(scores, image, caption,
    relations)`, where scores are float32 (N, M), which returns the declared parts as a dict of
    scalars. Its options are the keyword-only parameters of its constructor. Weights with a
    shape that depends on the embeddings are made in `build`, which takes the shapes of the
    arguments of `call`; for a dict, a dict of shapes.

    A loss may assume nothing of the batch beyond the relations: an image can occur twice, with two
    of its captions.

    Attributes:
        warmup_steps: Number of first steps of a training in which it differs from later steps.
    """

    CONTRACT = LossContract()
    warmup_steps: int = 0

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**({"dtype": "float32"} | kwargs))

    def __call__(
        self,
        images: Any,
        captions: Any,
        image_ids: Any = None,
        *,
        positives: Any = None,
        relevance: Any = None,
        matcher: Any = None,
        seed: Any = None,
    ) -> Tensor:
        """Computes the loss of a batch of embeddings, a differentiable scalar.

        Args:
            images: Embeddings of N images: a tensor (N, D), or a dict of tensors; see
                `keras_xmr.embeddings.kinds`.
            captions: Embeddings of M captions.
            image_ids: The row of each caption's image, int (M,); None if N == M and caption i is
                of image i. All captions of an image are relevant to it.
            positives: Which pairs match, boolean (N, M), in place of `image_ids`: captions that are
                relevant to several images, or classes.
            relevance: How relevant captions are to images, float (N, M), for a loss that reads it;
                see `keras_xmr.relevance`.
            matcher: The matcher that scores the pairs, for a loss that reads scores. None takes the
                cosine of points and of the means of Gaussians, the largest cosine of two sets,
                and for a loss of log-odds 30 (1 - distance), with nothing that is learned.
            seed: Of the samples that a matcher draws: an int, or a `keras.random.SeedGenerator`,
                which gives others in each step. None draws the same noise for every item.

        Returns:
            A scalar, the sum of all parts.

        Raises:
            ArgumentError: If shapes do not fit, or the loss needs another kind of embedding, a
                relevance, or a matcher.
        """
        image, caption = as_embedding(images, "images"), as_embedding(captions, "captions")
        if 0 in (items(image), items(caption)):
            raise ArgumentError("a loss needs at least one image and one caption")
        if matcher is not None:
            if not isinstance(getattr(matcher, "contract", None), MatcherContract):
                raise ArgumentError(f"matcher is one of keras_xmr.matchers, not {matcher!r}")
            check_fit(matcher, image, caption)
        check_fit(self, image, caption, matcher)
        if self.contract.reads_words:
            raise ArgumentError(
                f"{type(self).__name__} reads the words of captions, and trains in a model only"
            )
        relations = _positives(image_ids, positives, items(image), items(caption))
        if self.contract.reads_relevance:
            relations["relevance"] = _relevance(self, relevance, relations["positives"].shape)
        elif relevance is not None:
            raise ArgumentError(
                f"{type(self).__name__} does not use relevance; remove the argument"
            )
        if matcher is not None:
            seeds = (None, None) if seed is None else split_seed(seed)
            image = matcher.prepare(image, "image", seeds[0])
            caption = matcher.prepare(caption, "caption", seeds[1])
        scores = _scores(self, matcher, image, caption)
        return sum(self.parts(scores, image, caption, relations).values())

    def parts(
        self,
        scores: Tensor,
        image: Embedding,
        caption: Embedding,
        relations: Relations,
        step: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Computes the parts of the loss of a batch, as a model does, which scores it once.

        Args:
            scores: Scores float32 (N, M); None for a loss that reads none.
            image: The embedding of images, prepared by the matcher.
            caption: The embedding of captions.
            relations: The relations of the batch.
            step: Number of steps trained before this one.

        Returns:
            Scalars by the names that `CONTRACT` declares; the loss is their sum.
        """
        more = {"step": step} if self.contract.reads_step else {}
        return super().__call__(scores, image, caption, relations, **more)

    def check_output(self, output: Any) -> None:
        """Checks the parts that `call` has returned.

        Raises:
            ArgumentError: If these are not scalars by the names that are declared.
        """
        name, declared = type(self).__name__, self.contract.parts
        example = f"{{{', '.join(f'{part!r}: ...' for part in declared or ('value',))}}}"
        if not declared:
            raise ArgumentError(
                f"{name} declares no parts; write CONTRACT = LossContract(parts=(...)) with the "
                "keys that its call returns"
            )
        if not isinstance(output, Mapping):
            raise ArgumentError(
                f"{name}.call returned {described(output)}; return the parts of the loss as a dict "
                f"of scalars, {example}"
            )
        if set(output) != set(declared):
            raise ArgumentError(
                f"{name}.call returned the parts {sorted(output)}, and CONTRACT declares "
                f"{sorted(declared)}; make them the same"
            )
        for part, value in output.items():
            is_number = hasattr(value, "dtype") or isinstance(value, float)
            if not is_number or len(getattr(value, "shape", ())):
                raise ArgumentError(
                    f"{name}.call returned {described(value)} as the part {part!r}; return a "
                    "scalar, to which keras.ops.mean for instance reduces a tensor"
                )
            if keras.backend.standardize_dtype(getattr(value, "dtype", "float32")) != "float32":
                raise ArgumentError(
                    f"{name}.call returned {described(value)} as the part {part!r}; losses are "
                    "float32: keras.ops.cast(..., 'float32')"
                )

    def switch_after_warm_up(
        self, step: Tensor | None, first: Callable[[], Tensor], then: Callable[[], Tensor]
    ) -> Tensor:
        """Computes one loss in the first `warmup_steps` of a training, and another afterwards.

        Args:
            step: Number of steps trained before this one; None outside of a training.
            first: Computes the loss of the first steps.
            then: Computes the loss of all others, and outside of a training.
        """
        if self.warmup_steps == 0 or step is None:
            return then()
        return ops.cond(step < self.warmup_steps, first, then)

    def trivial_value(self, scores: Tensor, relations: Relations) -> Tensor | None:
        """Returns the value at which the loss gets stuck if the model learns nothing.

        Args:
            scores: Scores (N, M) that are all equal.
            relations: The `positives` of some batch.

        Returns:
            A scalar, or None if no such value is known.
        """
        return None
