"""The model of a finished run, for indexing and search."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from threading import RLock
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from scipy.special import expit

from data_pipelines.pixels import evaluation_pixels, stored_pixels
from data_pipelines.prepare import check_origin
from data_pipelines.records import Records, SplitRecords
from data_pipelines.text import Tokenizer, split_words
from keras_xmr import embeddings
from keras_xmr.encoders import EncoderError, InputSpec
from keras_xmr.experiments.build import PHOTOS, restore_tokenizer
from keras_xmr.experiments.config.model_facts import why_not_indexed
from keras_xmr.experiments.config.schema import Config
from keras_xmr.experiments.evaluation.embed import tower_graph
from keras_xmr.experiments.runs.folder import RunFolder, load_run
from keras_xmr.experiments.runs.frozen_features import with_features
from keras_xmr.experiments.runs.loading import load_retriever, load_trained
from keras_xmr.matchers.base import Matcher, Side
from keras_xmr.model.retriever import Retriever
from keras_xmr.model.towers import image_tower, text_tower, tower_on_features
from keras_xmr.search.photos import file_state
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.progress import waiting
from keras_xmr.utils.vectors import Arrays


class RunModel:
    """Embeds photos and texts by the model of a finished run, and scores them.

    Towers and matcher are loaded when they are first needed: a text needs no image tower.
    Thread-safe.

    Args:
        run: The folder of the run.
        compiled: Whether towers and matcher are compiled, which pays off from the second query on.

    Raises:
        UserError: If the run is not finished, or its model does not take photos.
    """

    def __init__(self, run: Path, compiled: bool = True) -> None:
        self.config = load_run(run)
        self.folder = RunFolder(self.config)
        if not self.folder.done.exists():
            raise UserError(f"{run} has no finished training; train it first")
        if reason := why_not_indexed(self.config):
            raise UserError(f"{run}: {reason}")
        self.matcher_name: str = self.config.model.matcher.name
        matcher: Any = self.config.model.matcher.part
        self.search: Any = matcher.SEARCH
        self.log_odds: bool = matcher.CONTRACT.log_odds
        self._compiled = compiled
        self._lock = RLock()
        self._rest = cache(tower_on_features)
        self._state = file_state(self.folder.trained_weights(self.config))

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the weights and of the options of pixels, words and matcher."""
        self.folder.verify_tokenizer()
        weights = self.folder.weights_checksum(self.config)
        options = self.config.model_dump(mode="json")
        seen, words = self.config.data.image.seen, options["data"]["text"]
        kept = [options["model"]["matcher"], options["model"]["dimension"], seen, words]
        content = json.dumps([weights, kept], sort_keys=True)
        self._check_unchanged()
        return hashlib.sha256(content.encode()).hexdigest()

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that the model was trained with."""
        return restore_tokenizer(self.config, self.folder.path)

    @cached_property
    def records(self) -> Records:
        """The records of the run, with the features that it has kept."""
        return with_features(self.open_records(), self, self.tokenizer, self.config)

    def open_records(self) -> Records:
        """Opens the records of the run, without the features that it has kept.

        Raises:
            RecordsError: If there are none, or they were made from other data.
        """
        check_origin(self.config.data)
        return Records.open(self.config.data.records)

    @cached_property
    def image_tower(self) -> Any:
        """The trained image tower.

        Raises:
            UserError: If its weights are missing or damaged; likewise below.
        """
        if "_complete_model" in self.__dict__:
            return self._complete_model.image_tower
        with waiting("loading the model"):
            options = self.config.model
            try:
                tower = image_tower(options.image, options.dimension, self._spec(()))
            except EncoderError:  # Its folder is gone.
                return self._complete_model.image_tower
            return self._load(image_tower=tower)

    @cached_property
    def text_tower(self) -> Any:
        """The trained text tower."""
        if "_complete_model" in self.__dict__:
            return self._complete_model.text_tower
        with waiting("loading the model"):
            options, words = self.config.model, self.tokenizer.vocabulary
            try:
                tower = text_tower(options.text, options.dimension, self._spec(words))
            except EncoderError:
                return self._complete_model.text_tower
            return self._load(caption_tower_input_model=tower)

    @cached_property
    def matcher(self) -> Matcher:
        """The trained matcher."""
        if not is_independent(self.config):
            return self._complete_model.matcher
        matcher: Matcher = self.config.model.matcher.build(name="matcher")
        self._load(matcher=matcher)
        return matcher

    @cached_property
    def _complete_model(self) -> Retriever:
        model = load_retriever(self.config, PHOTOS, self.tokenizer)
        self._check_unchanged()
        return model

    def _check_unchanged(self) -> None:
        """Refuses to mix the parts of two models, if an update has replaced the run."""
        if file_state(self.folder.trained_weights(self.config)) != self._state:
            raise UserError(f"{self.folder.path} was replaced by another model; start again")

    def _spec(self, vocabulary: Any) -> InputSpec:
        keras.config.set_dtype_policy(self.config.train.precision)
        return InputSpec(
            image_size=self.config.data.image.size,
            regions=None,
            vocabulary=vocabulary,
            pretrained=False,
            seed=self.config.seed,
        )

    def _load(self, **part: Any) -> Any:
        """Loads the trained weights of a part, and returns it."""
        holder: Any = _Holder(**part)
        load_trained(holder, self.config, self.folder)
        self._check_unchanged()
        return next(iter(part.values()))

    @property
    def kind(self) -> str:
        """The kind of its embeddings of images."""
        return str(self.config.model.image.head.contract.kind)

    def embed_texts(self, texts: Sequence[str]) -> dict[str, np.ndarray]:
        """Returns embeddings of texts, with a row per text."""
        with self._lock:
            ids = self._ids(tf.constant(list(texts), tf.string))
            return self._embed(self.text_tower, ids)

    def embed_images(self, files: Sequence[bytes]) -> dict[str, np.ndarray]:
        """Returns embeddings of image files, with a row per file.

        Raises:
            UnreadableError: If one is broken, with its number from 1.
        """
        pixels = [self.pixels(f, f"photo {n}") for n, f in enumerate(files, start=1)]
        return self.embed_pixels(np.stack(pixels))

    def warm_up_images(self) -> None:
        """Loads and compiles the image tower. Does not lock: texts can be embedded meanwhile."""
        size = self.config.data.image.size
        self._embed(self.image_tower, tf.zeros([1, size, size, 3], tf.uint8))

    def embed_pixels(self, pixels: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the embeddings of pixels uint8 (N, size, size, 3)."""
        with self._lock:
            return self._embed(self.image_tower, tf.constant(pixels))

    def embed_records(self, part: SplitRecords, images: np.ndarray) -> dict[str, np.ndarray]:
        """Returns embeddings of images of a split, by its features if it has some."""
        if part.holds == "images":
            return self.embed_pixels(self.decode_images(part, images))
        return self.embed_image_features(part.regions(images))

    def embed_image_features(self, features: np.ndarray) -> dict[str, np.ndarray]:
        """Returns embeddings of images from features (N, L, F) of the image encoder."""
        with self._lock:
            return self._embed(self._rest(self.image_tower), tf.constant(features))

    def embed_caption_features(self, features: np.ndarray) -> dict[str, np.ndarray]:
        """Returns embeddings of captions from features (N, L, F) of the text encoder."""
        with self._lock:
            return self._embed(self._rest(self.text_tower), tf.constant(features))

    def pixels(self, data: bytes, name: str) -> np.ndarray:
        """Decodes an image file as in evaluation: uint8 (size, size, 3).

        Raises:
            UnreadableError: If it is broken.
        """
        return evaluation_pixels(data, name, self.config.data.image)

    def decode_images(self, part: SplitRecords, images: np.ndarray) -> np.ndarray:
        """Decodes some images of a split."""
        options = self.config.data.image
        return np.stack(
            [stored_pixels(part.encoded(int(i)), f"image {i}", options) for i in images]
        )

    def unknown_words(self, text: str) -> tuple[str, ...]:
        """Returns the distinct words of a text that the model does not know."""
        if self.tokenizer.unknown is None:
            return ()
        with self._lock:
            words, are_unknown = self._words(tf.constant([text]))
        unknown = (word.decode() for word in words.numpy()[are_unknown.numpy()])
        return tuple(dict.fromkeys(unknown))

    def score(self, gallery: Arrays, query: Arrays) -> np.ndarray:
        """Returns scores float32 (images, queries) by the matcher of the model."""
        with self._lock:
            return np.asarray(self._score(_tensors(gallery), _tensors(query)))

    def prepare(self, embedding: Arrays, side: Side) -> dict[str, np.ndarray]:
        """Applies `prepare` of the matcher, which may add samples."""
        with self._lock:
            return _arrays(self.matcher.prepare(_tensors(embedding), side))

    def search_constants(self) -> dict[str, float]:
        """Returns the constants of the matcher for searches."""
        with self._lock:
            return dict(self.matcher.search_constants())

    def score_bound(
        self, similarity: np.ndarray, gallery: Arrays, query: Arrays
    ) -> np.ndarray | None:
        """Returns the upper bound on scores of items with at most this similarity (queries,)."""
        with self._lock:
            image, caption = (
                _tensors(embedding)
                for embedding in (self.prepare(gallery, "image"), self.prepare(query, "caption"))
            )
            similar = tf.constant(similarity, tf.float32)
            bound = self.matcher.score_bound(similar, image, caption)
            return None if bound is None else np.array(bound)

    def probability(self, scores: np.ndarray) -> np.ndarray | None:
        """Returns probabilities of a match, if scores are log-odds."""
        if not self.log_odds:
            return None
        return np.asarray(expit(scores.astype(np.float64)))

    @cached_property
    def _ids(self) -> Any:
        return self._text_function(self.tokenizer)

    @cached_property
    def _words(self) -> Any:
        """From texts to all of their words, and which of them are unknown."""
        tokenizer = self.tokenizer

        def words(texts: Any) -> Any:
            words = split_words(texts).flat_values
            return words, tf.reduce_any(tf.equal(tokenizer.pieces(words), tokenizer.unknown), 1)

        return self._text_function(words)

    def _text_function(self, function: Any) -> Any:
        """Compiles a function of texts: eager operations on strings are slow."""
        spec = tf.TensorSpec([None], tf.string)
        compiled = tf.function(function, input_signature=[spec], autograph=False)
        return compiled if self._compiled else function

    @cached_property
    def _score(self) -> Any:
        matcher = self.matcher
        query: Any = "caption" if matcher.contract.directed else None

        def score(gallery: Any, text: Any) -> Any:
            return matcher(gallery, text, query=query)

        return _compile_once(score) if self._compiled else score

    def _embed(self, tower: Any, inputs: Any) -> dict[str, np.ndarray]:
        """Returns the scored tensors of the embeddings of inputs of a tower."""
        if self._compiled:
            spec = tf.TensorSpec(tower.input.shape, tower.input.dtype)
            return _arrays(tower_graph(tower, spec)(inputs))
        return _arrays(embeddings.for_matching(tower(inputs, training=False)))


