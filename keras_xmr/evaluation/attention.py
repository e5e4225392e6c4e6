"""Attention of a model on a few photos of a split."""

from __future__ import annotations

import numpy as np

from data_pipelines.images import decode_for_evaluation
from data_pipelines.records import SplitRecords
from keras_xmr.config.abilities import attends
from keras_xmr.config.schema import Config
from keras_xmr.evaluation.results import Attention
from keras_xmr.model.attention import ImageAttention
from keras_xmr.model.retriever import Retriever

PHOTOS = 4
"""Number of photos shown."""


def compute_attention(
    model: Retriever, part: SplitRecords, config: Config, kept: SplitRecords | None = None
) -> Attention | None:
    """Attention maps of the image head on photos spread over a split.

    Args:
        model: The model.
        part: The split.
        config: The config of the run.
        kept: The split with features in place of its images, if these are kept.

    Returns:
        The maps; None for a model of regions or without attention over places.
    """
    if not (len(part) and attends(config)):
        return None
    chosen = np.linspace(0, len(part) - 1, min(PHOTOS, len(part))).round().astype(int).tolist()
    seen = [decode_for_evaluation(part.encoded(i), config.data.image).numpy() for i in chosen]
    attention = ImageAttention(model.image_tower)
    if kept is not None and kept.holds == "regions":
        maps = attention.of_features(kept.regions(np.array(chosen)))
    else:
        maps = attention(np.stack(seen))
    return Attention([part.image_keys[i] for i in chosen], np.stack(seen), maps) if maps else None
