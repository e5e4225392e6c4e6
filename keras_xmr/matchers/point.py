"""Matchers of point embeddings."""

from __future__ import annotations

from typing import Any

import keras

from keras_xmr.embeddings import distances
from keras_xmr.embeddings.kinds import Embedding
from keras_xmr.matchers.base import Matcher


@keras.saving.register_keras_serializable(package="keras_xmr")
class Cosine(Matcher):
    """Cosine of the angle between two embeddings; of Gaussians, between their means."""

    ACCEPTS = (("point", "point"), ("gaussian", "gaussian"), ("point", "gaussian"))
    AUGMENTATION = "mean_cosine"
    REDUCES = True

    def call(self, image: Embedding, caption: Embedding) -> Any:
        return distances.cosine(image["mean"], caption["mean"])


@keras.saving.register_keras_serializable(package="keras_xmr")
class OrderEmbedding(Matcher):
    """Minus how far a caption is from standing below an image: -|max(0, caption - image)|_2.

    Vendrov et al. 2016, Eq. 2, as Faghri et al. 2018 use it: an image is an instance of what its
    captions say. Made for heads of points with `absolute: true`.
    """

    ACCEPTS = (("point", "point"),)
    AUGMENTATION = "order"

    def call(self, image: Embedding, caption: Embedding) -> Any:
        return -distances.order_violation(image["mean"], caption["mean"])
