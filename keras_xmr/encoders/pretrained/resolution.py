"""Backbones at another resolution than they were trained at."""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np


class ResolutionError(ValueError):
    """A backbone cannot see images of this size."""


def at_resolution(backbone: Any, shape: tuple[int, int, int]) -> Any:
    """A backbone of KerasHub with the same weights for images of another size.

    Embeddings of positions are resized as an image would be, bicubically; those of class tokens
    stay (Dosovitskiy et al. 2021, section 3.2).

    Args:
        backbone: The backbone.
        shape: (H, W, 3).

    Raises:
        ResolutionError: If it cannot see such images.
    """
    before = tuple(backbone.inputs[0].shape[1:])
    if before == shape:
        return backbone
    config = backbone.get_config()
    advice = f"it sees images of {_size(before)}, not of {_size(shape)}; set data.image.size"
    if "image_shape" not in config:
        if None in before:
            return backbone
        raise ResolutionError(f"{advice} to {before[0]}")
    try:
        resized = type(backbone).from_config({**config, "image_shape": shape})
        for old, new in zip(backbone.weights, resized.weights, strict=True):
            new.assign(_moved(old, new))
    except ValueError as error:
        raise ResolutionError(f"{advice} to {before[0]} ({error})") from None
    return resized


def _moved(old: keras.Variable, new: keras.Variable) -> Any:
    """The value of a variable for another resolution."""
    value = keras.ops.convert_to_numpy(old)
    if old.shape == new.shape:
        return value
    if new.name == "position_ids":
        return np.arange(new.shape[-1], dtype=value.dtype)[None]
    if "position_embedding" not in new.path or len(old.shape) != len(new.shape):
        raise ValueError(f"{new.path} is {list(old.shape)} there and {list(new.shape)} here")
    count = new.shape[-2]
    classes = old.shape[-2] - math.isqrt(old.shape[-2]) ** 2
    before, after = (math.isqrt(n - classes) for n in (old.shape[-2], count))
    if classes + after**2 != count:
        raise ValueError(f"{new.path} has {count} positions, which do not form a square")
    flat = value.reshape(old.shape[-2:])
    grid = keras.ops.image.resize(
        flat[classes:].reshape(before, before, -1).astype("float32"),
        (after, after),
        interpolation="bicubic",
        antialias=after < before,
        data_format="channels_last",
    )
    grid = keras.ops.convert_to_numpy(grid).reshape(after**2, -1)
    return np.concatenate([flat[:classes], grid]).reshape(new.shape)


def _size(shape: tuple[int | None, ...]) -> str:
    return " x ".join("any" if n is None else str(n) for n in shape[:2])
