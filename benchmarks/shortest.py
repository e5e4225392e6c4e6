"""Losses and a matcher, compared with the shortest code that anybody would write for the value.

A forward and a backward pass of 128 pairs of 512 numbers, by processor time, with one thread. Both
take turns, and the least time of each counts: other work on the machine only adds to it.

usage: python benchmarks/shortest.py tensorflow|torch|jax [eager|compiled] [smoke] [CASE ...]
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

if __name__ == "__main__":
    os.environ["KERAS_BACKEND"] = sys.argv[1]
    os.environ |= {"OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1"}
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import keras
import numpy as np
from measuring import Row

from keras_xmr import losses, matchers

Loss = Callable[[Any, Any], Any]
BACKEND = keras.backend.backend()
PAIRS, DIMENSION = 128, 512
MODES = ("eager", "compiled")
AT_LEAST = 1 / 1.1
"""The share of the speed of the shortest code that is the goal."""


def _of_torch() -> dict[str, Loss]:
    import torch
    from torch.nn import functional as f

    def cosines(x: Any, y: Any) -> Any:
        return f.normalize(x) @ f.normalize(y).T

    def info_nce(x: Any, y: Any) -> Any:
        logits, labels = cosines(x, y) / 0.07, torch.arange(len(x), device=x.device)
        return (f.cross_entropy(logits, labels) + f.cross_entropy(logits.T, labels)) / 2

    def triplet(x: Any, y: Any) -> Any:
        scores = cosines(x, y)
        own, others = (
            scores.diag(),
            scores.masked_fill(torch.eye(len(x), dtype=torch.bool, device=x.device), -9.0),
        )
        return sum(f.relu(0.2 + others.amax(axis) - own).sum() for axis in (0, 1))

    def soft_contrastive(x: Any, y: Any) -> Any:
        logits = 30.0 - 30.0 * torch.cdist(x, y)
        return -2.0 * f.logsigmoid((2.0 * torch.eye(len(x), device=x.device) - 1.0) * logits).sum()

    def smooth_ap(x: Any, y: Any) -> Any:
        scores, total = cosines(x, y), 0.0
        for rows in (scores, scores.T):
            above = torch.sigmoid((rows - rows.diag()[:, None]) / 0.01)
            total = total + 0.5 * (1.0 - 1.0 / (0.5 + above.sum(1))).mean()
        return total

    return {
        "InfoNCE": info_nce,
        "hardest triplet": triplet,
        "cosines": lambda x, y: cosines(x, y).sum(),
        "soft contrastive": soft_contrastive,
        "Smooth-AP": smooth_ap,
    }


def _of_jax() -> dict[str, Loss]:
    import jax
    from jax import numpy as jnp

    def cosines(x: Any, y: Any) -> Any:
        return (x / jnp.linalg.norm(x, axis=1, keepdims=True)) @ (
            y / jnp.linalg.norm(y, axis=1, keepdims=True)
        ).T

    def info_nce(x: Any, y: Any) -> Any:
        logits = cosines(x, y) / 0.07
        return -0.5 * sum(jnp.diag(jax.nn.log_softmax(logits, axis)).mean() for axis in (0, 1))

    def triplet(x: Any, y: Any) -> Any:
        scores = cosines(x, y)
        own, others = jnp.diag(scores), jnp.where(jnp.eye(len(x), dtype=bool), -9.0, scores)
        return sum(jax.nn.relu(0.2 + others.max(axis) - own).sum() for axis in (0, 1))

    def soft_contrastive(x: Any, y: Any) -> Any:
        squares = (x * x).sum(1)[:, None] + (y * y).sum(1) - 2.0 * x @ y.T
        logits = 30.0 - 30.0 * jnp.sqrt(squares + 1e-6)
        return -2.0 * jax.nn.log_sigmoid((2.0 * jnp.eye(len(x)) - 1.0) * logits).sum()

    def smooth_ap(x: Any, y: Any) -> Any:
        scores, total = cosines(x, y), 0.0
        for rows in (scores, scores.T):
            above = jax.nn.sigmoid((rows - jnp.diag(rows)[:, None]) / 0.01)
            total = total + 0.5 * (1.0 - 1.0 / (0.5 + above.sum(1))).mean()
        return total

    return {
        "InfoNCE": info_nce,
        "hardest triplet": triplet,
        "cosines": lambda x, y: cosines(x, y).sum(),
        "soft contrastive": soft_contrastive,
        "Smooth-AP": smooth_ap,
    }


def _of_tensorflow() -> dict[str, Loss]:
    import tensorflow as tf

    def cosines(x: Any, y: Any) -> Any:
        return tf.matmul(tf.nn.l2_normalize(x, 1), tf.nn.l2_normalize(y, 1), transpose_b=True)

    def info_nce(x: Any, y: Any) -> Any:
        logits, labels = cosines(x, y) / 0.07, tf.range(x.shape[0])
        entropy = tf.nn.sparse_softmax_cross_entropy_with_logits
        both = (entropy(labels, one) for one in (logits, tf.transpose(logits)))
        return 0.5 * sum(tf.reduce_mean(one) for one in both)

    def triplet(x: Any, y: Any) -> Any:
        scores = cosines(x, y)
        own = tf.linalg.diag_part(scores)
        others = tf.linalg.set_diag(scores, tf.fill(own.shape, -9.0))
        return sum(
            tf.reduce_sum(tf.nn.relu(0.2 + tf.reduce_max(others, axis) - own)) for axis in (0, 1)
        )

    def soft_contrastive(x: Any, y: Any) -> Any:
        squares = tf.reduce_sum(x * x, 1)[:, None] + tf.reduce_sum(y * y, 1)
        squares = squares - 2.0 * tf.matmul(x, y, transpose_b=True)
        logits = 30.0 - 30.0 * tf.sqrt(squares + 1e-6)
        signs = 2.0 * tf.eye(x.shape[0]) - 1.0
        return -2.0 * tf.reduce_sum(tf.math.log_sigmoid(signs * logits))

    def smooth_ap(x: Any, y: Any) -> Any:
        scores, total = cosines(x, y), 0.0
        for rows in (scores, tf.transpose(scores)):
            above = tf.sigmoid((rows - tf.linalg.diag_part(rows)[:, None]) / 0.01)
            ranks = 0.5 + tf.reduce_sum(above, 1)
            total = total + 0.5 * tf.reduce_mean(1.0 - 1.0 / ranks)
        return total

    return {
        "InfoNCE": info_nce,
        "hardest triplet": triplet,
        "cosines": lambda x, y: tf.reduce_sum(cosines(x, y)),
        "soft contrastive": soft_contrastive,
        "Smooth-AP": smooth_ap,
    }


SHORTEST = {"torch": _of_torch, "jax": _of_jax, "tensorflow": _of_tensorflow}


def ours() -> dict[str, Loss]:
    """Returns the parts of this project by the names of the shortest code."""
    cosine, mean_only = matchers.Cosine(), matchers.MeanOnly()
    soft = losses.SoftContrastive()
    return {
        "InfoNCE": losses.InfoNCE(),
        "hardest triplet": losses.Triplet(),
        "cosines": lambda x, y: keras.ops.sum(cosine(x, y)),
        "soft contrastive": lambda x, y: soft(x, y, matcher=mean_only),
        "Smooth-AP": losses.SmoothAP(),
    }


def inputs(pairs: int = PAIRS, dimension: int = DIMENSION) -> list[Any]:
    """Returns points of images and captions on the unit sphere."""
    points = np.random.default_rng(0).normal(size=(2, pairs, dimension))
    points /= np.linalg.norm(points, axis=-1, keepdims=True)
    return [keras.ops.convert_to_tensor(side, "float32") for side in points]


def passes(loss: Loss, sides: list[Any], compiled: bool) -> Callable[[], Any]:
    """Returns a forward and backward pass, which has been done once."""
    if BACKEND == "torch":
        import torch

        sides = [side.requires_grad_() for side in sides]
        loss = torch.compile(loss, fullgraph=True) if compiled else loss

        def step() -> Any:
            return torch.autograd.grad(loss(*sides), sides)

    elif BACKEND == "jax":
        import jax

        gradient = jax.value_and_grad(loss, argnums=(0, 1))
        gradient = jax.jit(gradient) if compiled else gradient

        def step() -> Any:
            return jax.block_until_ready(gradient(*sides))

    else:
        import tensorflow as tf

        def gradient_of(*sides: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(sides)
                value = loss(*sides)
            return tape.gradient(value, sides)

        function = tf.function(gradient_of) if compiled else gradient_of

        def step() -> Any:
            return [one.numpy() for one in function(*sides)]

    step()
    return step


def rows(smoke: bool = False) -> Iterator[Row]:
    """Yields a row per backend, mode and case; each backend has a process of its own."""
    backends = ["tensorflow"] if smoke else list(SHORTEST)
    for backend in backends:
        command = [sys.executable, __file__, backend, *(["eager", "smoke", "InfoNCE"] * smoke)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        for line in done.stdout.splitlines()[1:]:
            _, mode, case, shortest, found, _ = line.split(",")
            size = f"B {PAIRS}, D {DIMENSION}; {backend}, {mode}"
            baseline, seconds = float(shortest) / 1e3, float(found) / 1e3
            against = "the shortest code, processor time"
            yield Row(case, size, seconds, baseline, against, at_least=AT_LEAST)


def least_times(works: list[Callable[[], Any]], seconds: float = 6.0) -> list[float]:
    """Measures works in turns; returns the least processor time of each."""
    least, end = [float("inf")] * len(works), time.monotonic() + seconds
    while time.monotonic() < end:
        for number, work in enumerate(works):
            start = time.process_time()
            for _ in range(5):
                work()
            least[number] = min(least[number], (time.process_time() - start) / 5)
    return least


def main() -> None:
    """Prints the times of all cases."""
    modes = [mode for mode in MODES if mode in sys.argv[2:]] or list(MODES)
    seconds = 0.1 if "smoke" in sys.argv[2:] else 6.0
    if BACKEND == "torch":
        import torch

        torch.set_num_threads(1)
    names = [name for name in SHORTEST[BACKEND]() if name in sys.argv[2:]] or SHORTEST[BACKEND]()
    print("backend,mode,case,shortest_ms,ours_ms,ratio")
    for mode in modes:
        for name in names:
            both = SHORTEST[BACKEND]()[name], ours()[name]
            shortest, found = least_times(
                [passes(one, inputs(), mode == "compiled") for one in both], seconds
            )
            row = f"{1e3 * shortest:.2f},{1e3 * found:.2f},{found / shortest:.2f}"
            print(f"{BACKEND},{mode},{name},{row}", flush=True)


if __name__ == "__main__":
    main()
