"""Matchers of point embeddings."""

from __future__ import annotations

from typing import Any

import keras

from keras_xmr import distances
from keras_xmr.embeddings import Embedding
from keras_xmr.matchers.base import Matcher


@keras.saving.register_keras_serializable(package="keras_xmr")
class Cosine(Matcher):
    """Cosine of the angle between two embeddings; of Gaussians, between their means."""

    ACCEPTS = (("point", "point"), ("gaussian", "gaussian"))

    def call(self, image: Embedding, caption: Embedding) -> Any:
        return distances.cosine(image["mean"], caption["mean"])
