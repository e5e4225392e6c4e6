"""Base class of losses."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import Any, Unpack, cast

import keras
import numpy as np
from numpy.typing import ArrayLike

from keras_xmr.embeddings import Embedding, distances, points
from keras_xmr.embeddings.kinds import tensors
from keras_xmr.embeddings.validation import (
    as_embedding,
    as_scores,
    check_fit,
    check_ranges,
    described,
    items,
)
from keras_xmr.layers import compiled
from keras_xmr.layers.backend import (
    backend,
    device_of,
    is_concrete,
    is_known_not_finite,
    split_seed,
)
from keras_xmr.layers.operations import ops
from keras_xmr.losses.author_checks import check_terms, scores_by
from keras_xmr.losses.relations import (
    Relations,
    checked_matches,
    relevance_matrix,
    with_positives,
)
from keras_xmr.parts.contracts import LossContract, MatcherContract
from keras_xmr.parts.option_types import LayerOptions
from keras_xmr.parts.part import Part
from keras_xmr.parts.tensors import Seed, Shape, Step, Tensor, add_up
from keras_xmr.utils.errors import ArgumentError


class Loss(Part):
    """A loss over one global batch of N images and M captions.

    A subclass declares its inputs and outputs in `CONTRACT`; see
    `keras_xmr.parts.contracts.LossContract`. It implements `compute(scores, image, caption,
    relations)`, where scores are float32 (N, M), which returns the declared terms as a dict of
    scalars. Its options are the keyword-only parameters of its constructor. Weights with a
    shape that depends on the embeddings are made in `build`, which takes the shapes of the
    arguments of `compute`; for a dict, a dict of shapes.

    A loss may assume nothing of the batch beyond the relations: an image can occur twice, with two
    of its captions.

    Attributes:
        warmup_steps: Number of first steps of a training in which it differs from later steps.
    """

    CONTRACT = LossContract()
    warmup_steps: int = 0
    _last_form: tuple[object, list[tuple[object, ...]]] | None = None

    def __init__(self, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**({"dtype": "float32"} | kwargs))
        self.built = not self.builds()

    def __call__(
        self,
        images: object,
        captions: object,
        image_ids: ArrayLike | None = None,
        *,
        positives: object = None,
        relevance: object = None,
        matcher: Any = None,
        seed: Seed = None,
        training: bool | None = None,
        step: Step = None,
    ) -> Tensor:
        """Computes the loss of a batch of embeddings, a differentiable scalar.

        In a graph, such as of `torch.compile`, `jax.jit` and `tf.function`, values are not checked:
        `image_ids` out of range give an error of the framework, or another value.

        Args:
            images: Embeddings of N images: a tensor (N, D), or a dict of tensors; see
                `keras_xmr.embeddings.kinds`. Tensors of float64 give a loss of float64.
            captions: Embeddings of M captions.
            image_ids: The row of each caption's image, int (M,); None if N == M and caption i is
                of image i. All captions of an image are relevant to it.
            positives: Which pairs match, boolean (N, M), in place of `image_ids`: captions that are
                relevant to several images, or classes.
            relevance: How relevant captions are to images, float (N, M), for a loss that reads it;
                see `keras_xmr.relevance`.
            matcher: The matcher that scores the pairs, for a loss that reads scores; or any
                function, or module, of `images` and `captions` that returns scores (N, M). None
                takes the cosine of points and of the means of Gaussians, and the largest cosine of
                two sets.
            seed: Makes what a matcher draws in training repeatable: an int, or a
                `keras.random.SeedGenerator`, which gives others in each step.
            training: Whether the matcher is in training, where dropout, statistics of batches and
                fresh noise are on. None takes the mode that `train` and `eval` of PyTorch have set
                in the matcher; with TensorFlow and JAX, false. A matcher of one's own keeps its
                own mode.
            step: Number of steps trained before, for a loss with `warmup_steps`; an int, or a
                tensor.

        Returns:
            A scalar, the sum of all terms.

        Raises:
            ArgumentError: If shapes do not fit, or the loss needs another kind of embedding, a
                relevance, a matcher or a step.
        """
        with device_of(images):
            if matcher is None or isinstance(getattr(matcher, "contract", None), MatcherContract):
                image, caption = as_embedding(images, "images"), as_embedding(captions, "captions")
                self._check_once(image, caption, matcher)
                shape = items(image), items(caption)
                relations = self._checked_relations(image_ids, positives, relevance, shape)
                training = matcher is not None and matcher.in_training(training)
                if matcher is not None:
                    seeds = (None, None) if seed is None else split_seed(seed)
                    matcher.ensure_built(image, caption)
                    image = matcher.prepare(image, "image", seeds[0], training=training)
                    caption = matcher.prepare(caption, "text", seeds[1], training=training)
                inputs = None, image, caption, relations
                value = self._value(*inputs, step, matcher=matcher, training=training)
                if is_known_not_finite(value):
                    check_ranges(image, caption)
                return value
            if isinstance(matcher, type) or not callable(matcher):
                raise ArgumentError(
                    "matcher is one of keras_xmr.matchers, or a function of both embeddings, not "
                    f"{described(matcher)}"
                )
            scores, image, caption = scores_by(matcher, images, captions), {}, {}
            if self.contract.accepts or self.contract.keys:
                image, caption = as_embedding(images, "images"), as_embedding(captions, "captions")
                self._check(image, caption, matcher)
            return self._of_scores(scores, image, caption, image_ids, positives, relevance, step)

    def of_scores(
        self,
        scores: object,
        image_ids: ArrayLike | None = None,
        *,
        positives: object = None,
        relevance: object = None,
        step: Step = None,
    ) -> Tensor:
        """Computes the loss of a score matrix, a differentiable scalar.

        Args:
            scores: Scores (N, M) of images and captions, larger is better; log-odds of a match for
                a loss that reads them as such.
            image_ids: As of a call; so are the other arguments.
            positives: Which pairs match.
            relevance: How relevant captions are to images.
            step: Number of steps trained before.

        Raises:
            ArgumentError: If the loss reads embeddings, or shapes do not fit.
        """
        if not self.contract.reads_scores or self.contract.keys:
            raise ArgumentError(
                f"{type(self).__name__} reads embeddings, not scores: call it with both embeddings"
            )
        with device_of(scores):
            return self._of_scores(scores, {}, {}, image_ids, positives, relevance, step)

    def _of_scores(
        self,
        given: object,
        image: Embedding,
        caption: Embedding,
        image_ids: ArrayLike | None,
        positives: object,
        relevance: object,
        step: Step,
    ) -> Tensor:
        scores = as_scores(given)
        shape = scores.shape[0], scores.shape[1]
        relations = self._checked_relations(image_ids, positives, relevance, shape)
        return self._value(scores, image, caption, relations, step)

    def _check_once(self, image: Embedding, caption: Embedding, matcher: object) -> None:
        """Does what `_check` does, unless the last call was of the same shapes and contracts.

        Checks take longer than some steps of a small batch. A graph has them once, and in one of
        PyTorch nothing can be kept.
        """
        is_remembered = backend() != "torch" or is_concrete(next(iter(image.values())))
        contract = getattr(matcher, "contract", None)
        form = [
            (key, one.shape, one.dtype)
            for side in (image, caption)
            for key, one in tensors(side).items()
        ]
        last = self._last_form
        if not (is_remembered and last and last[0] is contract and last[1] == form):
            self._check(image, caption, matcher)
            if is_remembered:
                object.__setattr__(self, "_last_form", (contract, form))

    def _check(self, image: Embedding, caption: Embedding, matcher: object) -> None:
        """Checks that embeddings fit the loss and its matcher.

        Raises:
            ArgumentError: If they do not.
        """
        if isinstance(matcher, Part):
            check_fit(matcher, image, caption)
        check_fit(self, image, caption, matcher)
        if self.contract.reads_words:
            raise ArgumentError(
                f"{type(self).__name__} reads the words of captions, and trains in a model only"
            )

    def _checked_relations(
        self,
        image_ids: ArrayLike | None,
        positives: object,
        relevance: object,
        shape: tuple[int | None, int | None],
    ) -> Relations:
        """Checks the arguments, from which `with_positives` makes the relations of a loss."""
        if 0 in shape:
            raise ArgumentError("a loss needs at least one image and one caption")
        relations = checked_matches(image_ids, positives, *shape)
        if self.contract.reads_relevance:
            relations["relevance"] = relevance_matrix(type(self).__name__, relevance, shape)
        elif relevance is not None:
            raise ArgumentError(
                f"{type(self).__name__} does not use relevance; remove the argument"
            )
        return relations

    def _default_scores(self, image: Embedding, caption: Embedding) -> Tensor | None:
        """Returns scores (N, M) without a matcher: cosines; None for a loss that reads none."""
        if not self.contract.reads_scores:
            return None
        if "tokens" in image.keys() | caption.keys():
            raise ArgumentError("a matcher scores tokens: give one, such as SGR()")
        if "mean" in image and "mean" in caption:
            return distances.cosine(image["mean"], caption["mean"])
        return ops.amax(distances.set_cosines(points(image), points(caption)), axis=(1, 3))

    def _value(
        self,
        scores: Tensor | None,
        image: Embedding,
        caption: Embedding,
        relations: Relations,
        step: Step,
        *,
        matcher: Any = None,
        training: bool = False,
    ) -> Tensor:
        """Computes the loss of checked arguments, compiled where that is possible.

        Args:
            scores: Scores (N, M); None where the matcher scores embeddings.
            image: The embedding of images, prepared by the matcher.
            caption: The embedding of captions.
            relations: The checked relations.
            step: Number of steps trained before.
            matcher: The matcher, or None.
            training: Whether it is in training.
        """
        if self.warmup_steps and step is None:
            raise ArgumentError(
                f"{type(self).__name__} has warmup_steps: give step, the number of steps trained "
                "before"
            )
        if isinstance(step, Integral) and compiled.is_known(self):
            # One of two numbers, as a compiled function has them within.
            step = self.warmup_steps if int(step) >= self.warmup_steps else 0
        inputs = scores, image, caption, relations, step
        parts = (self,) if matcher is None else (self, matcher)
        options = {"matcher": matcher, "training": training}
        # A graph of JAX would list all pairs of a matrix, not those that match.
        lists_all = backend() == "jax" and "positives" in relations
        if lists_all or (training and matcher.takes_training):
            return self._sum(*inputs, **options)
        return compiled.run(self._sum, parts, *inputs, **options)

    def _sum(
        self,
        scores: Tensor | None,
        image: Embedding,
        caption: Embedding,
        relations: Relations,
        step: Step,
        *,
        matcher: Any,
        training: bool,
    ) -> Tensor:
        if scores is not None:
            shape: tuple[int | None, int | None] = scores.shape[0], scores.shape[1]
        else:
            shape = items(image), items(caption)
            if matcher is None:
                scores = self._default_scores(image, caption)
            else:
                scores = matcher.score_prepared(image, caption, training=training)
        relations = with_positives(relations, *shape)
        return add_up(self._terms(scores, image, caption, relations, step).values())

    def terms(
        self,
        scores: Tensor | None,
        image: Embedding,
        caption: Embedding,
        relations: Relations,
        step: Step = None,
    ) -> dict[str, Tensor]:
        """Computes the terms of the loss of a batch, as a model does, which scores it once.

        Args:
            scores: Scores float32 (N, M); None for a loss that reads none.
            image: The embedding of images, prepared by the matcher.
            caption: The embedding of captions.
            relations: The relations of the batch.
            step: Number of steps trained before this one.

        Returns:
            Scalars by the names that `CONTRACT` declares; the loss is their sum.
        """
        scores, image, caption, relations = keras.tree.map_structure(
            _as_tensor, (scores, dict(image), dict(caption), dict(relations))
        )
        return self._terms(scores, image, caption, relations, step)

    def _terms(
        self,
        scores: Tensor | None,
        image: Embedding,
        caption: Embedding,
        relations: Relations,
        step: Step,
    ) -> dict[str, Tensor]:
        if not self.built:
            self.refuse_late_weights()
            given = (scores, image, caption, relations)
            self.build(*keras.tree.map_structure(_shape, given))
            self.warn_of_late_weights()
        more = {"step": step} if self.contract.reads_step else {}
        terms = self.compute(scores, image, caption, relations, **more)
        self.check_output(terms)
        return terms

    def compute(self, *args: Any, **kwargs: Any) -> dict[str, Tensor]:
        """Computes the declared terms; a subclass implements it.

        Args:
            *args: The scores, float32 (N, M), or None for a loss that reads none; the embedding of
                images, prepared by the matcher, and of captions; and the relations of the batch.
            **kwargs: `step`, the number of steps trained before or None, for a loss that declares
                `reads_step`.
        """
        raise ArgumentError(
            f"{type(self).__name__} implements no compute(self, scores, image, caption, relations)"
        )

    def check_output(self, output: object) -> None:
        """Checks the terms that `compute` has returned.

        Raises:
            ArgumentError: If these are not scalars by the names that are declared.
        """
        check_terms(type(self).__name__, self.contract.terms, output)

    def switch_after_warm_up(
        self, step: Step, first: Callable[[], Tensor], then: Callable[[], Tensor]
    ) -> Tensor:
        """Computes one loss in the first `warmup_steps` of a training, and another afterwards.

        Args:
            step: Number of steps trained before this one; None outside of a training.
            first: Computes the loss of the first steps.
            then: Computes the loss of all others, and outside of a training.
        """
        if self.warmup_steps == 0 or step is None:
            return then()
        if isinstance(step, int):
            return first() if step < self.warmup_steps else then()
        if backend() == "torch" and not is_concrete(step):
            # The compiler of PyTorch would see another `cond` of Keras in each call.
            return ops.where(step < self.warmup_steps, first(), then())
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


def _shape(value: object) -> Shape | None:
    return tuple(value.shape) if hasattr(value, "shape") else None


def _as_tensor(value: object) -> Tensor | None:
    """Converts to a tensor, of float32 where it was in half precision."""
    if value is None or isinstance(value, keras.KerasTensor):
        return value
    if not ops.is_tensor(value):
        value = np.asarray(value)
        return ops.convert_to_tensor(value, "float32" if value.dtype.kind == "f" else None)
    tensor = cast(Tensor, value)
    half = dtype_of(tensor) in ("float16", "bfloat16")
    return ops.cast(tensor, "float32") if half else tensor


def dtype_of(scores: Tensor) -> str:
    """Returns the type of scores by its name, such as float32, for weights and constants."""
    return keras.backend.standardize_dtype(scores.dtype)


def even_log_odds(scores: Tensor, relations: Relations) -> Tensor:
    """Returns log-odds (N, M), equal for all pairs, of the share of pairs that match."""
    share = ops.mean(ops.cast(relations["positives"], dtype_of(scores)))
    return ops.zeros_like(scores) + ops.log(share) - ops.log1p(-share)
