"""Writes a trained model as `model.keras`, and as a SavedModel that needs none of this project."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from data_pipelines.errors import UserError
from data_pipelines.files import aside_of, put_in_place, remove_asides
from data_pipelines.images import crop_for_evaluation, decode_any_for_evaluation
from data_pipelines.options import ImageOptions
from data_pipelines.pixels import read_pixels
from data_pipelines.text import Tokenizer
from keras_xmr import embeddings
from keras_xmr.matchers import LogitMatcher
from keras_xmr.model.retriever import Retriever
from keras_xmr.serving.samples import image_files

Tensors = dict[str, tf.Tensor]

_TOLERANCE = 1e-4

# Pillow and TensorFlow may come with versions of libjpeg that round in different ways.
_LEVELS = 2


class ExportError(UserError):
    """A model cannot be exported, or the export is not equal to it."""


def export_keras(model: Retriever, path: Path) -> None:
    """Writes `model.keras`, without the optimizer.

    It loads with `keras.models.load_model(path)` after `import keras_xmr`, with safe mode on.

    Args:
        model: The model.
        path: The file; it appears whole or not at all.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = aside_of(path, ".keras")
    try:
        model.without_optimizer().save(aside)
        put_in_place(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def export_saved_model(
    model: Retriever, tokenizer: Tokenizer, options: ImageOptions, path: Path
) -> None:
    """Writes a SavedModel with the signatures `embed_image`, `embed_text` and `match`.

    Decoding, resizing, tokenizer and vocabulary are inside. With a tokenizer of KerasHub, whoever
    loads the SavedModel has to `import tensorflow_text` before. `embed_image` takes the bytes of
    JPEG, PNG, GIF or BMP files, string (N,), or region features, float (N, R, F). `embed_text`
    takes captions, string (M,). Both return the tensors of the embedding that are scored, and
    for Gaussian ones `log_sigma`, the uncertainty. `match` takes one image and captions, and
    returns `scores` (M,), with `probabilities` where scores are log-odds. If the matcher scores
    by direction, the image is the query.

    Args:
        model: The model.
        tokenizer: Makes word ids of captions.
        options: How photos become pixels.
        path: The folder, which ends in a version number for TF Serving. It appears whole or
            not at all; what a killed export left beside it is removed.

    Raises:
        ExportError: If what was written does not give the same numbers as the model, or there
            is a version of this number.
    """
    if path.exists():
        raise ExportError(f"{path} exists; an export is never replaced by another")
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_asides(path.parent)
    aside = aside_of(path)
    endpoints = _Endpoints(model, tokenizer, options)
    archive = keras.export.ExportArchive()
    for part in (model.image_tower, model.text_tower, model.matcher, tokenizer):
        archive.track(part)
    for name, (function, signature) in endpoints.all().items():
        archive.add_endpoint(name, function, signature)
    try:
        archive.write_out(str(aside), verbose=False)
        endpoints.compare(aside)
        os.replace(aside, path)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


class _Endpoints:
    """The functions of the SavedModel."""

    def __init__(self, model: Retriever, tokenizer: Tokenizer, options: ImageOptions) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.options = options
        self.takes_regions = model.image_tower.input.dtype != "uint8"
        # Traced once for all endpoints, and never run operation by operation.
        self.pixels = tf.function(
            self._pixels, input_signature=[tf.TensorSpec([None], tf.string)], autograph=False
        )

    def all(self) -> dict[str, tuple[Callable[..., Tensors], list[tf.TensorSpec]]]:
        """Every endpoint: its function and what it takes."""
        captions = tf.TensorSpec([None], tf.string, name="captions")
        if self.takes_regions:
            shape = self.model.image_tower.input_shape[1:]
            images = tf.TensorSpec([None, *shape], tf.float32, name="regions")
            image = tf.TensorSpec(shape, tf.float32, name="regions")
        else:
            images = tf.TensorSpec([None], tf.string, name="image_bytes")
            image = tf.TensorSpec([], tf.string, name="image_bytes")
        return {
            "embed_image": (self.embed_image, [images]),
            "embed_text": (self.embed_text, [captions]),
            "match": (self.match, [image, captions]),
        }

    def embed_image(self, images: tf.Tensor) -> Tensors:
        """Embeddings of images."""
        if not self.takes_regions:
            images = self.pixels(images)
        return _with_uncertainty(self.model.image_tower(images, training=False))

    def embed_text(self, captions: tf.Tensor) -> Tensors:
        """Embeddings of captions."""
        found = self._embed_some_text(captions)
        return {name: value[: tf.size(captions)] for name, value in found.items()}

    def match(self, image: tf.Tensor, captions: tf.Tensor) -> Tensors:
        """Scores, and probabilities, of captions for one image."""
        texts = self._embed_some_text(captions)
        scores = self.model.score(self.embed_image(image[None]), texts)[0, : tf.size(captions)]
        if isinstance(self.model.matcher, LogitMatcher):
            return {"scores": scores, "probabilities": self.model.matcher.probability(scores)}
        return {"scores": scores}

    def _pixels(self, files: tf.Tensor) -> tf.Tensor:
        """Pixels uint8 (N, size, size, 3) of image files; an error names the file."""
        numbers = tf.range(tf.size(files))
        names = tf.strings.join(["image ", tf.strings.as_string(numbers), " (counted from 0)"])
        size = self.options.size
        return tf.map_fn(
            lambda item: decode_any_for_evaluation(item[0], self.options, item[1]),
            (files, names),
            fn_output_signature=tf.TensorSpec([size, size, 3], tf.uint8),
        )

    def _embed_some_text(self, captions: tf.Tensor) -> Tensors:
        """Like `embed_text`, but where there are no captions it embeds an empty one."""
        one = tf.constant([""])
        captions = tf.cond(tf.size(captions) > 0, lambda: captions, lambda: one)
        return _with_uncertainty(self.model.text_tower(self.tokenizer(captions), training=False))

    def compare(self, folder: Path) -> None:
        """Checks that a SavedModel gives the same numbers as the model."""
        loaded = tf.saved_model.load(str(folder))
        captions = tf.constant(["a dog runs on the grass", "two men", "雪 ❄ snow", ""])
        images = self._some_images()
        inputs = {
            "embed_image": [images],
            "embed_text": [captions],
            "match": [images[0], captions],
        }
        for name, arguments in inputs.items():
            ours = getattr(self, name)(*arguments)
            theirs = getattr(loaded, name)(*arguments)
            for key, value in ours.items():
                gap = float(np.max(np.abs(value.numpy() - theirs[key].numpy()), initial=0.0))
                scale = float(np.max(np.abs(value.numpy()), initial=1.0))
                if not gap <= _TOLERANCE * scale:
                    raise ExportError(
                        f"the exported {name} is not equal to the model: {key} differs by {gap:.3g}"
                    )

    def _some_images(self) -> tf.Tensor:
        if self.takes_regions:
            random = np.random.default_rng(0)
            shape = [size or 3 for size in self.model.image_tower.input_shape[1:]]
            return tf.constant(random.normal(size=[1, *shape]).astype(np.float32))
        files = image_files()
        seen = self.pixels(tf.constant(list(files.values()))).numpy()
        for (name, data), found in zip(files.items(), seen, strict=True):
            expected = crop_for_evaluation(read_pixels(data, name), self.options).numpy()
            gap = np.abs(found.astype(int) - expected).max()
            if gap > _LEVELS:
                raise ExportError(
                    f"the exported model would not see the pixels of a {name} file that records "
                    f"hold: they differ by up to {gap} of 255"
                )
        return tf.constant(list(files.values()))


def _with_uncertainty(embedding: Tensors) -> Tensors:
    found = embeddings.for_matching(embedding)
    if "log_variance" in embedding:
        found["log_sigma"] = embeddings.log_sigma(embedding)
    return found
