"""What the sigma of captions knows of how many images they are true of, and what moves it there.

For finished runs on the scenes, on validation: the rank correlation of sigma with the number of
images that a caption is true of, beside that of how few words the caption has, which takes no
model, the rank correlation of both, and how much sigma varies at all. Then what each loss does to
sigma where the training has ended: the rank correlation of its push (minus the gradient by log
sigma) with the same number. Losses of other configs can be held against the same embeddings.

    python benchmarks/sigma.py saved_models/scenes_pcme-seed1 saved_models/scenes_pcme_daa-seed1
    python benchmarks/sigma.py saved_models/scenes_pcme-seed1 --losses scenes_pcme_daa

With --watch a config is trained, and the same is told on the way. With --same-push its losses move
the log sigma of all items of a batch alike, by the mean of their gradients: what sigma then knows
of a caption it does not have from gradients of its own.

    python benchmarks/sigma.py --watch scenes_pcme_daa --every 100
    python benchmarks/sigma.py --watch scenes_pcme_daa --same-push
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

from data_pipelines.records import SplitRecords
from data_pipelines.text import Tokenizer
from keras_xmr.commands._steps import Run
from keras_xmr.config.loader import find_config, load_config
from keras_xmr.config.registry import build
from keras_xmr.config.schema import Config
from keras_xmr.embeddings.kinds import Embedding
from keras_xmr.evaluation.embed import embed_split
from keras_xmr.evaluation.evaluate import split_truth
from keras_xmr.evaluation.uncertainty.assessment import few_words, log_sigma, rank_correlation
from keras_xmr.losses import Loss
from keras_xmr.matchers import Matcher
from keras_xmr.matchers.base import Side
from keras_xmr.model.build import build_tokenizer
from keras_xmr.model.objective import relations
from keras_xmr.model.retriever import Retriever
from keras_xmr.relevance import relevance_matrix

BATCHES = 40
_LATE = 10**9  # after every warm-up
_SPLIT = "val"
_GAUSSIAN = "mean", "log_variance"


@dataclass(frozen=True)
class Captions:
    """The captions that sigma is measured on.

    Attributes:
        part: The split.
        true_of: How many images each caption is true of, int (captions,).
        tokenizer: Makes word ids of them.
    """

    part: SplitRecords
    true_of: np.ndarray
    tokenizer: Tokenizer

    @cached_property
    def relevance(self) -> np.ndarray:
        """By CIDEr, float32 (images, captions)."""
        part = self.part
        return relevance_matrix(part.texts, part.caption_image, len(part)).dense()

    @cached_property
    def few_words(self) -> np.ndarray:
        """Minus the number of words, float (captions,)."""
        return few_words(self.part.texts)


@dataclass(frozen=True)
class Sigma:
    """Properties of sigma.

    Attributes:
        correlation: Its rank correlation with the number of images that a caption is true of.
        with_words: Its rank correlation with how few words a caption has.
        mean: Mean log sigma.
        spread: Standard deviation of log sigma over the captions.
        pushes: For each loss, the rank correlation of its push with that number.
    """

    correlation: float
    with_words: float
    mean: float
    spread: float
    pushes: dict[str, float]


def captions_of(run: Run, tokenizer: Tokenizer) -> Captions:
    """The captions of the validation split of a run."""
    part = run.records.split(_SPLIT)
    true_of = np.asarray(split_truth(run.records, part).transpose().counts())
    return Captions(part, true_of, tokenizer)


def measure(
    model: Retriever, config: Config, captions: Captions, others: Sequence[Config] = ()
) -> Sigma:
    """Measures the properties of sigma, and the gradients of losses on it.

    Args:
        model: The model, at any step of its training.
        config: Its config.
        captions: What sigma is measured on.
        others: Configs whose losses are held against the same embeddings, too.
    """
    embedded = embed_split(model, captions.part, captions.tokenizer, config)
    sigma = log_sigma(embedded.captions)
    if sigma is None:
        raise SystemExit(f"{config.name} has no sigma")
    losses = model.objective.losses_
    pushes = dict(_pushes(embedded, captions, model.matcher, losses, config.train.batch_size))
    for other in others:
        matcher = build("matcher", other.model.matcher)
        losses = [build("loss", choice) for choice in other.objective]
        found = _pushes(embedded, captions, matcher, losses, config.train.batch_size)
        pushes |= {f"{other.name}: {name}": value for name, value in found}
    return Sigma(
        rank_correlation(sigma, captions.true_of),
        rank_correlation(sigma, captions.few_words),
        float(sigma.mean()),
        float(sigma.std()),
        pushes,
    )


def _pushes(
    embedded: Any, captions: Captions, matcher: Matcher, losses: Sequence[Loss], size: int
) -> Iterator[tuple[str, float]]:
    """The rank correlation of each loss's push of log sigma with what a caption is true of."""
    sides = [
        {name: np.asarray(values) for name, values in side.items() if name in _GAUSSIAN}
        for side in (embedded.images, embedded.captions)
    ]
    for loss in losses:
        pushed = np.zeros(len(captions.true_of))
        seen = np.zeros(len(captions.true_of), int)
        random = np.random.default_rng(0)
        for number in range(BATCHES):
            rows = random.permutation(len(captions.true_of))[:size]
            gradient = _gradient(sides, captions, matcher, loss, rows, number)
            if gradient is None:
                break
            pushed[rows] -= gradient
            seen[rows] += 1
        known = seen > 0
        if known.any():
            means = pushed[known] / seen[known]
            yield type(loss).__name__, rank_correlation(means, captions.true_of[known])