def _compile_once(score: Callable[..., Any]) -> Callable[..., Any]:
    """Compiles a score once for any number of items."""
    function = tf.function(score, reduce_retracing=True, autograph=False)

    def call(gallery: Mapping[str, Any], query: Mapping[str, Any]) -> Any:
        function.get_concrete_function(_any_size(gallery), _any_size(query))
        return function(gallery, query)

    return call


def _any_size(embedding: Mapping[str, Any]) -> dict[str, Any]:
    """Specifications of tensors for any number of items."""
    return {n: tf.TensorSpec([None, *t.shape[1:]], t.dtype) for n, t in embedding.items()}


def _arrays(embedding: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {name: np.asarray(values) for name, values in embedding.items()}


def _tensors(embedding: Arrays) -> dict[str, Any]:
    return {name: tf.constant(values) for name, values in embedding.items()}


def is_independent(config: Config) -> bool:
    """Returns whether the weights of the matcher are independent of the rest of the model.

    Weights of matchers of tokens have shapes of the towers, other matchers share variables of
    losses, and matchers of plugins may do either.
    """
    options = config.model
    return (
        options.matcher.part.__module__.startswith("keras_xmr.")
        and all(side.head.contract.kind != "tokens" for side in options.towers.values())
        and not any(loss.contract.shared_parameters for loss in config.objective)
    )


class _Holder(keras.Model):
    """Holds a part of a `Retriever` under the name by which Keras saves its weights.

    Keras sorts the attributes by name, and takes the first that has a layer.
    """

    def __init__(self, **part: Any) -> None:
        super().__init__()
        for name, layer in part.items():
            setattr(self, name, layer)
        self.built = True

    def load_own_variables(self, store: Any) -> None:
        """Ignores the variables of a `Retriever`, which are notes of its training."""
        del store
