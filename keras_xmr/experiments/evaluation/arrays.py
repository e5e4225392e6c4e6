"""Evaluates a model on images and captions that are arrays."""

from __future__ import annotations

from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf

from data_pipelines.batches import finish
from keras_xmr.experiments.evaluation.scoring import score_bytes, score_tiles
from keras_xmr.experiments.evaluation.split_embeddings import Arrays, embed_batches
from keras_xmr.judgements import Judgements, check_image_ids
from keras_xmr.metrics import retrieval
from keras_xmr.model.retriever import Retriever
from keras_xmr.model.retriever_arguments import check_sides
from keras_xmr.utils.errors import ArgumentError
from keras_xmr.utils.waiting import bars

TILE = (256, 1024)
"""Images and captions that are scored at once."""


def evaluate(
    model: Retriever,
    images: Any,
    captions: Any,
    image_ids: Any = None,
    *,
    judgements: Judgements | None = None,
    batch_size: int = 64,
    memory_budget: int = 8 << 30,
    verbose: Literal["auto", 0, 1, 2] = "auto",
) -> dict[str, float]:
    """Ranks all captions for every image, and all images for every caption.

    Args:
        model: The model.
        images: N images, as its image tower takes them: an array, or a dict of arrays.
        captions: M captions, as its text tower takes them.
        image_ids: The row of each caption's image, int (M,); None if caption i is of image i.
        judgements: The relevant pairs, in place of `image_ids`, if these are more than the pairs.
        batch_size: Number of items that are embedded at once.
        memory_budget: Bytes that the scores may take; beyond it, ranks are counted tile by tile.
        verbose: 0 shows no progress bars, as in Keras; all else shows them.

    Returns:
        The metrics by name: `i2t_recall_1` of images as queries, `t2i_recall_1` of captions,
        `rsum`, and so on. Recalls and precisions are fractions.

    Raises:
        ArgumentError: If these do not fit together.
    """
    if not isinstance(model, Retriever):
        raise ArgumentError(f"a keras_xmr.Retriever is evaluated, not {type(model).__name__}")
    if verbose not in ("auto", 0, 1, 2):
        raise ArgumentError(f'verbose is "auto", 0, 1 or 2, not {verbose!r}')
    x = {"image": images, "caption": captions}
    sizes = check_sides(x, model.input_models())
    if judgements is None:
        rows = check_image_ids(image_ids, sizes["image"], sizes["caption"])
        judgements = Judgements.from_pairs(rows, sizes["image"])
    elif image_ids is not None:
        raise ArgumentError(
            "image_ids and judgements both define the relevant pairs; give one of them"
        )
    with bars(verbose != 0):
        embeddings = {
            side: _embed(tower, x[side], f"{side}s", sizes[side], batch_size)
            for side, tower in model.input_models().items()
        }
        scores = score_tiles(model.matcher, embeddings["image"], embeddings["caption"], TILE)
        shape, matrices = (sizes["image"], sizes["caption"]), 1 + model.matcher.contract.directed
        is_small = score_bytes(shape, matrices) <= memory_budget
        return retrieval(scores.dense() if is_small else scores, judgements)


def _embed(tower: keras.Model, values: Any, unit: str, count: int, batch: int) -> Arrays:
    values = tf.nest.map_structure(np.asarray, values) if isinstance(values, dict) else values
    dataset = finish(tf.data.Dataset.from_tensor_slices(values).batch(batch))
    return embed_batches(tower, dataset, count, batch, unit)
