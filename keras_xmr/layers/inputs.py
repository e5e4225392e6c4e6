"""Layers that read the inputs of towers: pixels, regions and tokens."""

from __future__ import annotations

from typing import Any, Unpack

import keras
import numpy as np
from keras import ops

from keras_xmr.layers.normalization import l2_normalize
from keras_xmr.parts.option_types import LayerOptions
from keras_xmr.parts.part import RecordedLayer
from keras_xmr.parts.tensors import Shape, Tensor


class BagOfWords(RecordedLayer):
    """Token ids int32 (B, L), padded with negative ones, to vectors (B, size) on the unit sphere.

    A vector marks which of the most frequent tokens a caption has, whatever their order and number.
    `adapt` selects these tokens; before, and for captions with none of them, the vector is 0.

    Args:
        size: Number of tokens.
        vocabulary_size: Exclusive upper bound of the ids.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    def __init__(self, size: int, vocabulary_size: int, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.size = size
        self.vocabulary_size = vocabulary_size

    def build(self, input_shape: Shape) -> None:
        none = keras.initializers.Constant(-1)
        self.columns = self.add_fixed("columns", (self.vocabulary_size,), none, dtype="int32")

    def adapt(self, ids: np.ndarray) -> None:
        """Selects the tokens in most captions, except tokens in all captions.

        Args:
            ids: The token ids of all captions that train, int32 (M, L), padded as in `call`.
        """
        captions, _ = np.nonzero(ids >= 0)
        pairs = np.unique(np.stack([captions, ids[ids >= 0]]), axis=1)
        counts = np.bincount(pairs[1], minlength=self.vocabulary_size)
        counts[counts == len(ids)] = 0
        order = np.argsort(-counts, kind="stable")[: self.size]
        order = order[counts[order] > 0]
        columns = np.full(self.vocabulary_size, -1)
        columns[order] = np.arange(len(order))
        self.columns.assign(columns)

    def call(self, ids: Tensor) -> Tensor:
        columns = ops.take(self.columns, ops.maximum(ids, 0))
        # ONNX counts negative numbers from the last one: ids without a column come after all.
        columns = ops.where(ops.logical_and(ids >= 0, columns >= 0), columns, self.size)
        return l2_normalize(ops.amax(ops.one_hot(columns, self.size, dtype="float32"), axis=1))


class RegionMask(RecordedLayer):
    """True for regions with any nonzero number: zeros pad images with fewer regions than others.

    The input is float (B, R, F), the output boolean (B, R).
    """

    def call(self, regions: Tensor) -> Tensor:
        return ops.any(ops.not_equal(regions, 0), axis=-1)


def region_mask(regions: Tensor) -> Any | None:
    """Masks symbolic regions (B, R, F); None where every image has the same number R."""
    if regions.shape[1] is not None:
        return None
    # As they come: in half precision, a small number could become 0.
    return RegionMask(dtype="float32", name="region_mask")(regions)


class Preprocessing(RecordedLayer):
    """The preprocessing of a family of `keras.applications`, as a layer.

    Args:
        family: A module of `keras.applications`, for instance "resnet".
        **kwargs: Passed on to `keras.layers.Layer`.

    Raises:
        ValueError: If keras.applications does not have the family.

    Inputs are pixels from 0 to 255 (B, H, W, 3) of any dtype; outputs are floats of that shape.
    """

    def __init__(self, family: str, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        module = getattr(keras.applications, family, None)
        if module is None or not hasattr(module, "preprocess_input"):
            raise ValueError(f"keras.applications has no family {family!r}")
        self.family = family
        self._preprocess = module.preprocess_input

    def call(self, pixels: Tensor) -> Tensor:
        return self._preprocess(ops.cast(pixels, self.compute_dtype))
