"""Time and peak memory of one forward and backward pass of the losses of Gaussian embeddings.

Each stands beside the straightforward expansion of its formula, at a size at which that fits into
memory, and alone at the size that it is trained with. Every figure is of a process of its own;
memory is what the pass adds to the most that the process had before it. Beside the time on the
clock stands the time of all processors, which tells more where others use the machine too.

usage: python benchmarks/losses.py [CASE ...]
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

REPEATS = 5
PAPERS = (128, 7, 1024)
SMALL = (32, 7, 512)

CASES: dict[str, list[tuple[str, tuple[int, int, int]]]] = {
    "soft_contrastive": [("ours", PAPERS), ("ours", SMALL), ("expanded", SMALL)],
    "daa": [("ours", PAPERS), ("ours", SMALL), ("expanded", SMALL)],
    "msrm": [("ours", PAPERS), ("expanded", PAPERS)],
    "probabilistic_matching": [("ours", PAPERS), ("expanded", PAPERS)],
}
"""For each loss: what is measured, at which batch, samples an item, and dimension."""


def main(names: list[str]) -> None:
    print(
        f"{'loss':<24}{'how':<10}{'B':>5}{'J':>4}{'D':>6}{'ms':>10}{'CPU ms':>10}{'MB':>9}   value"
    )
    for name in names or CASES:
        for how, size in CASES[name]:
            arguments = [sys.executable, __file__, "--measure", name, how, *map(str, size)]
            output = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout
            found = json.loads(output.splitlines()[-1])
            batch, samples, dimension = size
            row = f"{name:<24}{how:<10}{batch:>5}{samples:>4}{dimension:>6}"
            row += f"{found['ms']:>10.1f}{found['cpu_ms']:>10.1f}{found['mb']:>9.0f}"
            print(f"{row}   {found['value']:.6g}", flush=True)


def measure(name: str, how: str, batch: int, samples: int, dimension: int) -> dict[str, float]:
    """The least milliseconds, the megabytes, and the value of a loss."""
    import tensorflow as tf

    loss = globals()[f"{name}_{how}"]()
    inputs = [tf.Variable(x) for x in _gaussians(batch, samples, dimension)]

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            value = loss(*inputs)
        return value, tape.gradient(value, inputs, unconnected_gradients="zero")

    step.get_concrete_function()
    tf.linalg.matmul(tf.ones((64, 64)), tf.ones((64, 64)))
    before = _peak()
    value, _ = step()
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter(), time.process_time()
        _, gradients = step()
        gradients[0].numpy()
        times.append((time.perf_counter() - begin[0], time.process_time() - begin[1]))
    wall, processors = (1e3 * min(column) for column in zip(*times, strict=True))
    return {"ms": wall, "cpu_ms": processors, "mb": _peak() - before, "value": float(value)}


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _gaussians(batch: int, samples: int, dimension: int) -> list[Any]:
    """Means, log-variances and samples of images, and of captions near them."""
    import numpy as np

    random = np.random.default_rng(0)
    found = []
    common = random.normal(size=(batch, dimension))
    for _ in range(2):
        mean = common + random.normal(size=(batch, dimension))
        mean /= np.linalg.norm(mean, axis=1, keepdims=True)
        log_variance = random.normal(loc=-7, scale=0.1, size=(batch, dimension))
        noise = random.normal(size=(batch, samples, dimension))
        drawn = mean[:, None] + np.exp(0.5 * log_variance)[:, None] * noise
        found += [x.astype(np.float32) for x in (mean, log_variance, drawn)]
    return found


def _ours(matcher: Any, losses: list[Any]) -> Callable[..., Any]:
    import tensorflow as tf

    def value(*inputs: Any) -> Any:
        image, caption = (
            dict(zip(("mean", "log_variance", "samples"), inputs[i : i + 3], strict=True))
            for i in (0, 3)
        )
        batch = inputs[0].shape[0]
        relations = {"positives": tf.eye(batch, dtype=tf.bool), "relevance": _relevance(batch)}
        scores = None if matcher is None else matcher(image, caption)
        return sum(sum(loss(scores, image, caption, relations).values()) for loss in losses)

    return value


def _relevance(batch: int) -> Any:
    """Some relevance, mostly 0, as it is between captions."""
    import tensorflow as tf

    random = tf.random.stateless_uniform((batch, batch), (0, 0))
    return tf.eye(batch) + tf.nn.relu(random - 0.8)


def soft_contrastive_ours() -> Callable[..., Any]:
    from keras_xmr.losses import SoftContrastive
    from keras_xmr.matchers import MatchProbability

    return _ours(MatchProbability(), [SoftContrastive()])


def soft_contrastive_expanded() -> Callable[..., Any]:
    """Chun et al. 2021, Eq. 1 to 3, with all differences (B, B, J, J, D) at once."""
    import tensorflow as tf

    def value(*inputs: Any) -> Any:
        image, caption = inputs[2], inputs[5]
        apart = image[:, None, :, None] - caption[None, :, None]
        logits = 30.0 - 30.0 * tf.sqrt(tf.reduce_sum(apart**2, -1) + 1e-6)
        match = tf.reduce_logsumexp(tf.math.log_sigmoid(logits), (2, 3))
        scores = match - tf.reduce_logsumexp(tf.math.log_sigmoid(-logits), (2, 3))
        positives = tf.eye(image.shape[0], dtype=tf.bool)
        return 2 * tf.reduce_sum(tf.nn.softplus(tf.where(positives, -scores, scores)))

    return value


def daa_ours() -> Callable[..., Any]:
    from keras_xmr.losses import DAA

    return _ours(None, [DAA()])


def daa_expanded() -> Callable[..., Any]:
    """Li et al. 2022, Eq. 10 to 12, with all comparisons (B J, B J, B J) at once."""
    import tensorflow as tf

    def ranks(values: Any) -> Any:
        compared = tf.sigmoid((values[:, None, :] - values[:, :, None]) / 0.01)
        return 0.5 + tf.reduce_sum(compared, -1)

    def value(*inputs: Any) -> Any:
        batch, samples, dimension = inputs[2].shape
        left, right = (
            tf.math.l2_normalize(tf.reshape(x, (-1, dimension)), 1) for x in (inputs[2], inputs[5])
        )
        scores = tf.matmul(left, right, transpose_b=True)
        relevance = tf.repeat(tf.repeat(_relevance(batch), samples, 0), samples, 1)
        total = 0.0
        for s, c in ((scores, relevance), (tf.transpose(scores), tf.transpose(relevance))):
            mine, right_ones = ranks(s), ranks(c)
            ratio = tf.minimum(mine, right_ones) / tf.maximum(mine, right_ones)
            total += 1 - tf.reduce_mean(ratio)
        return total

    return value


def msrm_ours() -> Callable[..., Any]:
    from keras_xmr.losses import HypergraphContrastive, MahalanobisContrastive

    relation = HypergraphContrastive()
    relation.build(None, {"mean": (None, PAPERS[2])}, {"mean": (None, PAPERS[2])})
    return _ours(None, [MahalanobisContrastive(temperature=0.01), relation])


def msrm_expanded() -> Callable[..., Any]:
    """Wang et al. 2023, Eq. 4 to 11, with all differences (B, B, D) and the matrices of HGNN."""
    import tensorflow as tf

    thetas = [tf.Variable(tf.eye(PAPERS[2])) for _ in range(4)]

    def loss(logits: Any) -> Any:
        p = tf.nn.softmax(logits, 1)
        positives = tf.eye(logits.shape[0], dtype=tf.bool)
        return -tf.reduce_mean(tf.math.log(tf.where(positives, p, 1 - p + 1e-12) + 1e-12))

    def one_way(mean: Any, log_variance: Any, nodes: Any, layers: list[Any]) -> Any:
        apart = nodes[None] - mean[:, None]
        distance = tf.reduce_sum(apart**2 / tf.exp(log_variance)[:, None], -1)
        positives = tf.eye(mean.shape[0], dtype=tf.bool)
        incidence = tf.transpose(tf.where(positives, 1.0, tf.exp(-2.0 * distance)))
        root = tf.linalg.diag(tf.reduce_sum(incidence, 1) ** -0.5)
        edges = tf.linalg.diag(1 / tf.reduce_sum(incidence, 0))
        graph = root @ incidence @ edges @ tf.transpose(incidence) @ root
        for theta in layers:
            nodes = tf.sigmoid(graph @ nodes @ theta)
        cosine = tf.matmul(
            tf.math.l2_normalize(mean, 1), tf.math.l2_normalize(nodes, 1), transpose_b=True
        )
        return loss(-0.01 * distance) + loss(5.0 * cosine)

    def value(*inputs: Any) -> Any:
        there = one_way(inputs[0], inputs[1], inputs[3], thetas[:2])
        return there + one_way(inputs[3], inputs[4], inputs[0], thetas[2:])

    return value


def probabilistic_matching_ours() -> Callable[..., Any]:
    from keras_xmr.losses import ProbabilisticMatching
    from keras_xmr.matchers import ClosedFormSampled

    return _ours(ClosedFormSampled(), [ProbabilisticMatching()])


def probabilistic_matching_expanded() -> Callable[..., Any]:
    """Chun 2024, Eq. 1 to 3, with all differences (B, B, D) at once."""
    import tensorflow as tf

    def value(*inputs: Any) -> Any:
        mean, log_variance, _, other, other_log_variance, _ = inputs
        apart = tf.reduce_sum((mean[:, None] - other[None]) ** 2, -1)
        spread = tf.exp(log_variance)[:, None] + tf.exp(other_log_variance)[None]
        logits = 5.0 - 5.0 * (apart + tf.reduce_sum(spread, -1))
        targets = tf.eye(mean.shape[0])
        own = tf.linalg.diag_part(logits)

        def entropy(labels: Any) -> Any:
            return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels, logits))

        pseudo = [
            tf.maximum(targets, tf.cast(logits >= rank, tf.float32))
            for rank in (own[:, None], own[None])
        ]
        return 2 * entropy(targets) + 0.1 * sum(entropy(labels) for labels in pseudo)

    return value


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(*sys.argv[2:4], *map(int, sys.argv[4:]))))
    else:
        main(sys.argv[1:])
