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
from data_pipelines.files import aside_of, put_in_place
from data_pipelines.images import decode_any_for_evaluation
from data_pipelines.options import ImageOptions
from data_pipelines.text import Tokenizer
from keras_xmr import embeddings
from keras_xmr.matchers import LogitMatcher
from keras_xmr.retriever import Retriever

Tensors = dict[str, tf.Tensor]

_TOLERANCE = 1e-4


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
            not at all.

    Raises:
        ExportError: If what was written does not give the same numbers as the model.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = aside_of(path)
    endpoints = _Endpoints(model, tokenizer, options)
    archive = keras.export.ExportArchive()
    for part in (model.image_tower, model.text_tower, model.matcher, tokenizer):
        archive.track(part)
    for name, (function, signature) in endpoints.all().items():
        archive.add_endpoint(name, function, signature)
    archive.write_out(str(aside), verbose=False)
    endpoints.compare(aside)
    if path.exists():
        old = aside_of(path, ".old")
        os.replace(path, old)
        os.replace(aside, path)
        shutil.rmtree(old)
    else:
        os.replace(aside, path)


class _Endpoints:
    """The functions of the SavedModel."""

    def __init__(self, model: Retriever, tokenizer: Tokenizer, options: ImageOptions) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.options = options
        self.takes_regions = model.image_tower.input.dtype != "uint8"

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
            size = self.options.size
            images = tf.map_fn(
                lambda data: decode_any_for_evaluation(data, self.options),
                images,
                fn_output_signature=tf.TensorSpec([size, size, 3], tf.uint8),
            )
        return _with_uncertainty(self.model.image_tower(images, training=False))

    def embed_text(self, captions: tf.Tensor) -> Tensors:
        """Embeddings of captions."""
        return _with_uncertainty(self.model.text_tower(self.tokenizer(captions), training=False))

    def match(self, image: tf.Tensor, captions: tf.Tensor) -> Tensors:
        """Scores, and probabilities, of captions for one image."""
        scores = self.model.score(self.embed_image(image[None]), self.embed_text(captions))[0]
        if isinstance(self.model.matcher, LogitMatcher):
            return {"scores": scores, "probabilities": self.model.matcher.probability(scores)}
        return {"scores": scores}

    def compare(self, folder: Path) -> None:
        """Checks that a SavedModel gives the same numbers as the model."""
        loaded = tf.saved_model.load(str(folder))
        captions = tf.constant(["a dog runs on the grass", "two men", "雪 ❄ snow", ""])
        image = self._some_image()
        inputs = {
            "embed_image": [image[None]],
            "embed_text": [captions],
            "match": [image, captions],
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

    def _some_image(self) -> tf.Tensor:
        random = np.random.default_rng(0)
        if self.takes_regions:
            shape = [size or 3 for size in self.model.image_tower.input_shape[1:]]
            return tf.constant(random.normal(size=shape).astype(np.float32))
        return tf.io.encode_jpeg(random.integers(0, 256, (97, 131, 3), np.uint8))


def _with_uncertainty(embedding: Tensors) -> Tensors:
    found = embeddings.for_matching(embedding)
    if "log_variance" in embedding:
        found["log_sigma"] = embeddings.log_sigma(embedding)
    return found
