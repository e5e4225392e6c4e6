"""Embeds all images and captions of a split."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any
from weakref import WeakKeyDictionary, ref

import keras
import numpy as np
import tensorflow as tf

from data_pipelines.batches import caption_batches, feature_batches, image_batches
from data_pipelines.features import Features
from data_pipelines.records import SplitRecords
from data_pipelines.text import Tokenizer
from keras_xmr import embeddings
from keras_xmr.experiments.config.schema import Config
from keras_xmr.experiments.evaluation.split_evaluation import Arrays, EmbeddedSplit
from keras_xmr.model.retriever import Retriever
from keras_xmr.model.towers import run_images, tower_on_features
from keras_xmr.utils.progress import Progress


class Ragged:
    """Items of different lengths, one after another: memory follows the tokens, not the longest.

    Joining takes twice that memory.

    Args:
        values: The tokens of all items (tokens, ...).
        lengths: Number of tokens per item (items,).
    """

    def __init__(self, values: np.ndarray, lengths: np.ndarray) -> None:
        self.values = values
        self.lengths = lengths
        self._ends = np.cumsum(lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, items: slice | np.ndarray) -> np.ndarray:
        """Returns some items, padded with 0 to the longest of them: (items, longest, ...)."""
        lengths = self.lengths[items]
        counts = np.arange(lengths.max(initial=1)) < lengths[:, None]
        padded = np.zeros((*counts.shape, *self.values.shape[1:]), self.values.dtype)
        padded[counts] = self.take(items).values
        return padded

    def take(self, items: slice | np.ndarray) -> Ragged:
        """Returns some items, without padding."""
        lengths = self.lengths[items]
        begins = np.repeat(self._ends[items] - lengths, lengths)
        within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return Ragged(self.values[begins + within], lengths)


def join(batches: Sequence[tuple[np.ndarray, np.ndarray]]) -> dict[str, Ragged]:
    """Returns the token embedding of a split.

    Args:
        batches: The tokens of each batch without padding (tokens, D), and the number per item
            (items,).
    """
    lengths = np.concatenate([lengths for _, lengths in batches])
    values = np.concatenate([tokens for tokens, _ in batches])
    ones = np.ones(len(values), np.float32)
    return {"tokens": Ragged(values, lengths), "mask": Ragged(ones, lengths)}


_RANK_OF_IMAGES = 4


def embed_captions(
    model: Retriever,
    texts: list[str],
    tokenizer: Tokenizer,
    batch: int,
    features: Features | None = None,
) -> Arrays:
    """Embeds captions in order.

    Captions are taken by length, so that a batch is padded to about the length of all its captions.

    Args:
        model: The model.
        texts: The captions.
        tokenizer: Makes word ids of them.
        batch: Number of items that are embedded at once.
        features: The features of the captions, which are embedded in place of their words.
    """
    order = np.argsort([len(text.split()) for text in texts], kind="stable")
    tower = model.caption_tower_input_model
    if features is not None:
        dataset = feature_batches(features, order, batch)
        tower = tower_on_features(tower) if tower is model.text_tower else tower
    else:
        dataset = caption_batches([texts[caption] for caption in order], tokenizer, batch)
    embedded = embed_batches(tower, dataset, len(texts), batch, "captions")
    back = np.argsort(order)
    return {name: reordered(values, back) for name, values in embedded.items()}


def embed_split(
    model: Retriever, records: SplitRecords, tokenizer: Tokenizer, config: Config
) -> EmbeddedSplit:
    """Embeds all images and all captions of a split, in order.

    Args:
        model: The model.
        records: The split. Features that it has in place of images or captions come from the
            model's encoders.
        tokenizer: Makes word ids of the captions.
        config: The config of the run.
    """
    batch, tower = config.evaluation.batch_size, model.image_tower_input_model
    dataset = image_batches(records, config.data.image, batch)
    if records.holds == "regions" and len(tower.input.shape) == _RANK_OF_IMAGES:
        tower = tower_on_features(tower)
    with records.naming_damage():
        images = embed_batches(tower, dataset, len(records), batch, "images")
    texts = records.texts
    captions = embed_captions(model, texts, tokenizer, batch, records.caption_features)
    return EmbeddedSplit(images, captions)


def reordered(values: np.ndarray | Ragged, items: np.ndarray) -> np.ndarray | Ragged:
    """Returns an array of an embedding of some items, in their order."""
    return values.take(items) if isinstance(values, Ragged) else values[items]


def embed_batches(
    tower: keras.Model, dataset: tf.data.Dataset, total: int, batch: int, unit: str
) -> Arrays:
    """Embeds the batches of a data set in order.

    Args:
        tower: The tower.
        dataset: The inputs, batch by batch.
        total: Number of items.
        batch: Number of items per batch.
        unit: Name of the items, for the progress bar.
    """
    batches = _one_by_one(tower, dataset, total, unit)
    if embeddings.kind(tower.output) == "tokens":
        # Batches of different lengths, which `predict` cannot join.
        masked = ((one["tokens"], one["mask"] > 0) for one in batches)
        return join([(tokens[counts], counts.sum(axis=1)) for tokens, counts in masked])
    wanted = embeddings.for_matching(tower.output)
    strategy = tower.distribute_strategy
    several = strategy.num_replicas_in_sync > 1
    if several and not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        if wanted.keys() != tower.output.keys():
            # The parts that only losses need would fill the memory for a large split.
            tower = keras.Model(tower.inputs, wanted)
        with _bar(total, unit) as bar:

            def advance(number: int, logs: Any = None) -> None:
                bar.update(min((number + 1) * batch, total) - bar.n)

            callback = keras.callbacks.LambdaCallback(on_predict_batch_end=advance)
            return dict(tower.predict(dataset, verbose=0, callbacks=[callback]))
    # Of several workers, of whom `predict` would be the work of all, this one evaluates alone.
    embedded = list(batches)
    return {key: np.concatenate([one[key] for one in embedded]) for key in wanted}


def _bar(total: int, unit: str) -> Progress:
    return Progress(f"  embedding {unit}", total, unit)


def _one_by_one(
    tower: keras.Model, dataset: tf.data.Dataset, total: int, unit: str
) -> Iterator[dict[str, np.ndarray]]:
    """Yields the embeddings of every batch, without the parts that only losses need."""
    embed = tower_graph(tower, dataset.element_spec)
    with _bar(total, unit) as bar:
        for inputs in dataset:
            embedded = {key: value.numpy() for key, value in embed(inputs).items()}
            yield embedded
            bar.update(len(next(iter(embedded.values()))))


_GRAPHS: WeakKeyDictionary[keras.Model, dict[Any, Callable[..., Any]]] = WeakKeyDictionary()


def tower_graph(
    tower: keras.Model, spec: tf.TensorSpec
) -> Callable[[tf.Tensor], dict[str, tf.Tensor]]:
    """Returns a tower as a graph, without the parts of embeddings that only losses need.

    The graph is made once, for batches of any size, and shared by evaluation and search.

    Args:
        tower: The tower.
        spec: The signature of its input.
    """
    graphs = _GRAPHS.setdefault(tower, {})
    if spec not in graphs:
        # Not the tower itself, which would stay as long as its graphs.
        weak: Any = ref(tower)
        graphs[spec] = tf.function(
            lambda inputs: embeddings.for_matching(run_images(weak(), inputs)),
            input_signature=[spec],
            autograph=False,
        )
    return graphs[spec]


def embed_unknown(model: Retriever, tokenizer: Tokenizer) -> dict[str, np.ndarray]:
    """Returns the embedding of a caption of five words that no vocabulary has."""
    words = tokenizer(tf.constant([" ".join(["qxzvqx"] * 5)]))
    embedding = model.text_tower(words, training=False)
    return {name: np.asarray(values) for name, values in embedding.items()}
