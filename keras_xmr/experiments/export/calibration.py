"""Calibrates prediction sets on the validation split of a run."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from data_pipelines.pixels import stored_pixels
from data_pipelines.records import Records, SplitRecords
from data_pipelines.shards import RecordsError
from keras_xmr.experiments.config.schema import Config
from keras_xmr.experiments.evaluation.evaluate import ground_truth
from keras_xmr.experiments.export.run_embedder import open_records
from keras_xmr.experiments.runs.configs import load_run
from keras_xmr.search.embedder import Embedder
from keras_xmr.search.photo_embedding import Store
from keras_xmr.search.prediction_sets import PredictionSets, calibrate, standardise
from keras_xmr.utils.progress import Progress
from keras_xmr.utils.vectors import Arrays, chunks, concatenate, draw, split_items

_LOGGER = logging.getLogger(__name__)

_REFERENCE = 256
"""Number of training photos in the reference of scores."""

_MOST = 1000
"""Maximum number of photos of the validation split, drawn with a seed."""

_TEXTS = 1024
"""Captions per step of the progress, of which similar lengths are embedded together."""


def calibration_of(run: Path) -> Callable[[Embedder], tuple[PredictionSets, Arrays] | None]:
    """Returns the calibration of a run, for `build_index`: None without a validation split.

    Raises:
        RecordsError: By that function, if the records were made from other data.
    """
    config = load_run(run)

    def calibrate_index(embedder: Embedder) -> tuple[PredictionSets, Arrays] | None:
        if not config.data.is_prepared:
            return None  # A published model: its user has no captions, and asks for no calibration.
        try:
            has_captions = "val" in open_records(config).splits
        except RecordsError as error:
            raise RecordsError(
                f"{error}. --no-prediction-sets builds an index without them"
            ) from None
        if not has_captions:
            _LOGGER.warning(
                "searches have no prediction sets: these need captions of some photos for "
                "validation, and %s has none",
                config.data.records,
            )
            return None
        return calibrate_run(config, embedder)

    return calibrate_index


def calibrate_run(config: Config, embedder: Embedder) -> tuple[PredictionSets, Arrays]:
    """Calibrates on the validation split of a run.

    Args:
        config: The config of the run.
        embedder: The embedder.

    Returns:
        The prediction sets, and the embeddings of training photos by which scores are standardised.
    """
    records = open_records(config)
    images = draw(len(records.split("train")), _REFERENCE)
    reference = _embed_photos(embedder, records, "train", images)
    split = standardised_split(config, embedder, records, "val", reference)
    return calibrate(*split), reference


def standardised_split(
    config: Config, embedder: Embedder, records: Records, split: Any, reference: Arrays
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores the captions of a split with its photos, or with a part of a large one.

    Args:
        config: The config of a run.
        embedder: The embedder.
        records: The records.
        split: The split.
        reference: Embeddings of the photos by which scores are standardised.

    Returns:
        Standardised scores (captions, photos); which are right, bool (captions, photos), by the
        exhaustive truth if it is known; and the photo that each caption was written for
        (captions,).
    """
    split_records: SplitRecords = records.split(split)
    images = draw(len(split_records), _MOST)
    captions = np.flatnonzero(np.isin(split_records.caption_image, images))
    known = ground_truth(records, split_records, config.data.judgements)
    truth = known.extra.get("truth", known.judgements)
    right = truth.grades[images][:, captions].toarray().T > 0
    photos = _embed_photos(embedder, records, split, images)
    texts = [split_records.texts[int(caption)] for caption in captions]
    embedded = _in_batches(embedder.embed_texts, texts, _TEXTS, "  embedding captions", "captions")
    scores = [
        standardise(embedder.score(photos, some).T, embedder.score(reference, some).T)
        for some in split_items(embedded, 256)
    ]
    groups = np.searchsorted(images, split_records.caption_image[captions])
    return np.concatenate(scores), right, groups


def _embed_photos(
    embedder: Embedder, records: Records, split: Any, images: np.ndarray
) -> dict[str, np.ndarray]:
    """Returns embeddings of photos of a split, by stored features if there are any."""
    split_records: SplitRecords = records.split(split)
    store = Store.of_embedder(embedder)
    opened = None if store is None else store.open()
    keys = split_records.index.columns["digest"]

    def embed(numbers: np.ndarray) -> dict[str, np.ndarray]:
        rows = np.full(len(numbers), -1) if opened is None else opened.rows(keys[numbers])
        if opened is not None and (rows >= 0).all():
            features = np.stack([opened.read(int(row)) for row in rows])
            return embedder.embed_features(features.astype(np.float32))
        options = embedder.pixel_options
        return embedder.embed_pixels(
            np.stack(
                [
                    stored_pixels(split_records.encoded(int(n)), f"photo {n}", options)
                    for n in numbers
                ]
            )
        )

    size, title = embedder.batch_size, f"  embedding photos of {split}"
    return _in_batches(embed, images, size, title, "photos")


def _in_batches(
    embed: Callable[[Any], dict[str, np.ndarray]],
    items: Any,
    size: int,
    description: str,
    unit: str,
) -> dict[str, np.ndarray]:
    """Embeds items in batches, and shows the progress."""
    embedded = []
    with Progress(description, len(items), unit) as bar:
        for batch in chunks(items, size):
            embedded.append(embed(batch))
            bar.update(len(batch))
    return concatenate(embedded)
