"""Builds towers out of an encoder, a pooling and a head."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

import keras
import tensorflow as tf

from keras_xmr.encoders import EncoderError, InputSpec
from keras_xmr.encoders.keras_hub import BAG_LENGTH
from keras_xmr.heads.pooling import Pooling
from keras_xmr.heads.pooling.local_scaling import LocalScaling
from keras_xmr.layers import BagOfWords, region_mask
from keras_xmr.layers.keras_compat import all_layers
from keras_xmr.parts.registry import Choice
from keras_xmr.parts.tensors import Tensor


class TowerOptions(Protocol):
    """The chosen parts of a tower, such as a section of a config."""

    @property
    def encoder(self) -> Choice:
        """Makes local features."""

    @property
    def pooling(self) -> Choice | None:
        """Makes one vector of them; none for a head that keeps them all."""

    @property
    def head(self) -> Choice:
        """Makes the embedding."""


def image_tower(options: TowerOptions, dimension: int, spec: InputSpec) -> keras.Model:
    """Returns the image tower: pixels uint8 (B, H, W, 3), or regions float (B, R, F), to an
    embedding.

    Args:
        options: The encoder, pooling and head.
        dimension: D of the embedding.
        spec: The inputs of the tower.

    Raises:
        EncoderError: If weights cannot be loaded.
    """
    if spec.regions is not None:
        inputs = keras.Input(spec.regions, dtype="float32", name="image")
    elif spec.image_size is not None:
        inputs = keras.Input((spec.image_size, spec.image_size, 3), dtype="uint8", name="image")
    else:
        raise EncoderError("an image tower needs an image size, or the shape of regions")
    return _tower(inputs, options, dimension, spec, "image_tower")


def text_tower(options: TowerOptions, dimension: int, spec: InputSpec) -> keras.Model:
    """Returns the text tower: word ids int32 (B, L), padded as their tokenizer pads, to an
    embedding.

    Padding never changes an embedding.

    Args:
        options: The encoder, pooling and head.
        dimension: D of the embedding.
        spec: The inputs of the tower.

    Raises:
        EncoderError: If weights or word vectors cannot be loaded.
    """
    inputs = keras.Input((None,), dtype="int32", name="caption")
    return _tower(inputs, options, dimension, spec, "text_tower")


def parts_of(tower: keras.Model) -> Mapping[str, list[keras.Layer]]:
    """Returns the layers of each part of a tower that can be frozen: encoder, pooling, head,
    log_variance.

    The last two are within the head; only Gaussian heads have a log-variance.
    """
    head = tower.get_layer("head")
    return {
        "encoder": [layer for layer in tower.layers if layer.name == "encoder"],
        "pooling": [layer for layer in all_layers(head) if isinstance(layer, Pooling)],
        "head": [head],
        "log_variance": head.log_variance_layers,
    }


def ignore_hubness(*towers: keras.Model) -> bool:
    """Turns CSLS of their poolings off: then a score says how well a pair matches, however many do.

    Returns:
        Whether it was on.
    """
    layers = [layer for tower in towers for layer in all_layers(tower)]
    scalings = [layer for layer in layers if isinstance(layer, LocalScaling)]
    was_on = any(float(scaling.weight) for scaling in scalings)
    for scaling in scalings:
        scaling.weight.assign(0.0)
    return was_on


def features_of(tower: keras.Model) -> keras.Model:
    """Returns the part of a tower before its head: to local features (B, L, F) and their mask
    (B, L).

    Without a mask, the features are its only output. It shares its layers with the tower.
    """
    return keras.Model(tower.input, tower.get_layer("head").input, name="features")


def stored_features_of(tower: keras.Model) -> keras.Model:
    """Returns `features_of` a tower without what depends on the captions of training."""
    if cheap_features_of(tower) is None:
        return features_of(tower)
    return keras.Model(tower.input, tower.get_layer("encoder").output, name="features")


def cheap_features_of(tower: keras.Model) -> keras.Model | None:
    """Returns what a tower appends to the features of its encoder: (B, 1, G); None for nothing."""
    bags = [layer for layer in tower.layers if isinstance(layer, BagOfWords)]
    if not bags:
        return None
    return keras.Model(tower.input, BAG_LENGTH * keras.ops.expand_dims(bags[0].output, 1))


def run_images(network: keras.Model, images: tf.Tensor, training: bool = False) -> Any:
    """Runs an encoder or a tower on a batch, within a graph, in the way that is fastest.

    On a processor the large activations of one image fill the cache, and of a batch they go
    through the main memory: docs/design.md has the times of EfficientNet. Such a network sees one
    image at a time, with as many of them side by side as there are cores.
    """
    if training:
        return network(images, training=True)
    return run_never_empty(partial(_run_images, network), images)


def _run_images(network: keras.Model, images: tf.Tensor) -> Any:
    if not _is_convolutional(network) or tf.config.list_logical_devices("GPU"):
        return network(images, training=False)
    whole = tf.function(
        lambda images: network(images, training=False), autograph=False
    ).get_concrete_function(tf.TensorSpec([None, *images.shape[1:]], images.dtype))
    sizes = [
        output.shape[1:].num_elements() or 0
        for operation in whole.graph.get_operations()
        if operation.type != "ReadVariableOp"
        for output in operation.outputs
        if output.shape.rank
    ]
    if max(sizes) < _CACHED:
        return whole(images)
    return tf.map_fn(
        lambda image: tf.nest.map_structure(
            lambda output: output[0], network(image[None], training=False)
        ),
        images,
        fn_output_signature=tf.nest.map_structure(
            lambda output: tf.TensorSpec(output.shape[1:], output.dtype), whole.structured_outputs
        ),
        parallel_iterations=os.cpu_count(),
    )


def run_never_empty(function: Callable[[tf.Tensor], Any], items: tf.Tensor) -> Any:
    """Runs a function on items, and on one of zeros, with its outputs cut off, if there are none.

    Convolutions of TensorFlow refuse a batch without items.
    """
    shape = tf.shape(items)
    missing = tf.cast(tf.equal(shape[0], 0), tf.int32)
    # Regions may be of any number, so that not all of the shape is known before.
    zeros = tf.zeros(tf.concat([[missing], shape[1:]], axis=0), items.dtype)
    outputs = function(tf.concat([items, zeros], axis=0))
    return tf.nest.map_structure(lambda output: output[: shape[0]], outputs)


_CACHED = 2**20
"""Values of an activation of one image that stay in the cache of a core."""


def _is_convolutional(network: keras.Model) -> bool:
    """Returns whether many layers of a network convolve images that are not small."""
    if len(network.input.shape) != 4 or math.prod(network.input.shape[1:3]) < 128 * 128:
        return False
    convolutions = (keras.layers.Conv2D, keras.layers.DepthwiseConv2D)
    return sum(isinstance(layer, convolutions) for layer in all_layers(network)) > 10


def tower_on_features(tower: keras.Model) -> keras.Model:
    """Returns the rest of a tower: local features (B, L, F), as `features_of` makes, to embeddings.

    Where L varies, positions of zeros are padding. It shares its head with the tower: one is
    trained with the other.
    """
    head = tower.get_layer("head")
    features = head.input[0] if isinstance(head.input, list) else head.input
    inputs = keras.Input(features.shape[1:], dtype="float32", name="features")
    return keras.Model(inputs, head(inputs, mask=region_mask(inputs)), name="tower_on_features")


def _tower(
    inputs: Tensor, options: TowerOptions, dimension: int, spec: InputSpec, name: str
) -> keras.Model:
    encoder = options.encoder.build()
    features, mask = encoder.features(inputs, spec)
    pooling = options.pooling and partial(options.pooling.build, dimension=dimension)
    head = options.head.build(dimension=dimension, pooling=pooling, name="head")
    return keras.Model(inputs, head(features, mask=mask), name=name)
