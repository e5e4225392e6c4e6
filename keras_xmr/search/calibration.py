"""Calibrates answer sets on the validation split of a run."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np

from data_pipelines.records import SplitRecords
from keras_xmr.experiments.evaluation.evaluate import ground_truth
from keras_xmr.search.answer_sets import AnswerSets, calibrate, standardise
from keras_xmr.search.run_model import RunModel
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.progress import Progress
from keras_xmr.utils.vectors import Arrays, chunks, concatenate, draw, split_items

_REFERENCE = 256
"""Number of training photos in the reference of scores."""

_MOST = 1000
"""Maximum number of photos of the validation split, drawn with a seed."""

_TRIED = 20
"""Number of captions among which the example is chosen."""

_WORD = re.compile(r"[^\W\d_]{3}")
"""Three letters in a row."""


def has_validation(model: RunModel) -> bool:
    """Returns whether the run has records with a validation split.

    Raises:
        RecordsError: If they were made from other data.
    """
    return model.config.data.is_prepared and "val" in model.open_records().splits


def example_caption(model: RunModel) -> str:
    """Returns a short caption of the training split, if possible with a word of three letters.

    Empty without the records of the run.
    """
    try:
        texts = model.open_records().split("train").texts[:_TRIED]
    except UserError:
        return ""
    return min(texts, key=lambda text: (not _WORD.search(text), len(text)), default="")


def calibrate_run(model: RunModel) -> tuple[AnswerSets, Arrays]:
    """Calibrates on the validation split of a run.

    Args:
        model: Its model.

    Returns:
        The answer sets, and the embeddings of training photos by which scores are standardised.
    """
    images = draw(len(model.records.split("train")), _REFERENCE)
    reference = embed_split_images(model, "train", images)
    return calibrate(*standardised_split(model, "val", reference)), reference


def standardised_split(
    model: RunModel, split: Any, reference: Arrays
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores the captions of a split with its photos, or with a part of a large one.

    Args:
        model: The model of a run.
        split: The split.
        reference: Embeddings of the photos by which scores are standardised.

    Returns:
        Standardised scores (captions, photos); which are right, bool (captions, photos), by the
        exhaustive truth if it is known; and the photo that each caption was written for
        (captions,).
    """
    records = model.records
    part: SplitRecords = records.split(split)
    images = draw(len(part), _MOST)
    captions = np.flatnonzero(np.isin(part.caption_image, images))
    known = ground_truth(records, part, model.config.data.judgements)
    truth = known.extra.get("truth", known.judgements)
    right = truth.grades[images][:, captions].toarray().T > 0
    photos = embed_split_images(model, split, images)
    texts = split_items(_embed_captions(model, part, captions), 256)
    scores = [
        standardise(model.score(photos, some).T, model.score(reference, some).T) for some in texts
    ]
    groups = np.searchsorted(images, part.caption_image[captions])
    return np.concatenate(scores), right, groups


def embed_split_images(model: RunModel, split: Any, images: np.ndarray) -> dict[str, np.ndarray]:
    """Returns embeddings of photos of a split, by their numbers there."""
    embed = partial(model.embed_records, model.records.split(split))
    doing = f"  embedding photos of {split}"
    return embed_in_batches(embed, images, model, doing, "photos")


def _embed_captions(
    model: RunModel, part: SplitRecords, captions: np.ndarray
) -> dict[str, np.ndarray]:
    """Returns embeddings of captions of a split, by stored features if there are any."""
    features = part.caption_features
    if features is None:
        texts = [part.texts[int(caption)] for caption in captions]
        return embed_in_batches(model.embed_texts, texts, model, "  embedding captions", "captions")
    return embed_in_batches(
        lambda batch: model.embed_caption_features(features.read(batch)), captions, model
    )


def embed_in_batches(
    embed: Callable[[Any], dict[str, np.ndarray]],
    items: Any,
    model: RunModel,
    description: str = "",
    unit: str = "items",
) -> dict[str, np.ndarray]:
    """Embeds items in batches of the size of evaluation; a description shows the progress."""
    size, parts = model.config.evaluation.batch_size, []
    with Progress(description, len(items), unit) if description else nullcontext() as bar:
        for batch in chunks(items, size):
            parts.append(embed(batch))
            if bar is not None:
                bar.update(len(batch))
    return concatenate(parts)
