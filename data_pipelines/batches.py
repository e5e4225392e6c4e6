"""Builds `tf.data` pipelines from records.

All randomness is a function of the seed and of the position of a pair in the whole training, so a
pipeline that starts at a later step continues exactly as an unbroken one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial

import numpy as np
import tensorflow as tf

from data_pipelines.features import Features
from data_pipelines.image_decoding import decode_for_evaluation, decode_for_training
from data_pipelines.options import ImageOptions, TextOptions
from data_pipelines.records import SplitRecords
from data_pipelines.samplers import Sampler
from data_pipelines.text import CaptionIds, Tokenizer
from keras_xmr.utils.processors import processor_count

Relevance = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Maps the indices of N images and M captions to the relevance of each pair, float32 (N, M)."""

MAX_CACHED_BYTES = 2**28
"""Maximum size in bytes of the decoded pixels of a split that are kept in memory, instead of being
decoded again in each epoch."""

_TOGETHER = 64  # images that are decoded together, to be kept

# Autotuning of `tf.data` would find out about as much. Its thread does not always hear that a
# pipeline has ended, and then ending one takes up to a minute. Twice as many calls as cores: those
# that are done wait for their turn.
_PARALLEL = {"num_parallel_calls": 2 * processor_count(), "deterministic": True}

# The mapped functions have no Python conditions on tensors, so AutoGraph, which takes a second at
# every start of a process, has nothing to convert.
_plain = tf.autograph.experimental.do_not_convert


def training_batches(
    records: SplitRecords,
    sampler: Sampler,
    tokenizer: Tokenizer,
    image: ImageOptions,
    text: TextOptions,
    start: int = 0,
    part: tuple[int, int] = (0, 1),
    relevance: Relevance | None = None,
    pieces: int = 1,
    captions: CaptionIds | None = None,
    judged: Relevance | None = None,
    multiple: int = 1,
) -> tf.data.Dataset:
    """Builds an endless data set of batches, beginning at any step.

    Args:
        records: The training split.
        sampler: Which images and captions make the batches.
        tokenizer: Makes word ids of captions.
        image: How photos are cropped and augmented.
        text: How captions are augmented.
        start: The step to begin with, counted from the beginning of the training.
        part: Index of the part of every batch to yield, and the number of parts: one per worker.
        relevance: Relevance of captions to images, if a loss needs it.
        pieces: Number of consecutive batches that the part is split into: one per device.
        captions: Ids of all captions of the split, if they are computed already.
        judged: Relevance judgements of people, NaN for pairs without a judgement.
        multiple: Captions, and regions of varying number, are padded to a multiple of this, so
            that a step that is compiled per shape is compiled less often.

    Returns:
        A data set of `(x, y)`. `x["image"]` is uint8 (B, H, W, 3), or float32 (B, R, F) for
        regions, filled with zeros where their number varies; `x["caption"]` is int32 (B, L),
        padded by the tokenizer, or float32 (B, L, F), filled with zeros, where the records have
        features of captions. `y` has the indices of the image and of the caption, int64 (B,),
        and with labels `labels`, int64 (B, most labels), padded with -1. With relevance it also has
        `relevance`, float32 (B, captions of the whole batch), of the captions of all parts
        to the images of this one; and likewise `judged`.

        With several captions per image, `x["caption"]` and `caption_id` hold all M of them, image
        by image, and `y` has `caption_image_id`, int64 (M,), the image of each caption, and
        `caption_labels` of that image.

    Raises:
        ValueError: If the batch size is not divisible by the numbers of parts and pieces.
        RecordsError: If a record is damaged. Most are not read before the step that needs them.
    """
    if captions is None and records.caption_features is None:
        captions = CaptionIds.from_texts(records.texts, tokenizer)
    optional = {"relevance": relevance, "judged": judged}
    pairwise = {name: function for name, function in optional.items() if function is not None}
    pixels, drop = _cache_pixels(records, image), text.drop_words
    loader = _Loader(records, sampler, image, start, part, pairwise, captions, drop, pixels)
    if loader.size % pieces:
        raise ValueError(f"a part of {loader.size} does not split into {pieces} pieces")

    def item(loaded: dict[str, tf.Tensor]) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
        seed = tf.stack([tf.constant(sampler.seed, tf.int64), loaded["position"]])
        if "pixels" in loaded:
            pixels = loaded["pixels"]
        elif records.holds == "images":
            pixels = decode_for_training(records.parse(loaded["record"]), image, seed)
        else:
            pixels = records.parse(loaded["record"])
        y = {name: loaded[name] for name in _IN_Y if name in loaded}
        if sampler.has_several:
            y["caption_id"] = tf.boolean_mask(y["caption_id"], y["caption_id"] >= 0)
        if records.caption_features is not None:
            caption = _read_features(records.caption_features, y["caption_id"])
        elif sampler.has_several:
            caption = loaded["words"][: tf.size(y["caption_id"])]
        else:
            caption = loaded["words"]
        return {"image": pixels, "caption": caption}, y

    steps = tf.data.Dataset.range(start, np.iinfo(np.int64).max)
    dataset = steps.map(_plain(loader), num_parallel_calls=2, deterministic=True).unbatch()
    dataset = dataset.map(_plain(item), **_PARALLEL)
    padding = tf.nest.map_structure(lambda spec: tf.zeros((), spec.dtype), dataset.element_spec)
    if records.caption_features is None:
        padding[0]["caption"] = tf.constant(tokenizer.pad, tf.int32)
    padding[1]["caption_id"] = tf.constant(-1, tf.int64)
    size = loader.size // pieces
    dataset = dataset.padded_batch(size, padding_values=padding, drop_remainder=True)
    if sampler.has_several:
        dataset = dataset.map(_plain(_flatten_captions))
    if multiple > 1:
        dataset = dataset.map(_plain(partial(_pad_to_multiple, multiple, padding[0])))
    return finish(dataset)


