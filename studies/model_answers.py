"""Scores and uncertainties of a model on the photos and captions of Flickr8K."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from keras_xmr.utils.errors import UserError
from keras_xmr.utils.files import replace_atomically

_OPTIONAL = ("image_log_sigma", "caption_log_sigma")


@dataclass(frozen=True)
class SplitAnswers:
    """Scores and uncertainties of a model on a split.

    Attributes:
        scores: Scores (images, captions), larger is better.
        reference: Scores of the captions with photos of train (captions, R), by which those of
            different captions become comparable.
        image_ids: The ids of the images.
        caption_ids: The ids of the captions.
        caption_image: The image that each caption was written for, int (captions,).
        texts: The captions.
        image_log_sigma: The log of sigma of each image; None of a model without sigma.
        caption_log_sigma: The same of each caption.
    """

    scores: np.ndarray
    reference: np.ndarray
    image_ids: np.ndarray
    caption_ids: np.ndarray
    caption_image: np.ndarray
    texts: np.ndarray
    image_log_sigma: np.ndarray | None = None
    caption_log_sigma: np.ndarray | None = None


@dataclass(frozen=True)
class ModelAnswers:
    """Scores and uncertainties on val, which calibrates prediction sets, and on test."""

    val: SplitAnswers
    test: SplitAnswers

    @classmethod
    def load(cls, path: Path) -> ModelAnswers:
        """Reads what `save` wrote: arrays such as `test_scores`.

        Raises:
            UserError: If an array is missing.
        """
        with np.load(path) as arrays:
            return cls(*(_split_of(arrays, split, path) for split in ("val", "test")))

    def save(self, path: Path) -> None:
        """Writes all arrays to a `.npz` file."""
        arrays = {
            f"{split}_{name}": array
            for split in ("val", "test")
            for name, array in vars(getattr(self, split)).items()
            if array is not None
        }
        with replace_atomically(path, ".npz") as aside:
            np.savez(aside, **arrays)

    @classmethod
    def of_run(cls, run: Path) -> ModelAnswers:
        """Embeds val and test by the model of a finished run. It takes a minute or two."""
        from data_pipelines.records import Records
        from keras_xmr.search.calibration import embed_reference
        from keras_xmr.search.run_model import RunModel

        model = RunModel(run)
        records = Records.open(model.config.data.records)
        reference = embed_reference(model, records)
        return cls(*(_embedded(model, records, split, reference) for split in ("val", "test")))


def _embedded(model: Any, records: Any, split: str, reference: Any) -> SplitAnswers:
    from keras_xmr.evaluation.uncertainty.assessment import log_sigma
    from keras_xmr.search.calibration import embed_split_images, embed_texts

    part = records.split(split)
    texts = [caption.text for caption in part.captions]
    images, captions = embed_split_images(model, records, split), embed_texts(model, texts)
    return SplitAnswers(
        model.score(images, captions),
        model.score(reference, captions).T,
        np.array(part.image_keys),
        np.array([caption.key for caption in part.captions]),
        np.asarray(part.caption_image),
        np.array(texts),
        log_sigma(images),
        log_sigma(captions),
    )


def _split_of(arrays: Mapping[str, np.ndarray], split: str, path: Path) -> SplitAnswers:
    found = {}
    for field in fields(SplitAnswers):
        key = f"{split}_{field.name}"
        if key not in arrays and field.name not in _OPTIONAL:
            raise UserError(f"{path} has no array {key!r}; it has {', '.join(arrays)}")
        found[field.name] = arrays.get(key)
    return SplitAnswers(**found)
