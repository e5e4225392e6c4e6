"""Pixel preprocessing of pretrained networks."""

from __future__ import annotations

from typing import Any

import keras

from keras_xmr.layers.part import RecordedLayer


class Preprocessing(RecordedLayer):
    """The preprocessing of a family of `keras.applications`, as a layer.

    Args:
        family: A module of `keras.applications`, for instance "resnet".
        **kwargs: Passed on to `keras.layers.Layer`.

    Raises:
        ValueError: If keras.applications does not have the family.

    Inputs are pixels from 0 to 255 (B, H, W, 3) of any dtype; outputs are floats of that shape.
    """

    def __init__(self, family: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        module = getattr(keras.applications, family, None)
        if module is None or not hasattr(module, "preprocess_input"):
            raise ValueError(f"keras.applications has no family {family!r}")
        self.family = family
        self._preprocess = module.preprocess_input

    def call(self, pixels: Any) -> Any:
        return self._preprocess(keras.ops.cast(pixels, self.compute_dtype))
