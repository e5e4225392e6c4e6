"""Probes of uncertainty that embed again: damaged items, and answer sets on another split."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from data_pipelines.errors import UserError
from data_pipelines.records import Records
from data_pipelines.vectors import select
from keras_xmr.evaluation.results import EmbeddedSplit
from keras_xmr.index.calibration import draw, embed_in_batches, measure_coverage
from keras_xmr.index.run_model import RunModel
from keras_xmr.model.retriever import Retriever
from keras_xmr.uncertainty.mixtures import mix_images
from keras_xmr.uncertainty.occlusion import Probes, drop_from_captions, erase_images

IMAGES, CAPTIONS = 64, 200
"""Numbers of damaged images, which take far longer, and of damaged captions, drawn with a seed."""


def probe(
    run: Path, model: Retriever, records: Records, split: Any, embedded: EmbeddedSplit | None = None
) -> Probes:
    """Damages items of a split, and measures the coverage of answer sets calibrated on val.

    Args:
        run: The folder of the run.
        model: Its model.
        records: Its records, with stored features of its frozen encoders if there are any.
            Damaged items have none.
        split: The split.
        embedded: Its embeddings, if known.

    Returns:
        The results; empty for a model of regions, without sigma, or without a validation
        split.
    """
    if "log_variance" not in model.text_tower.output:
        return Probes()
    try:
        again = RunModel(run)
    except UserError:
        return Probes()
    again.image_tower, again.text_tower = model.image_tower, model.text_tower
    again.matcher = model.matcher
    plain = records.without_features().split(split)
    images, captions = draw(len(plain), IMAGES), draw(plain.num_captions, CAPTIONS)
    whole_images = whole_captions = None
    if embedded is not None:
        whole_images = select(embedded.images, images)
        whole_captions = select(embedded.captions, captions)
    embed_pixels = partial(embed_in_batches, again.embed_pixels, model=again)
    embed_texts = partial(embed_in_batches, again.embed_texts, model=again)
    pixels = again.decode_images(plain, images)
    texts = [plain.texts[int(caption)] for caption in captions]
    growths = {
        "image": erase_images(embed_pixels, pixels, whole_images),
        "caption": drop_from_captions(embed_texts, texts, whole_captions),
    }
    other = split != "val" and len(records.split("val")) > 0
    return Probes(
        occlusion={side: growth for side, growth in growths.items() if growth is not None},
        coverage=measure_coverage(again, records, split, embedded) if other else None,
        mixtures=mix_images(embed_pixels, pixels, whole_images),
    )
