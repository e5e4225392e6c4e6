"""Damages images and captions of a split, and embeds them again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from data_pipelines.batches import finish
from data_pipelines.pixels import stored_pixels
from data_pipelines.records import Records
from data_pipelines.sources import Split
from data_pipelines.text import Tokenizer
from keras_xmr.experiments.config.schema import Config
from keras_xmr.experiments.evaluation.split_embeddings import embed_batches, embed_captions
from keras_xmr.experiments.evaluation.split_evaluation import Arrays, EmbeddedSplit
from keras_xmr.experiments.evaluation.uncertainty.probes import (
    Probes,
    drop_from_captions,
    erase_images,
    leave_out_words,
    mix_images,
)
from keras_xmr.model.retriever import Retriever
from keras_xmr.utils.vectors import chunks, draw, select
from keras_xmr.utils.waiting import bars

_IMAGES, _CAPTIONS = 64, 200
"""Numbers of damaged images, which take far longer, and of damaged captions, drawn with a seed."""


def probe(
    model: Retriever,
    tokenizer: Tokenizer,
    config: Config,
    records: Records,
    split: Split,
    embedded: EmbeddedSplit | None = None,
) -> Probes:
    """Damages items of a split, and embeds them.

    Args:
        model: The model.
        tokenizer: Makes word ids of captions.
        config: The config of the run.
        records: The records, with stored features of its frozen encoders if there are any.
            Damaged items have none.
        split: The split.
        embedded: The embeddings, if known.

    Returns:
        The results; empty for a model of regions, or without sigma.
    """
    if "log_variance" not in model.text_tower.output or config.data.source.holds != "images":
        return Probes()
    batch = config.evaluation.batch_size

    def embed_pixels(pixels: np.ndarray) -> Arrays:
        dataset = _batches(pixels, batch)
        return embed_batches(model.image_tower, dataset, len(pixels), batch, "images")

    def embed_texts(texts: list[str]) -> Arrays:
        return embed_captions(model, texts, tokenizer, batch)

    plain = records.without_features().split(split)
    images, captions = draw(len(plain), _IMAGES), draw(plain.num_captions, _CAPTIONS)
    whole_images = whole_captions = None
    if embedded is not None:
        whole_images = select(embedded.images, images)
        whole_captions = select(embedded.captions, captions)
    options = config.data.image
    pixels = np.stack([stored_pixels(plain.encoded(int(i)), f"image {i}", options) for i in images])
    texts = [plain.texts[int(caption)] for caption in captions]
    with bars(shown=False):
        growths = {
            "image": erase_images(embed_pixels, pixels, whole_images),
            "text": drop_from_captions(embed_texts, texts, whole_captions),
        }
        mixtures = mix_images(embed_pixels, pixels, whole_images)
        words = leave_out_words(embed_texts, texts, whole_captions)
    occlusion = {side: growth for side, growth in growths.items() if growth is not None}
    return Probes(occlusion=occlusion, mixtures=mixtures, words=words)


def _batches(pixels: np.ndarray, size: int) -> tf.data.Dataset:
    """Makes batches of pixels without a copy of all of them in the graph."""

    def batches() -> Iterator[np.ndarray]:
        yield from chunks(pixels, size)

    spec = tf.TensorSpec([None, *pixels.shape[1:]], tf.uint8)
    return finish(tf.data.Dataset.from_generator(batches, output_signature=spec))
