"""The weighted sum of losses that is minimised, and the relations of a batch that they read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any, Literal

import keras
from keras import ops

from keras_xmr.embeddings.kinds import Embedding, for_matching, tensors
from keras_xmr.embeddings.validation import described
from keras_xmr.losses import Loss, Relations
from keras_xmr.parts.tensors import Shapes, Step, Tensor, add_up
from keras_xmr.utils.errors import ArgumentError
from keras_xmr.utils.naming import snake_case


@keras.saving.register_keras_serializable(package="keras_xmr")
class Objective(keras.layers.Layer):
    """A weighted sum of losses over one global batch.

    Args:
        losses: The losses.
        weights: Weights of the losses.
        **kwargs: Passed on to `keras.layers.Layer`.

    Attributes:
        names: For the log: the name of each loss, and the names of its terms after a slash.
        needs_relevance: Whether a loss learns from the semantic relevance of the pairs.
        needs_caption_ids: Whether a loss reads the captions themselves.

    Raises:
        ArgumentError: If these are not losses, each with a finite weight of at least 0.
    """

    def __init__(self, losses: Sequence[Loss], weights: Sequence[float], **kwargs: object) -> None:
        super().__init__(**({"dtype": "float32"} | kwargs))
        _check(losses, weights)
        self.losses_ = list(losses)
        self.weights_ = list(weights)
        self._loss_names = _unique([snake_case(type(loss).__name__) for loss in losses])
        self.needs_relevance = any(loss.contract.reads_relevance for loss in losses)
        self.needs_caption_ids = any(loss.contract.reads_words for loss in losses)
        self.names: list[str] = []
        for name, loss in zip(self._loss_names, self.losses_, strict=True):
            self.names.append(name)
            if len(loss.contract.terms) > 1:
                self.names += [f"{name}/{term}" for term in loss.contract.terms]

    def build(
        self,
        scores_shape: tuple[int | None, int | None] | None = None,
        image_shape: Shapes | None = None,
        caption_shape: Shapes | None = None,
        relations_shape: dict[str, tuple[int | None, int | None]] | None = None,
    ) -> None:
        """Builds the losses; see `Loss`."""
        for loss in self.losses_:
            if not loss.built:
                loss.build(scores_shape, image_shape, caption_shape, relations_shape)

    def call(
        self,
        scores: Tensor,
        image: Embedding,
        caption: Embedding,
        relations: Relations,
        step: Step = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns the objective, and for the log every loss and every term of one, not weighted.

        `step` is the number of steps trained so far, for losses that change in training.
        """
        if self.needs_relevance and "relevance" not in relations:
            names = [type(loss).__name__ for loss in self.losses_ if loss.contract.reads_relevance]
            raise ValueError(
                f"{', '.join(names)} needs the relevance of the pairs, which the batch does not "
                "have. Call fit(..., relevance=keras_xmr.relevance.tf_idf(texts, image_ids))"
            )
        log: dict[str, Tensor] = {}
        weighted = []
        for name, loss, weight in zip(self._loss_names, self.losses_, self.weights_, strict=True):
            terms = loss.terms(scores, image, caption, relations, step)
            value = add_up(terms.values())
            weighted.append(weight * value)
            log[name] = value
            if len(terms) > 1:
                log |= {f"{name}/{term}": terms[term] for term in loss.contract.terms}
        return add_up(weighted), log

    @property
    def warmup_steps(self) -> int:
        """Number of first steps of a training in which a loss differs from later steps."""
        return max((loss.warmup_steps for loss in self.losses_), default=0)

    def select_gathered(self, embedding: Embedding) -> Embedding:
        """Selects the keys of an embedding that the matcher or a loss reads."""
        names = set(for_matching(embedding)).union(*(loss.contract.keys for loss in self.losses_))
        if self.needs_caption_ids:
            names.add("word_ids")
        return {name: tensor for name, tensor in tensors(embedding).items() if name in names}

    def trivial_values(self, scores: Tensor, relations: Relations) -> dict[str, float]:
        """Returns the value at which a loss gets stuck, of each loss that knows it; see `Loss`."""
        named = zip(self._loss_names, self.losses_, strict=True)
        values = {name: loss.trivial_value(scores, relations) for name, loss in named}
        return {name: float(value) for name, value in values.items() if value is not None}

    def get_config(self) -> dict[str, object]:
        losses = [keras.saving.serialize_keras_object(loss) for loss in self.losses_]
        return super().get_config() | {"losses": losses, "weights": self.weights_}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Objective:
        losses = [keras.saving.deserialize_keras_object(loss) for loss in config.pop("losses")]
        return cls(losses, **config)


