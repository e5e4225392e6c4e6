"""From records to the batches that a model eats, with `tf.data`.

Everything random is a function of the seed and of the place of a pair in the whole training,
so a pipeline that starts at a later step goes on exactly as if it had never stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import tensorflow as tf

from data_pipelines.images import decode_for_evaluation, decode_for_training
from data_pipelines.options import ImageOptions, TextOptions
from data_pipelines.records import SplitRecords, parse
from data_pipelines.samplers import Sampler
from data_pipelines.text import Tokenizer, drop_words, enclose

Relevance = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""From the numbers of N images and of M captions to the relevance of each pair, float32 (N, M)."""


def training_batches(
    records: SplitRecords,
    sampler: Sampler,
    tokenizer: Tokenizer,
    image: ImageOptions,
    text: TextOptions,
    start: int = 0,
    part: tuple[int, int] = (0, 1),
    relevance: Relevance | None = None,
) -> tf.data.Dataset:
    """Endless batches of image-caption pairs, from any step on.

    Args:
        records: The training split.
        sampler: Which pairs make the batches.
        tokenizer: Makes word ids of captions.
        image: How photos are cropped and augmented.
        text: How captions are augmented.
        start: The step to begin with, counted from the beginning of the training.
        part: Which part of every batch to yield, and of how many: one a worker.
        relevance: How relevant captions are to images, if the model learns from that.

    Returns:
        A data set of `(x, y)`. `x["image"]` is uint8 (B, H, W, 3), or float32 (B, R, F) for
        regions; `x["caption"]` is int32 (B, L), padded with 0. `y` has the numbers of the image
        and of the caption, int64 (B,), and with labels `labels`, int64 (B, most labels), padded
        with -1. With relevance it also has `relevance`, float32 (B, whole batch): that of the
        captions of all parts to the images of this one.
    """
    number, parts = part
    if sampler.batch_size % parts:
        raise ValueError(f"a batch of {sampler.batch_size} does not split into {parts} parts")
    size = sampler.batch_size // parts
    epoch = lru_cache(maxsize=2)(sampler.epoch)
    labels = _padded_labels(records)

    def load(step: np.int64) -> tuple[np.ndarray, ...]:
        whole = epoch(int(step) // sampler.steps)[int(step) % sampler.steps]
        captions = whole[number * size : (number + 1) * size]
        images = records.caption_image[captions]
        positions = step * sampler.batch_size + number * size + np.arange(size)
        return (
            np.array([records.read(image) for image in images], object),
            captions - records.first_caption[images],
            positions,
            images,
            captions,
            *(() if relevance is None else (relevance(images, whole),)),
        )

    def load_batch(step: tf.Tensor) -> list[tf.Tensor]:
        types = [tf.string, tf.int64, tf.int64, tf.int64, tf.int64]
        shapes = [[size]] * len(types)
        if relevance is not None:
            types.append(tf.float32)
            shapes.append([size, sampler.batch_size])
        loaded = tf.numpy_function(load, [step], types)
        return [tf.ensure_shape(t, shape) for t, shape in zip(loaded, shapes, strict=True)]

    def pair(
        record: tf.Tensor,
        caption: tf.Tensor,
        position: tf.Tensor,
        image_id: tf.Tensor,
        caption_id: tf.Tensor,
        *relevance_to_all: tf.Tensor,
    ) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
        parsed = parse(record, records.holds)
        seeds = tf.random.split(tf.stack([tf.constant(sampler.seed, tf.int64), position]), 2)
        if records.holds == "images":
            pixels = decode_for_training(parsed["encoded"], image, seeds[0])
        else:
            pixels = parsed["regions"]
        ids = tokenizer.words(parsed["texts"][caption][None])[0]
        if text.drop_words:
            ids = drop_words(ids, text.drop_words, seeds[1])
        x = {"image": pixels, "caption": enclose(tf.RaggedTensor.from_tensor(ids[None]))[0]}
        y = {"image_id": image_id, "caption_id": caption_id}
        if labels.shape[1]:
            y["labels"] = tf.gather(labels, image_id)
        if relevance_to_all:
            y["relevance"] = relevance_to_all[0]
        return x, y

    steps = tf.data.Dataset.range(start, np.iinfo(np.int64).max)
    dataset = steps.map(load_batch, num_parallel_calls=2, deterministic=True).unbatch()
    dataset = dataset.map(pair, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    return _finish(dataset.padded_batch(size, drop_remainder=True))


def image_batches(records: SplitRecords, options: ImageOptions, batch: int) -> tf.data.Dataset:
    """The images of a split in order, in batches: uint8 (B, H, W, 3) or float32 (B, R, F)."""

    def decode(record: tf.Tensor) -> tf.Tensor:
        parsed = parse(record, records.holds)
        if records.holds == "images":
            return decode_for_evaluation(parsed["encoded"], options)
        return parsed["regions"]

    dataset = tf.data.TFRecordDataset([str(shard) for shard in records.shards])
    dataset = dataset.map(decode, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(len(records)))
    return _finish(dataset.batch(batch))


def caption_batches(texts: list[str], tokenizer: Tokenizer, batch: int) -> tf.data.Dataset:
    """Captions in order, in batches: int32 (B, L), padded with 0."""
    dataset = tf.data.Dataset.from_tensor_slices(texts).batch(batch)
    return _finish(dataset.map(tokenizer, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True))


def _padded_labels(records: SplitRecords) -> np.ndarray:
    """Labels of every image, int64 (images, most labels), padded with -1."""
    most = max((len(labels) for labels in records.labels), default=0)
    padded = np.full((len(records), most), -1, np.int64)
    for row, labels in zip(padded, records.labels, strict=True):
        row[: len(labels)] = labels
    return padded


def _finish(dataset: tf.data.Dataset) -> tf.data.Dataset:
    options = tf.data.Options()
    options.deterministic = True
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return dataset.with_options(options).prefetch(tf.data.AUTOTUNE)
