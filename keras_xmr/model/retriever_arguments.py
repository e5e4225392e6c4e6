"""Validates the towers, losses and batches of a model, and the classes of a saved one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_xmr.embeddings.validation import as_embedding, check_fit, described, shapes
from keras_xmr.matchers import Matcher
from keras_xmr.model.objective import MatchRule, Objective, Targets
from keras_xmr.utils.errors import ArgumentError, UserError
from keras_xmr.utils.sides import Side

_IDS = (
    "the numbers of the images, int (N,): pairs with the same number are of one image, and match; "
    "np.arange(N) if no image occurs twice"
)


Inputs = Mapping[str, object] | Sequence[object]
"""The inputs of both towers, under `image` and `caption`, or as a pair."""


def as_tower(tower: Any, side: Side) -> keras.Model:
    """Converts a model to a tower with an embedding as output; a tensor (N, D) becomes points.

    Args:
        tower: A functional model, or a built sequential one.
        side: "image" or "text".

    Raises:
        ArgumentError: If it is not a model, or has another output.
    """
    if not isinstance(tower, keras.Model) or not getattr(tower, "outputs", None):
        raise ArgumentError(
            f"the {side} tower is a functional model, keras.Model(inputs, outputs), or a "
            f"keras.Sequential that begins with a keras.Input, not {described(tower)}"
        )
    if isinstance(tower, keras.Sequential):
        tower = keras.Model(tower.inputs[0], tower.outputs[0], name=tower.name)
    output = tower.output
    if isinstance(output, Mapping):
        as_embedding(output, f"the {side} tower")
        return tower
    if isinstance(output, list | tuple):
        raise ArgumentError(f"the {side} tower has {len(output)} outputs; {shapes()}")
    embedding = as_embedding(keras.ops.cast(output, "float32"), f"the {side} tower")
    return keras.Model(tower.input, embedding, name=tower.name)


def as_objective(losses: Any) -> Objective:
    """Converts one loss, or several with the weight 1, to an objective.

    Raises:
        ArgumentError: If these are not losses of keras_xmr.
    """
    if isinstance(losses, Objective):
        return losses
    several = losses if isinstance(losses, list | tuple) else [losses]
    return Objective(several, [1.0] * len(several))


def check_parts(
    image_tower: keras.Model, text_tower: keras.Model, matcher: object, objective: Objective
) -> None:
    """Checks that the matcher and the losses work on the outputs of the towers.

    Raises:
        ArgumentError: If they do not, or `matcher` is not a matcher.
    """
    if not isinstance(matcher, Matcher):
        raise ArgumentError(
            f"the matcher is one of keras_xmr.matchers, such as Cosine(), not {described(matcher)}"
        )
    image, caption = image_tower.output, text_tower.output
    check_fit(matcher, image, caption)
    for loss in objective.losses_:
        check_fit(loss, image, caption, matcher)


def as_inputs(x: object) -> dict[str, Any]:
    """Converts the inputs of a model, a dict with `image` and `caption` or a pair, to a dict.

    Raises:
        ArgumentError: If it is neither.
    """
    if isinstance(x, list | tuple) and len(x) == 2:
        return {"image": x[0], "caption": x[1]}
    if not isinstance(x, Mapping) or not {"image", "caption"} <= x.keys():
        raise ArgumentError(
            'a model is called on {"image": ..., "caption": ...}, or on a pair (images, captions), '
            f"not on {described(x)}"
        )
    return dict(x)


def check_sides(x: Mapping[str, object], towers: Mapping[str, keras.Model]) -> dict[str, int]:
    """Checks that arrays are valid inputs of towers; returns their numbers of items.

    Args:
        x: The images under `image`, the captions under `caption`.
        towers: The towers that are called on them, under the same keys.

    Raises:
        ArgumentError: If they are texts where a tower takes something else.
    """
    sizes = {}
    for side, tower in towers.items():
        for values in tf.nest.flatten(x[side] if isinstance(x[side], Mapping) else [x[side]]):
            array = values if hasattr(values, "dtype") else np.asarray(values)
            if _is_text(array) and tower.inputs[0].dtype != "string":
                raise ArgumentError(
                    f"{side}s are texts, but the tower takes {tower.inputs[0].dtype}, such as word "
                    "ids; make these first, with keras.layers.TextVectorization for instance"
                )
            sizes[side] = len(array)
    return sizes


def check_pairs(x: object, y: Any, towers: Mapping[str, keras.Model]) -> None:
    """Checks arrays that a model is to be fitted to; a data set checks itself when it is read.

    Args:
        x: Images and captions.
        y: Numbers of the images, or None.
        towers: The tower that is called on `image`, and that on `caption`.

    Raises:
        ArgumentError: If they are not pairs, or not valid inputs of the towers.
    """
    if not (isinstance(x, Mapping | list | tuple) or hasattr(x, "shape")):
        return
    sizes = check_sides(as_inputs(x), towers)
    if sizes["image"] != sizes["caption"]:
        raise ArgumentError(
            f"{sizes['image']} images and {sizes['caption']} captions: a model is fitted to pairs. "
            "Repeat an image for each of its captions: images[image_ids], with y=image_ids"
        )
    if hasattr(y, "dtype") and (_is_text(y) or len(y) != sizes["image"]):
        raise ArgumentError(f"y is {y.dtype} of shape {tuple(y.shape)}; it has to be {_IDS}")


def _is_text(array: Any) -> bool:
    return str(array.dtype).startswith(("<U", "|S", "object")) or array.dtype == tf.string


def as_targets(y: object, judgements: MatchRule) -> Targets:
    """Converts targets to a dict: `image_id` (N,), or with classes `labels` (N, 1).

    Args:
        y: Numbers (N,), of the images or of their classes, or a dict; see `relations`.
        judgements: Which of the two they are.

    Raises:
        ArgumentError: If it is neither.
    """
    if isinstance(y, Mapping):
        return dict(y)
    if y is None:
        raise ArgumentError(f"the model learns from (x, image_ids): give {_IDS}")
    ids = tf.convert_to_tensor(y)
    if not ids.dtype.is_integer or ids.shape.rank not in (1, 2) or ids.shape[1:] not in ([], [1]):
        raise ArgumentError(
            f"y is {ids.dtype.name} of shape {tuple(ids.shape)}; it has to be {_IDS}"
        )
    ids = tf.reshape(ids, [-1])
    return {"image_id": ids} if judgements == "pairs" else {"labels": ids[:, None]}


def check_classes(config: Mapping[str, object], custom_objects: Mapping[str, object]) -> None:
    """Checks that Keras knows every class in a saved config.

    Raises:
        UserError: If a module of another package was not imported, or the class is of another
            version of this package.
    """
    missing = sorted(set(_unknown_classes(config, custom_objects)))
    if ours := [f"{module}.{name}" for module, name in missing if module.startswith("keras_xmr.")]:
        raise UserError(
            f"the model was saved with another version of keras_xmr: there is no {ours[0]} here. "
            "Train it again, or load it with that version"
        )
    if missing:
        imports = "; ".join(f"import {module}" for module in dict(missing))
        raise UserError(f"the model has parts of other packages; write `{imports}` before")


def _unknown_classes(
    config: object, custom_objects: Mapping[str, object]
) -> Iterator[tuple[str, str | None]]:
    """Yields module and name of the classes in a saved config that Keras does not know."""
    if isinstance(config, list | tuple):
        for inner in config:
            yield from _unknown_classes(inner, custom_objects)
    elif isinstance(config, dict):
        name, module = config.get("registered_name"), config.get("module")
        known = keras.saving.get_registered_object(name, custom_objects) if name else True
        if known is None and module and module.partition(".")[0] not in ("keras", "keras_hub"):
            yield module, config.get("class_name")
        for inner in config.values():
            yield from _unknown_classes(inner, custom_objects)
