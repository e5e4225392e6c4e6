"""Small models on regions and words, and a loss for them."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_xmr.heads import Tokens
from keras_xmr.losses import Loss
from keras_xmr.model.objective import Objective
from keras_xmr.model.retriever import Retriever
from keras_xmr.parts.contracts import LossContract

REGIONS, WIDTH, WORDS = 3, 5, 9


@keras.saving.register_keras_serializable(package="tests")
class SumOfHinges(Loss):
    """max(0, 0.2 + s(negative) - s(positive)) over all negatives, in both directions."""

    CONTRACT = LossContract(terms=("hinges",))

    def compute(self, scores: Any, image: Any, caption: Any, relations: Any) -> dict[str, Any]:
        positive = ops.diagonal(scores)
        rows = ops.relu(0.2 + scores - positive[:, None])
        columns = ops.relu(0.2 + scores - positive[None, :])
        return {"hinges": ops.sum(ops.where(relations["positives"], 0.0, rows + columns))}


def retriever(matcher: Any, image_tower: keras.Model | None = None) -> Retriever:
    """A model from regions (B, 3, 5) and word ids (B, L) to scores."""
    keras.utils.set_random_seed(1)
    if image_tower is None:
        regions = keras.Input((REGIONS, WIDTH), name="image")
        image_tower = keras.Model(regions, Tokens(6, name="head")(regions), name="image_tower")
    ids = keras.Input((None,), dtype="int32", name="caption")
    words = keras.layers.Embedding(WORDS, 4, name="encoder")(ids)
    head = Tokens(6, context="bi_gru", name="head")
    caption = keras.Model(ids, head(words, mask=ops.not_equal(ids, 0)), name="text_tower")
    return Retriever(image_tower, caption, matcher, Objective([SumOfHinges()], [1.0]), seed=3)


def batch(size: int, seed: int = 0) -> tuple[dict[str, Any], dict[str, Any]]:
    """Pairs of different lengths for `retriever`."""
    random = np.random.default_rng(seed)
    ids = random.integers(1, WORDS, (size, 6)).astype(np.int32)
    ids[np.arange(6) >= random.integers(2, 7, (size, 1))] = 0
    x = {
        "image": random.normal(size=(size, REGIONS, WIDTH)).astype(np.float32),
        "caption": ids,
    }
    return x, {"image_id": np.arange(size), "caption_id": np.arange(size)}
