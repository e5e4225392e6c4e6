"""Calls the parts of a config with plug-ins once, so that mistakes in these are sentences."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from keras_xmr.embeddings.kinds import Embedding, shapes_of
from keras_xmr.experiments.build import word_options
from keras_xmr.experiments.config.model_section import TowerOptions
from keras_xmr.experiments.config.schema import Config
from keras_xmr.judgements import Judgements
from keras_xmr.losses import Loss
from keras_xmr.matchers import Matcher
from keras_xmr.metrics.measure import check_values
from keras_xmr.metrics.query_metrics import build_metrics
from keras_xmr.parts.registry import Choice
from keras_xmr.reranking import build_rerankers
from keras_xmr.utils.errors import UserError

_IMAGES, _CAPTIONS, _POSITIONS, _WORDS = 3, 5, 4, 8
_IMAGE_IDS = np.array([0, 0, 1, 1, 2])


class PartError(UserError):
    """A part breaks the contract of its family; the message names the class and the remedy."""


def try_parts(config: Config) -> None:
    """Calls each pooling, head, matcher, loss, metric and re-ranker on 3 images and 5 captions.

    A config without parts of plug-ins passes at once: tests try all others.

    Features of the encoders are random. Random generators are used, so a seed is to be set after
    this.

    Raises:
        UserError: If a part returns something else than its family does, or NaN; if it raises an
            error, or cannot be saved and loaded.
    """
    if not any(_is_of_a_plugin(choice.part) for choice in _choices(config)):
        return
    policy, filtered = keras.config.dtype_policy(), keras.config.is_traceback_filtering_enabled()
    keras.config.set_dtype_policy(config.train.precision)
    # Keras would wrap errors of parts.
    keras.config.disable_traceback_filtering()
    try:
        _try_parts(config)
    finally:
        keras.config.set_dtype_policy(policy)
        if filtered:
            keras.config.enable_traceback_filtering()


def _choices(config: Config) -> Iterator[Choice]:
    """Yields the chosen parts that are tried."""
    for tower in config.model.towers.values():
        yield tower.head
        if tower.pooling is not None:
            yield tower.pooling
    yield config.model.matcher
    yield from (*config.objective, *config.evaluation.metrics, *config.evaluation.rerankers)


def _is_of_a_plugin(cls: type) -> bool:
    return cls.__module__.partition(".")[0] != "keras_xmr"


def _try_parts(config: Config) -> None:
    model = config.model
    matcher: Matcher = _made(model.matcher)
    image: Embedding = _embedding(model.image, model.dimension, _IMAGES)
    caption: Embedding = _embedding(model.text, model.dimension, _CAPTIONS)
    losses: list[Loss] = [
        _made(choice, **word_options(choice, _WORDS, pad=0)) for choice in config.objective
    ]
    matcher.share_parameters_with(losses)
    scores, image, caption = _scores(matcher, image, caption)
    for loss in losses:
        _try_loss(loss, scores, image, caption)
    _try_on_scores(config, np.array(scores))


def _made(choice: Choice, **arguments: Any) -> Any:
    """Returns a part, which can be saved and loaded again."""
    with _sentences(choice.part, "its constructor"):
        part = choice.build(**arguments)
    _check_saved(part)
    return part


def _embedding(tower: TowerOptions, dimension: int, count: int) -> dict[str, tf.Tensor]:
    """Returns the embedding that a head makes of random features."""
    options = tower.pooling

    pooling = options and partial(options.build, dimension=dimension)
    features = keras.random.normal((count, _POSITIONS, dimension))
    features = ops.cast(features, keras.config.dtype_policy().compute_dtype)
    mask = ops.arange(_POSITIONS)[None, :] < ops.arange(1, count + 1)[:, None]
    if options is not None:
        made = _made(options, dimension=dimension)
        with _sentences(type(made), f"its call on features {tuple(features.shape)}"):
            pooled = made(features, mask=mask)
        _check_finite(type(made), {"its output": pooled})
    head = _made(tower.head, dimension=dimension, pooling=pooling)
    with _sentences(type(head), f"its call on features {tuple(features.shape)}"):
        output = head(features, mask=mask)
    # Without the masks that Keras attaches, and a matcher would warn of.
    embedding: dict[str, tf.Tensor] = {key: tf.identity(tensor) for key, tensor in output.items()}
    _check_items(type(head), embedding, count)
    _check_finite(type(head), {f"the {key!r} that it returned": v for key, v in embedding.items()})
    return embedding


def _check_items(cls: type, embedding: Mapping[str, tf.Tensor], count: int) -> None:
    for key, tensor in embedding.items():
        if tensor.shape[0] != count:
            raise PartError(
                f"{_name(cls)}.call returned {key!r} of shape {tuple(tensor.shape)} for {count} "
                "items; the first axis must be the items"
            )


def _scores(
    matcher: Matcher, image: Embedding, caption: Embedding
) -> tuple[Any, Embedding, Embedding]:
    """Returns scores (3, 5), and both embeddings as prepared by the matcher."""
    cls = type(matcher)
    with _sentences(cls, f"its call on {_IMAGES} images and {_CAPTIONS} captions", image, caption):
        if "tokens" in image and "tokens" in caption:
            matcher.build(shapes_of(image), shapes_of(caption))
        image, caption = matcher.prepare(image, "image"), matcher.prepare(caption, "text")
        scores = matcher(image, caption)
    _check_finite(cls, {"the scores that it returned": scores})
    return scores, image, caption


def _try_loss(loss: Loss, scores: Any, image: Embedding, caption: Embedding) -> None:
    cls, contract = type(loss), loss.contract
    positives = tf.constant(np.arange(_IMAGES)[:, None] == _IMAGE_IDS)
    relations: dict[str, Any] = {"positives": positives}
    if contract.reads_relevance:
        relations["relevance"] = keras.random.uniform((_IMAGES, _CAPTIONS))
    if contract.reads_words:
        ids = np.arange(_CAPTIONS * _POSITIONS).reshape(_CAPTIONS, _POSITIONS) % (_WORDS - 1) + 1
        caption = caption | {"word_ids": tf.constant(ids, tf.float32)}
    read = [scores, *image.values(), *caption.values()]
    what = f"its call on {_IMAGES} images and {_CAPTIONS} captions"
    with _sentences(cls, what, image, caption, relations), tf.GradientTape() as tape:
        tape.watch(read)
        terms = loss.terms(scores, image, caption, relations, tf.constant(0, tf.int64))
        value = sum(terms.values())
    _check_finite(cls, {f"the term {term!r} that it returned": v for term, v in terms.items()})
    sources = [*read, *loss.trainable_variables]
    gradients = tape.gradient(value, sources) if tf.is_tensor(value) else []
    gradients = [tf.convert_to_tensor(one) for one in gradients if one is not None]
    if not gradients:
        raise PartError(
            f"{_name(cls)} has no gradient: it depends on neither scores nor embeddings, and "
            "nothing would be learned from it"
        )
    _check_finite(cls, dict.fromkeys(["its gradient"], gradients))


def _try_on_scores(config: Config, scores: np.ndarray) -> None:
    """Tries metrics and re-rankers on scores (3, 5)."""
    judgements = Judgements.from_pairs(_IMAGE_IDS, _IMAGES)
    for choice in config.evaluation.metrics:
        with _sentences(choice.part, f"its call on scores {scores.shape}"):
            metric = build_metrics([choice])[choice.name]
            check_values(metric, metric(scores, judgements), _IMAGES)
    for choice in config.evaluation.rerankers:
        with _sentences(choice.part, f"its call on scores {scores.shape}"):
            build_rerankers([choice])[choice.name](scores)


def _check_saved(part: Any) -> None:
    """Checks that Keras finds the class of a part, and makes the same again of its config."""
    cls = type(part)
    with _sentences(cls, "making it again of its get_config"):
        config = part.get_config()
        cls.from_config(dict(config))
    if lost := [option for option in part._arguments if option not in config]:
        raise PartError(
            f"{_name(cls)}.get_config forgets {', '.join(lost)}, which a saved model would lose; "
            "leave get_config out: the base class keeps all arguments of the constructor"
        )


def _check_finite(cls: type, values: Mapping[str, Any]) -> None:
    for what, tensors in values.items():
        for tensor in tensors if isinstance(tensors, list) else [tensors]:
            if not np.isfinite(np.asarray(ops.cast(tensor, "float32"))).all():
                raise PartError(
                    f"{_name(cls)}: {what} is NaN or infinite on random embeddings; keep "
                    "logarithms, roots and divisions away from 0, and their gradients too"
                )


@contextmanager
def _sentences(cls: type, what: str, *inputs: Mapping[str, Any]) -> Iterator[None]:
    """Converts an error of a part into a sentence with the class, the line, and its inputs."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        text = (str(error).strip().splitlines() or [""])[0]
        named = zip(("image", "caption", "relations"), inputs, strict=False)
        keys = "; ".join(f"{name} with {', '.join(sorted(one))}" for name, one in named)
        raise PartError(
            f"{_name(cls)}: {what} raised {type(error).__name__}: {text}{_line_of(cls, error)}"
            + (f". It was given {keys}" if keys else "")
        ) from error


def _line_of(cls: type, error: Exception) -> str:
    """Returns the innermost line of the file of a class at which an error was raised."""
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    lines = [f for f in traceback.extract_tb(error.__traceback__) if file and f.filename == file]
    return f" ({lines[-1].filename}, line {lines[-1].lineno})" if lines else ""


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