def image_batches(
    records: SplitRecords, options: ImageOptions, batch: int, images: np.ndarray | None = None
) -> tf.data.Dataset:
    """Builds batches of images of a split: uint8 (B, H, W, 3), or float32 (B, R, F) of regions.

    Where the number of regions varies, R is the largest of the batch, and zeros fill the rest.

    Args:
        records: The records of the split.
        options: How images are decoded.
        batch: B.
        images: Numbers of the images, in order; None for all.
    """
    if records.image_features is not None:
        numbers = np.arange(len(records)) if images is None else images
        return feature_batches(records.image_features, numbers, batch)

    def decode(record: tf.Tensor) -> tf.Tensor:
        parsed = records.parse(record)
        return decode_for_evaluation(parsed, options) if records.holds == "images" else parsed

    if images is None:
        dataset = tf.data.TFRecordDataset([str(shard) for shard in records.shards])
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(len(records)))
    else:
        dataset = tf.data.Dataset.from_tensor_slices(images)
        dataset = dataset.map(_plain(lambda image: _by_numpy(records.read, image, tf.string, [])))
    return finish(dataset.map(_plain(decode), **_PARALLEL).padded_batch(batch))


def caption_batches(texts: Sequence[str], tokenizer: Tokenizer, batch: int) -> tf.data.Dataset:
    """Builds batches of captions in order: int32 (B, L), padded by the tokenizer."""

    def read(first: np.int64) -> np.ndarray:
        return np.array([text.encode() for text in texts[int(first) : int(first) + batch]], object)

    # As a constant of a graph, all of them together could not have more than 2 GB.
    dataset = tf.data.Dataset.range(0, len(texts), batch)
    dataset = dataset.map(_plain(lambda first: _by_numpy(read, first, tf.string, [None])))
    to_ids = _traced(tokenizer)
    return finish(dataset.map(_plain(lambda texts: to_ids(texts)), **_PARALLEL))