def _gradient(
    sides: Sequence[dict[str, np.ndarray]],
    captions: Captions,
    matcher: Matcher,
    loss: Loss,
    rows: np.ndarray,
    seed: int,
) -> np.ndarray | None:
    """The gradient of a loss by the log sigma of the captions of a batch."""
    images = captions.part.caption_image[rows]
    related = relations({"image_id": tf.constant(images)}, "pairs")
    related["relevance"] = tf.constant(captions.relevance[np.ix_(images, rows)])
    image = {name: tf.constant(values[images]) for name, values in sides[0].items()}
    caption = {name: tf.constant(values[rows]) for name, values in sides[1].items()}
    # Of its class: that of the matcher itself may push all items alike.
    prepare = partial(type(matcher).prepare, matcher)
    image = prepare(image, "image", tf.constant([seed, 1]))
    more = {"step": tf.constant(_LATE, tf.int64)} if loss.contract.reads_step else {}
    with tf.GradientTape() as tape:
        shift = tf.zeros([len(rows)])
        tape.watch(shift)
        moved = caption | {"log_variance": caption["log_variance"] + 2 * shift[:, None]}
        moved = prepare(moved, "caption", tf.constant([seed, 2]))
        parts = loss.parts(matcher(image, moved), image, moved, related, **more)
        value = sum(parts.values())
    gradient = tape.gradient(value, shift)
    return None if gradient is None else gradient.numpy()


class Watch(keras.callbacks.Callback):
    """Tells of sigma during a training.

    Args:
        run: The run.
        every: After how many steps.
        same_push: Whether the log sigma of all items of a batch has the same gradient.
    """

    def __init__(self, run: Run, every: int, same_push: bool = False) -> None:
        super().__init__()
        self._same_push = same_push
        self._config = run.config
        self._every = every
        self._captions = captions_of(run, build_tokenizer(run.config, run.records))

    def set_model(self, model: Retriever) -> None:
        """Takes the model, before its training step is traced."""
        super().set_model(model)
        if self._same_push:
            push_alike(model.matcher)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Measures after some of the steps."""
        del batch, logs
        step = int(self.model.global_step.numpy())
        if step % self._every == 0 or step == 1:
            found = measure(self.model, self._config, self._captions)
            print(_row(f"step {step}", found), flush=True)


def push_alike(matcher: Matcher) -> None:
    """Lets a matcher, and all losses after it, move the log variances of a batch alike."""
    prepare = matcher.prepare

    def alike(embedding: Embedding, side: Side, seed: Any = None) -> Embedding:
        if "log_variance" not in embedding:
            raise SystemExit("--same-push is for models with a sigma")
        own = embedding["log_variance"]
        mean = tf.reduce_mean(own, axis=0, keepdims=True)
        moved = tf.stop_gradient(own) + mean - tf.stop_gradient(mean)
        return prepare(embedding | {"log_variance": moved}, side, seed)

    matcher.prepare = alike


def _row(name: str, found: Sigma) -> str:
    pushes = ", ".join(f"{loss} {value:+.2f}" for loss, value in found.pushes.items())
    correlations = f"{found.correlation:+.2f} | {found.with_words:+.2f}"
    return f"| {name} | {correlations} | {found.mean:.2f} | {found.spread:.3f} | {pushes} |"


def _header(first: str) -> str:
    return (
        f"| {first} | with what is true | with few words | mean log sigma | spread | pushes |\n"
        "| --- | ---: | ---: | ---: | ---: | --- |"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a table in Markdown: a row a run, or a row for some steps of one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="*", type=Path, help="folders of finished runs")
    parser.add_argument("--losses", default="", help="further configs, with commas between")
    parser.add_argument("--watch", help="a config that is trained")
    parser.add_argument("--every", type=int, default=100, help="steps")
    parser.add_argument("--same-push", action="store_true")
    parser.add_argument("--set", action="append", default=[], help="as of main.py train")
    options = parser.parse_args(arguments)
    if options.watch and (options.runs or options.losses):
        parser.error("--watch has no place for finished runs and their losses")
    if options.same_push and not options.watch:
        parser.error("--same-push is for --watch, which trains")
    if options.watch:
        alike = "_same_push" if options.same_push else ""
        seed = load_config(find_config(options.watch), options.set).seed
        sets = [f"name={options.watch}_watched{alike}-seed{seed}", *options.set]
        run = Run(load_config(find_config(options.watch), sets))
        if not run.config.data.is_prepared:
            run.prepare()
        watch = Watch(run, options.every, options.same_push)
        print(_header("after"), flush=True)
        run.train([watch])
    else:
        print(_header("run"), flush=True)
    others = [load_config(find_config(name)) for name in options.losses.split(",") if name]
    for folder in options.runs:
        run = Run(load_config(folder / "config.yaml"))
        captions = captions_of(run, run.tokenizer)
        print(_row(folder.name, measure(run.model, run.config, captions, others)), flush=True)
        plain = rank_correlation(captions.few_words, captions.true_of)
        print(f"| how few words | {plain:+.2f} | | | | |", flush=True)


if __name__ == "__main__":
    main()
