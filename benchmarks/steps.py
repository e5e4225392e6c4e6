"""Training steps at the papers' sizes: where time goes, compared with their matrix products.

Each method has its published config, on random features that replace the output of the frozen
encoders of photos. A step is forward, backward, clipping and the optimizer. The bound is the time
of its matrix products, at the speed of one large product in the same run.

usage: python benchmarks/steps.py [METHOD ...]
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from measuring import Row, by_products, compare, show

AT_MOST = 1.5
"""How many times its own matrix products a step may take."""


@dataclass(frozen=True)
class Sizes:
    """The sizes of a step.

    Attributes:
        batch: Pairs of a batch.
        regions: Local features of an image.
        width: Their width.
        dimension: D.
        lengths: Words of each caption, the longest first.
        words: Of the vocabulary.
        word: Width of a word vector.
        similarity: Width of a similarity vector, of SAF and SGR.
        samples: Of an item, of PCME.
        scored: Images and captions that are scored.
        scored_lengths: Words of those captions.
    """

    batch: int = 128
    regions: int = 36
    width: int = 2048
    dimension: int = 1024
    lengths: tuple[int, ...] = ()
    words: int = 10_000
    word: int = 300
    similarity: int = 256
    samples: int = 7
    scored: tuple[int, int] = (1000, 5000)
    scored_lengths: tuple[int, ...] = ()


def with_captions(sizes: Sizes) -> Sizes:
    """The same, with lengths of captions: 14 words on average, as on COCO with both ends."""
    import numpy as np

    def lengths(count: int) -> tuple[int, ...]:
        found = np.random.default_rng(0).normal(14, 2.5, count).round().clip(8, 24)
        return tuple(sorted(found.astype(int).tolist(), reverse=True))

    return replace(sizes, lengths=lengths(sizes.batch), scored_lengths=lengths(sizes.scored[1]))


@dataclass(frozen=True)
class Method:
    """A method as it is published.

    Attributes:
        config: Its config.
        changes: Of the config: the encoder of photos is replaced by its features, and so is what
            the released program has in another way.
        sizes: Of a step.
        why: Why a step takes longer than its goal.
    """

    config: str
    changes: tuple[str, ...] = ()
    sizes: Sizes = Sizes()
    why: str = ""


_REGIONS = "model.image.encoder=regions"
_WORDS = "model.text.encoder={{name: word_embedding, dimension: {word}}}"
_PAIRS = Sizes(batch=32, scored=(100, 40))
_GRID = Sizes(regions=49)
_MATCHER = (
    "Four fifths are the matcher, at a third of the speed of its products: the similarity vectors "
    "of each word with each image, and their gradients, are passes over memory."
)

METHODS = {
    "SAF": Method("coco_saf", sizes=_PAIRS, why=_MATCHER),
    "SGR": Method("coco_sgr", sizes=_PAIRS, why=_MATCHER),
    # Its features are one vector of an image.
    "VSE++": Method(
        "coco_vsepp",
        (_REGIONS,),
        Sizes(regions=1),
        "The GRU is four fifths of it. Products of one position of 128 captions run at 0.65 to "
        "0.75 of the speed of a large one, and its gates are passes over memory.",
    ),
    "PCME": Method(
        "coco_pcme",
        (_REGIONS, _WORDS, "train.optimizer=adam"),
        replace(_GRID, batch=32, scored=(2, 5000)),
        "The text tower, a GRU of 32 captions, runs at 0.39 of the speed of its products, the "
        "image tower at 0.80; an eighth is clipping and the optimizer.",
    ),
}
_SMALL = Sizes(4, 4, 8, 8, (), 20, 4, 8, 2, (2, 10))


def sizes_of(name: str, smoke: bool) -> Sizes:
    """The sizes of a method."""
    sizes = METHODS[name].sizes if name in METHODS else Sizes()
    if smoke:
        sizes = replace(_SMALL, regions=min(sizes.regions, _SMALL.regions))
    return with_captions(sizes)


def told(sizes: Sizes) -> str:
    """The sizes, for the table."""
    features = f"{sizes.regions} features" if sizes.regions > 1 else "one feature"
    return f"B {sizes.batch}, {features} of {sizes.width:,}, D {sizes.dimension:,}"


def rows(smoke: bool = False, names: list[str] | None = None) -> Iterator[Row]:
    """A step of each method."""
    for name in names or (["SAF"] if smoke else METHODS):
        step = Step(name, sizes_of(name, smoke))
        bound = by_products(step.operations())
        yield replace(
            compare(f"{name}, a step", told(step.sizes), step.train, **bound, repeats=5),
            **{"at_most": AT_MOST, "why": METHODS[name].why},
        )


class Step:
    """A model of a method, and a batch for it.

    Args:
        name: The method.
        sizes: Of the batch.
    """

    def __init__(self, name: str, sizes: Sizes) -> None:
        import keras
        import numpy as np
        import tensorflow as tf

        from data_pipelines.text import WordTokenizer
        from keras_xmr.experiments.build import build_model
        from keras_xmr.experiments.config.loader import load_config
        from keras_xmr.experiments.config.packaged_configs import find_config
        from keras_xmr.parts.registry import components

        method, self.sizes = METHODS[name], sizes
        given = {"word": sizes.word, "dimension": sizes.dimension}
        changes = [
            "data.source={name: regions, root: features}",
            "train.precision=float32",
            f"model.dimension={sizes.dimension}",
            *(change.format(**given) for change in method.changes),
        ]
        if name in ("SAF", "SGR"):
            changes.append(f"model.matcher.similarity_dimension={sizes.similarity}")
        config = load_config(find_config(method.config), changes)
        keras.utils.set_random_seed(0)
        records: Any = SimpleNamespace(holds="regions", region_shape=(sizes.regions, sizes.width))
        tokenizer = WordTokenizer([f"word{n}" for n in range(sizes.words)], 64)
        self.model = build_model(config, records, tokenizer, pretrained=False)
        optimizer = config.train.optimizer
        self.model.compile(
            components("optimizer")[optimizer.name](learning_rate=1e-6, **optimizer.options())
        )
        self.model.optimizer.build(self.model.trainable_variables)
        random = np.random.default_rng(0)
        ids = random.integers(1, sizes.words, (sizes.batch, max(sizes.lengths)))
        ids[np.arange(ids.shape[1]) >= np.array(sizes.lengths)[:, None]] = 0
        images = random.random((sizes.batch, sizes.regions, sizes.width), np.float32)
        self.x = {"image": tf.constant(images), "caption": tf.constant(ids.astype(np.int32))}
        self.y = {"image_id": tf.range(sizes.batch), "caption_id": tf.range(sizes.batch)}
        self._step = tf.function(
            lambda: self.model.train_step((self.x, self.y))["loss"], autograph=False
        )

    def train(self) -> None:
        """A whole step."""
        self._step().numpy()

    def operations(self) -> float:
        """Operations of the matrix products of a step."""
        return products(lambda: self.model.train_step((self.x, self.y)))


def products(work: Callable[[], Any]) -> float:
    """Operations of the matrix products of some work, which is done once, without a graph."""
    import tensorflow as tf
    from tensorflow.python.framework import op_callbacks

    counted = 0.0

    def count(op: Any, inputs: Any, attributes: Any, outputs: Any, *more: Any) -> None:
        nonlocal counted
        name = op.decode() if isinstance(op, bytes) else op
        if name not in ("MatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum"):
            return
        given = dict(zip(attributes[::2], attributes[1::2], strict=True))
        if name == "Einsum":
            counted += _of_einsum(given["equation"], inputs)
            return
        turned = given["transpose_a" if name == "MatMul" else "adj_x"]
        across = inputs[0].shape[-2 if turned else -1]
        counted += 2.0 * across * math.prod(outputs[0].shape)

    eager = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    op_callbacks.add_op_callback(count)
    try:
        work()
    finally:
        op_callbacks.remove_op_callback(count)
        tf.config.run_functions_eagerly(eager)
    return counted


def _of_einsum(equation: bytes | str, inputs: Any) -> float:
    text = equation.decode() if isinstance(equation, bytes) else equation
    sizes: dict[str, int] = {}
    for letters, tensor in zip(text.split("->")[0].split(","), inputs, strict=True):
        sizes |= dict(zip(letters, tensor.shape, strict=True))
    return 2.0 * math.prod(sizes.values())


if __name__ == "__main__":
    show(rows(names=sys.argv[1:]))