@lru_cache(maxsize=4)
def _traced(tokenizer: Tokenizer) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns a tokenizer that is traced once, for the pipelines of all validations."""
    signature = [tf.TensorSpec([None], tf.string)]
    return tf.function(tokenizer.__call__, signature, autograph=False).get_concrete_function()


def feature_batches(features: Features, items: np.ndarray, batch: int) -> tf.data.Dataset:
    """Builds batches of features of images or captions: float32 (B, L, F), filled with zeros."""
    dataset = tf.data.Dataset.from_tensor_slices(items).batch(batch)
    return finish(dataset.map(_plain(partial(_read_features, features))))


def _cache_pixels(records: SplitRecords, options: ImageOptions) -> np.ndarray | None:
    """Decodes all images of a split, uint8 (N, H, W, 3), if augmentation does not change them.

    Returns:
        The pixels, or None if images are augmented, are regions, or exceed `MAX_CACHED_BYTES`.
    """
    shape = (len(records), options.size, options.size, 3)
    if records.holds != "images" or options.augments or np.prod(shape) > MAX_CACHED_BYTES:
        return None
    with records.naming_damage():
        batches = image_batches(records, options, _TOGETHER)
        return np.concatenate(list(batches.as_numpy_iterator()))


def _read_features(features: Features, items: tf.Tensor) -> tf.Tensor:
    """Returns features float32 (L, F) of one item, or (B, L, F) of several."""
    shape = [*items.shape, features.length, features.width]
    return _by_numpy(features.read, items, tf.float32, shape)


def _by_numpy(
    read: Callable[..., object], items: tf.Tensor, dtype: tf.DType, shape: Sequence[int | None]
) -> tf.Tensor:
    return tf.ensure_shape(tf.numpy_function(read, [items], dtype, stateful=False), shape)


_IN_Y = ("image_id", "caption_id", "relevance", "judged", "labels")


def _flatten_captions(
    x: dict[str, tf.Tensor], y: dict[str, tf.Tensor]
) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
    """Flattens captions per image, (N, K, L), to (M, L)."""
    mask = y["caption_id"] >= 0
    rows = tf.where(mask)[:, 0]
    per_caption = {
        f"caption_{name}": tf.gather(y[name], rows) for name in ("image_id", "labels") if name in y
    }
    y = y | per_caption | {"caption_id": tf.boolean_mask(y["caption_id"], mask)}
    return x | {"caption": tf.boolean_mask(x["caption"], mask)}, y


def _pad_to_multiple(
    multiple: int, padding: dict[str, tf.Tensor], x: dict[str, tf.Tensor], y: dict[str, tf.Tensor]
) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
    """Pads tensors of variable length, (B, L, ...), to the next multiple."""
    padded = {}
    for name, tensor in x.items():
        if tensor.shape[1] is None:
            more = -tf.shape(tensor)[1] % multiple
            places = [[0, 0], [0, more], *[[0, 0]] * (tensor.shape.rank - 2)]
            padded[name] = tf.pad(tensor, places, constant_values=padding[name])
    return x | padded, y


_STREAM = 11  # sets these random numbers apart from others of the same seed and step


@dataclass(eq=False)
class _Loader:
    """Loads the inputs of a step, for one part of the batch, with NumPy.

    For each pair: the record of the image, or its cached pixels or features, the position of the
    pair in the training, the indices of image and caption, and the ids of its words. An image with
    several captions has the indices and ids of all, padded with indices of -1. With pairwise
    values, such as relevance, it has the values of all captions of the whole batch to the image.
    With labels, the labels of the images.
    """

    records: SplitRecords
    sampler: Sampler
    image: ImageOptions
    start: int
    part: tuple[int, int]
    pairwise: Mapping[str, Relevance]
    captions: CaptionIds | None
    drop_words: float
    pixels: np.ndarray | None

    def __post_init__(self) -> None:
        number, parts = self.part
        if self.sampler.batch_size % parts:
            raise ValueError(
                f"a batch of {self.sampler.batch_size} does not split into {parts} parts"
            )
        self.size = self.sampler.batch_size // parts
        self._slice = slice(number * self.size, (number + 1) * self.size)
        self._epoch = lru_cache(maxsize=2)(self.sampler.epoch)
        labels = self.records.labels
        most = max(map(len, labels), default=0)
        padded = [(*of_image, *[-1] * (most - len(of_image))) for of_image in labels]
        self._labels = np.array(padded, np.int64)

    def __call__(self, step: tf.Tensor) -> dict[str, tf.Tensor]:
        loaded = tf.numpy_function(
            lambda step: tuple(self._load(step).values()),
            [step],
            [spec.dtype for spec in self._specs.values()],
        )
        return {
            name: tf.ensure_shape(tensor, spec.shape)
            for (name, spec), tensor in zip(self._specs.items(), loaded, strict=True)
        }

    @cached_property
    def _specs(self) -> dict[str, tf.TensorSpec]:
        """Types and shapes of all steps, from the first one."""
        varying = {"words"}
        if self.sampler.has_several:
            varying |= {"caption_id", *self.pairwise}
        specs = {}
        for name, values in self._load(np.int64(self.start)).items():
            shape = [None if name in varying else length for length in values.shape[1:]]
            specs[name] = tf.TensorSpec([self.size, *shape], values.dtype)
        return specs

    def _load(self, step: np.int64) -> dict[str, np.ndarray]:
        records, sampler = self.records, self.sampler
        batch = self._epoch(int(step) // sampler.steps)[int(step) % sampler.steps]
        images = sampler.images(batch[self._slice])
        first = step * sampler.batch_size + self._slice.start
        loaded = {
            "position": first + np.arange(self.size),
            "image_id": images,
            "caption_id": batch[self._slice],
        }
        if records.image_features is not None:
            loaded["pixels"] = records.image_features.read(images)
        elif self.pixels is None:
            loaded["record"] = np.array([records.read(image) for image in images], object)
        else:
            loaded["pixels"] = self.pixels[images]
        if self.captions is not None:
            loaded["words"] = self._load_words(self.captions, batch, int(step))
        if self._labels.size:
            loaded["labels"] = self._labels[images]
        if self.pairwise:
            captions = batch[batch >= 0]
            loaded |= {name: values(images, captions) for name, values in self.pairwise.items()}
        return loaded

    def _load_words(self, captions: CaptionIds, batch: np.ndarray, step: int) -> np.ndarray:
        """Returns augmented ids int32 (N, L), or (N, captions, L), of the captions of the part.

        Dropped words are drawn for the whole batch, so they do not depend on which worker loads a
        part.
        """
        draws = None
        if self.drop_words:
            random = np.random.default_rng([self.sampler.seed, step, _STREAM])
            shape = (*batch.shape, 2, captions.longest)
            draws = random.random(shape, np.float32)[self._slice].reshape(-1, *shape[-2:])
        numbers = batch[self._slice]
        ids = captions.batch(numbers.ravel(), self.drop_words, draws)
        return ids.reshape(*numbers.shape, -1)


def finish(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Finishes a pipeline: deterministic, prefetches two batches, no sharding, no autotuning."""
    options = tf.data.Options()
    options.deterministic = True
    options.autotune.enabled = False
    # Has nothing to fuse, and takes a fourth of the time in which a pipeline begins.
    options.experimental_optimization.apply_default_optimizations = False
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return dataset.prefetch(2).with_options(options)
