"""Which regions of an image count."""

from __future__ import annotations

from typing import Any

import keras

from keras_xmr.layers.part import RecordedLayer


class RegionMask(RecordedLayer):
    """True for regions with any nonzero number: zeros pad images with fewer regions than others.

    The input is float (B, R, F), the output boolean (B, R).
    """

    def call(self, regions: Any) -> Any:
        return keras.ops.any(keras.ops.not_equal(regions, 0), axis=-1)


def region_mask(regions: Any) -> Any | None:
    """The mask of symbolic regions (B, R, F); None where every image has the same number R."""
    if regions.shape[1] is not None:
        return None
    # As they come: in half precision, a small number could become 0.
    return RegionMask(dtype="float32", name="region_mask")(regions)
