"""A trained model with its tokenizer: embeds and scores photos and texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import keras
import numpy as np
import tensorflow as tf

from data_pipelines.batches import finish
from data_pipelines.photo_files import UnreadableError
from data_pipelines.pixels import evaluation_pixels
from data_pipelines.text import Tokenizer
from keras_xmr.experiments.build import PHOTOS, restore_tokenizer
from keras_xmr.experiments.config.schema import Config
from keras_xmr.experiments.evaluation.arrays import TILE
from keras_xmr.experiments.evaluation.scoring import MatcherScores
from keras_xmr.experiments.evaluation.split_embeddings import Arrays, embed_batches, embed_captions
from keras_xmr.experiments.runs.configs import load_run
from keras_xmr.experiments.runs.folder import RunFolder
from keras_xmr.experiments.runs.loading import load_retriever
from keras_xmr.experiments.runs.pretrained import OUTPUT, pretrained_run
from keras_xmr.experiments.runs.weight_files import verify_model, verify_tokenizer
from keras_xmr.model.retriever import Retriever
from keras_xmr.utils.errors import ArgumentError, UserError
from keras_xmr.utils.json_entries import has_words
from keras_xmr.utils.sides import Side


def load(folder: str | Path) -> TrainedModel:
    """Loads the model of a finished run, with its tokenizer and options.

    The folder is sufficient, also a copy elsewhere; neither records nor data are needed.

    Args:
        folder: Such as `saved_models/scenes_pcme`.

    Raises:
        UserError: If the folder has no exported run, a file of it was changed, or its model cannot
            be loaded.
    """
    config = load_run(Path(folder))
    paths = RunFolder(config)
    verify_model(paths)
    verify_tokenizer(paths)
    try:
        model = keras.models.load_model(paths.model, compile=False)
    except (OSError, ValueError, TypeError, KeyError, BadZipFile) as error:
        reason = str(error).strip().partition("\n")[0]
        raise UserError(f"{paths.model} cannot be loaded ({reason}); export it again") from None
    return TrainedModel(config, model, restore_tokenizer(config, paths.path))


def pretrained(model: str | Path, output: str | Path = OUTPUT) -> TrainedModel:
    """Loads a published model without training.

    The run of the model is created in `output` if it is missing; every command for runs accepts it.

    Args:
        model: A CLIP or SigLIP by the name of a preset of KerasHub, such as
            `siglip2_base_patch16_224`, an address (`hf://user/model`), or a folder: as
            `save_to_preset` writes it, or with the files of `transformers`.
        output: The folder of runs.

    Raises:
        UserError: If the model is unknown or cannot be downloaded; the message has the remedy.
    """
    folder = pretrained_run(model, Path(output))
    config = load_run(folder)
    tokenizer = restore_tokenizer(config, folder)
    return TrainedModel(config, load_retriever(config, PHOTOS, tokenizer), tokenizer)


class TrainedModel:
    """A model with its tokenizer and the options of its training.

    Args:
        config: The config of the run.
        retriever: The Keras model.
        tokenizer: Converts captions to word ids.
    """

    def __init__(self, config: Config, retriever: Retriever, tokenizer: Tokenizer) -> None:
        self.config = config
        self.retriever = retriever
        self.tokenizer = tokenizer

    @property
    def takes_regions(self) -> bool:
        """Whether the inputs are features of regions instead of photos."""
        return bool(self.retriever.image_tower.input.dtype != "uint8")

    def embed_images(self, images: Sequence[Any]) -> Arrays:
        """Embeddings of images, in order.

        Args:
            images: Paths of photos; of a model that takes regions, features float (N, R, F).

        Returns:
            Arrays float32 by name, such as `mean` (N, D) and `log_variance` (N, D); of tokens
            `Ragged`, without padding.

        Raises:
            UserError: If a file is not an image.
            OSError: If it cannot be read.
        """
        if self.takes_regions:
            return self._embed(tf.data.Dataset.from_tensor_slices(_regions(images)), len(images))
        if isinstance(images, str | Path) or not all(isinstance(i, str | Path) for i in images):
            raise ArgumentError("images must be a list of paths of photos")
        side, unreadable = self.config.data.image.size, list[Exception]()

        def pixels() -> Iterator[np.ndarray]:
            try:
                yield from map(self._pixels, images)
            except (UnreadableError, OSError) as error:
                # TensorFlow would print a traceback of an error that is raised here.
                unreadable.append(error if isinstance(error, OSError) else UserError(str(error)))

        spec = tf.TensorSpec([side, side, 3], tf.uint8)
        dataset = tf.data.Dataset.from_generator(pixels, output_signature=spec)
        try:
            return self._embed(dataset, len(images))
        finally:
            if unreadable:
                raise unreadable[0] from None

    def embed_texts(self, texts: Sequence[str]) -> Arrays:
        """Embeddings of texts, in order; see `embed_images`.

        Raises:
            ArgumentError: If these are not texts, or one has no words.
        """
        if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
            raise ArgumentError("texts must be a list of texts")
        if empty := [number for number, text in enumerate(texts) if not has_words(text)]:
            raise ArgumentError(f"text {empty[0]}, {texts[empty[0]]!r}, has no words")
        return embed_captions(
            self.retriever, list(texts), self.tokenizer, self.config.evaluation.batch_size
        )

    def score(self, images: Arrays, texts: Arrays, query: Side = "image") -> np.ndarray:
        """Scores all images with all texts, larger is better.

        Args:
            images: Embeddings of N images.
            texts: Embeddings of M texts.
            query: The side of the query, for matchers that score by direction.

        Returns:
            Float32 (N, M).
        """
        matcher = self.retriever.matcher
        side = query if matcher.contract.directed else None
        return np.asarray(MatcherScores(matcher, images, texts, TILE, side))

    def _embed(self, dataset: tf.data.Dataset, count: int) -> Arrays:
        size = self.config.evaluation.batch_size
        batches = finish(dataset.batch(size))
        return embed_batches(self.retriever.image_tower, batches, count, size, "images")

    def _pixels(self, path: str | Path) -> np.ndarray:
        """Reads a photo as in evaluation, to pixels uint8 (size, size, 3)."""
        return evaluation_pixels(Path(path).read_bytes(), str(path), self.config.data.image)


def _regions(images: Any) -> np.ndarray:
    if isinstance(images, str | Path) or any(isinstance(image, str | Path) for image in images):
        raise ArgumentError(
            "the model takes features of regions, not photos: use an array (N, R, F)"
        )
    return np.asarray(images, np.float32)
