"""Gradient caching: one step of a large batch, in chunks, compared with the whole batch at once.

Each is measured in a separate process, as TensorFlow does not return memory. The last row is a
plain step of one chunk: in addition to its memory, a large batch should only take that of its
inputs, embeddings and scores.

usage: python benchmarks/gradient_caching.py
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from measuring import Peak, Row, show

CHUNK, BATCH, PIXELS = 128, 4096, 32
LAYERS, CHANNELS = 6, 8


def rows(smoke: bool = False) -> Iterator[Row]:
    """A step in chunks, and a plain step of one."""
    measure = measured if smoke else _in_a_process
    chunk, batch, pixels = (2, 5, 4) if smoke else (CHUNK, BATCH, PIXELS)
    (ours, memory), (plain, plain_memory) = (measure(batch, pixels, size) for size in (chunk, None))
    yield Row(
        "a step with gradient caching",
        f"B {batch}, chunks of {chunk}",
        *(ours, plain, "the whole batch at once", memory, plain_memory),
    )
    seconds, memory = measure(chunk, pixels, None)
    yield Row("a plain step", f"B {chunk}", seconds, memory=memory)


def _in_a_process(*options: Any) -> tuple[float, int]:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(measured, *options).result()


def measured(batch: int, pixels: int, chunk: int | None) -> tuple[float, int]:
    """Seconds of a step, and the bytes that the first one takes beyond what is there."""
    run = step(batch, pixels, chunk)
    with Peak() as first:
        run()
    with Peak() as second:
        run()
    return second.seconds, first.bytes


def step(batch: int, pixels: int, chunk: int | None) -> Callable[[], float]:
    """A step of a small convolutional network and of word vectors, compiled."""
    import keras
    import numpy as np
    import tensorflow as tf

    from keras_xmr.losses import NTXent
    from keras_xmr.matchers import Cosine
    from keras_xmr.model.retriever import Retriever

    layers, image = keras.layers, keras.Input((pixels, pixels, 3), dtype="uint8", name="image")
    caption = keras.Input((8,), dtype="int32", name="caption")
    x = layers.Rescaling(1 / 255)(image)
    for _ in range(LAYERS):
        x = layers.Conv2D(CHANNELS, 1, activation="relu")(x)
    image_tower = keras.Model(image, layers.Dense(256)(layers.GlobalAveragePooling2D()(x)))
    words = layers.GlobalAveragePooling1D()(layers.Embedding(1000, 256)(caption))
    model = Retriever(
        image_tower,
        keras.Model(caption, layers.Dense(256)(words)),
        Cosine(),
        NTXent(),
        gradient_caching=chunk,
    )
    model.compile(keras.optimizers.SGD(1e-3))
    random = np.random.default_rng(0)
    data = {
        "image": tf.constant(random.integers(0, 256, (batch, pixels, pixels, 3), np.uint8)),
        "caption": tf.constant(random.integers(0, 1000, (batch, 8), np.int32)),
    }
    model.optimizer.build(model.trainable_variables)
    run: Any = tf.function(lambda: model.train_step((data, tf.range(batch)))["loss"])
    return lambda: float(run())


if __name__ == "__main__":
    show(rows())
