"""The head of point embeddings that keeps the local features for a loss."""

from __future__ import annotations

from typing import Any

import keras

from keras_xmr.config.contracts import HeadContract
from keras_xmr.heads.point import Point


@keras.saving.register_keras_serializable(package="keras_xmr")
class PointWithFeatures(Point):
    """`Point`, and beside it the local features of the encoder, as the loss `captioning` needs.

    They are `features`, float32 (B, L, F), with zeros where the mask has none. They are neither
    stored nor exported.
    """

    CONTRACT = HeadContract(keys=("features",))

    def call(self, features: Any, mask: Any = None) -> dict[str, Any]:
        kept = keras.ops.cast(features, "float32")
        if mask is not None:
            kept = kept * keras.ops.cast(mask, "float32")[..., None]
        return super().call(features, mask=mask) | {"features": kept}