def _check(losses: Sequence[Loss], weights: Sequence[float]) -> None:
    wrong: list[object] = [losses]
    if isinstance(losses, list | tuple):
        wrong = [loss for loss in losses if not isinstance(loss, Loss)]
    if wrong or not losses:
        found = described(wrong[0]) if wrong else "an empty one"
        raise ArgumentError(
            f"losses are a list of some of keras_xmr.losses, such as [SmoothAP()], not {found}"
        )
    if not hasattr(weights, "__len__"):
        raise ArgumentError(f"weights are a list with one per loss, not {weights!r}")
    if len(losses) != len(weights):
        raise ArgumentError(f"{len(losses)} losses, but {len(weights)} weights")
    for weight in weights:
        if not isinstance(weight, Real) or not 0 <= float(weight) < math.inf:
            raise ArgumentError(f"the weight of a loss is a number from 0 on, not {weight!r}")


def _unique(names: list[str]) -> list[str]:
    """Appends numbers to names that occur several times."""
    return [
        name if names.count(name) == 1 else f"{name}_{names[:position].count(name) + 1}"
        for position, name in enumerate(names)
    ]


MatchRule = Literal["pairs", "classes"]


Targets = dict[str, Tensor]
"""What identifies the images of a batch; see `relations`."""


def relations(y: Targets, judgements: MatchRule) -> Relations:
    """Relations of the N images and the M captions of a global batch.

    Args:
        y: What identifies the images: `image_id` (N,) and, with classes, `labels` (N, 1); and the
            same of the images that the captions are of, `caption_image_id` (M,) or
            `caption_labels` (M, 1), where the batch is not one of pairs. If a loss needs it, also
            `relevance`, float32 (N, M), which is passed on. And `judged`, float32 (N, M), where
            people have said how far a pair matches, from 0 to 1, and NaN elsewhere: it takes
            precedence.
        judgements: "pairs" matches a caption with the image that it was written for, wherever
            that image is in the batch; "classes" with every image of its class.
    """
    ids = captions = _ids(y, judgements)
    if {"caption_image_id", "caption_labels"} & y.keys():
        captions = _ids(y, judgements, "caption_")
    batch_relations = {"positives": ops.equal(ids[:, None], captions[None, :])}
    if "judged" in y:
        unknown, judged = ops.isnan(y["judged"]), y["judged"]
        annotated = ops.cast(batch_relations["positives"], "float32")
        batch_relations["targets"] = ops.where(unknown, annotated, judged)
        batch_relations["positives"] = batch_relations["targets"] > 0
    if "relevance" in y:
        batch_relations["relevance"] = y["relevance"]
    return batch_relations


def targets_read(y: Targets, judgements: MatchRule, objective: Objective) -> Targets:
    """Selects the targets that `relations` reads for an objective."""
    ids = "image_id" if judgements == "pairs" else "labels"
    names = {ids, f"caption_{ids}", "judged"}
    if objective.needs_relevance:
        names.add("relevance")
    return {name: value for name, value in y.items() if name in names}


def _ids(y: Targets, judgements: MatchRule, prefix: str = "") -> Tensor:
    return y[f"{prefix}image_id"] if judgements == "pairs" else y[f"{prefix}labels"][:, 0]
