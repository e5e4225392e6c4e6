"""The head of ProLIP."""

from __future__ import annotations

from typing import Any

import keras

from keras_xmr.config.contracts import HeadContract
from keras_xmr.heads.base import Head, HeadError
from keras_xmr.layers import l2_normalize


class Prolip(Head):
    """A Gaussian of two positions: the mean, put on the unit sphere, and the log-variance.

    They are the outputs of the encoders of ProLIP for their [CLS] and [UNC] tokens; the released
    code calls them "mean" and "std" (Chun et al. 2025, section 3.1). Nothing is learned here.

    Args:
        dimension: D, which the positions have already.
        pooling: None, as the positions are not pooled.
        **kwargs: Passed on to `keras.layers.Layer`.
    """

    CONTRACT = HeadContract(kind="gaussian", pools=False, positions=2)

    def __init__(self, dimension: int, pooling: None = None, **kwargs: Any) -> None:
        super().__init__(dimension, pooling, **kwargs)

    def build(self, features_shape: tuple[Any, ...]) -> None:
        if features_shape[1] != 2:
            raise HeadError(
                "the head prolip reads two positions, a mean and a log-variance, as prolip_image "
                f"and prolip_text make them; the encoder makes {features_shape[1] or 'any number'}"
            )
        if features_shape[-1] != self.dimension:
            raise HeadError(
                f"model.dimension: {self.dimension}, but this ProLIP embeds in "
                f"{features_shape[-1]} dimensions; write {features_shape[-1]}"
            )

    def call(self, features: Any, mask: Any = None) -> dict[str, Any]:
        features = keras.ops.cast(features, "float32")
        return {"mean": l2_normalize(features[:, 0]), "log_variance": features[:, 1]}
