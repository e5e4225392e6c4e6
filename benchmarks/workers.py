"""Pairs per second of two workers with one thread each, compared with one process with two.

A config on the scenes is trained for an epoch. The rate is that of the second half of its log, so
it includes neither starting nor tracing. Two workers communicate over a connection of this machine.
The bound is the sum of unavoidable work: a step of two simultaneous independent processes, with one
thread and half of the batch each, which compute as much except for the other half of the loss, and
the rounds over the network of a step, one of them with as many numbers as the model has weights,
with nothing between them. Two workers also send their gradients in half precision, and once for the
gradients of two batches, a change of the training that is not an option of the product. Two
machines as fast as this one each take half of the time of one for a step, and then wait for the
network: they pay where a step of one takes longer than twice the rounds.

    python benchmarks/workers.py [--config scenes_pcme] [--set KEY=VALUE]
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
from measuring import ROOT, Row, show

from keras_xmr.config.loader import find_config, load_config

LARGE = (
    *("model.dimension=1024", "train.batch_size=384", "train.operation_threads=null"),
    "model.image.encoder={name: small_cnn, channels: [64, 128, 256]}",
    *("data.source={name: scenes, train: 770, val: 8, test: 8}", "data.image.cutout=0"),
)
"""A model whose step takes more than a second, so that the rounds of a step are short beside it."""

ROUNDS = 10
"""How often workers that train `scenes_pcme` wait for each other in a step."""


SENT = {
    "half": "gradients in half precision",
    "together": "gradients of two batches together",
}
"""Other ways to send gradients: their names and what they are."""


def rows(
    smoke: bool = False, config: str = "scenes_pcme", sets: Sequence[str] = ()
) -> Iterator[Row]:
    """Two workers beside one process, also with a model of a real size, and as `SENT` has it."""
    first, *others = _rows(smoke, config, sets)
    yield first
    if smoke or sets:
        yield from others
        return
    first, *others = _rows(False, config, LARGE, "of a real size, ")
    why = (
        "On one machine the workers share the memory and its bandwidth, each has half of the loss "
        "of all pairs, of which the bound has a quarter, and both update every weight."
    )
    yield replace(first, at_least=0.9, why=why)
    yield from others


def _rows(smoke: bool, config: str, sets: Sequence[str], size: str = "") -> Iterator[Row]:
    tiny = ["data.source={name: scenes, train: 96, val: 8, test: 8}"] if smoke else []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        own = [f"data.records={root / 'records'}", f"output={root}", *tiny, *sets]
        _run([_command("prepare", config, own)], [{}])
        own += ["train.validate_every=100", "train.checkpoint_steps=0", "train.log_steps=2"]
        own += ["train.phases.0.epochs=1", "train.devices=1"]
        one = _rate(root, config, ["one"], own, [_threads(2)])
        two = _rate(root, config, ["two"] * 2, own, _two_workers())
        batch = load_config(find_config(config), list(sets)).train.batch_size
        half = [*own, f"train.batch_size={batch // 2}"]
        apart = _rate(root, config, ["apart0", "apart1"], half, [_threads(1)] * 2)
        weights = (root / "one" / "last.weights.h5").stat().st_size // np.float32().nbytes
        steps = 3 if smoke else 50
        network = _network(weights, steps)
        size = f"{size}B {batch}, one thread each"
        yield Row(
            f"a pair of {config}, two workers",
            size,
            1 / two,
            1 / one,
            "one process with two threads",
            bound=1 / (2 * apart) + network / batch,
            bound_by="two processes with half of the batch each, and the network with nothing "
            "between",
        )
        if not sets:
            return
        yield Row("step of one machine from which two pay", f"{weights:,} weights", 2 * network)
        for way, told in SENT.items():
            own += [f"train.batch_size={2 * batch}"] if way == "together" else []
            rate = _rate(root, config, [way] * 2, own, _two_workers(), way)
            plain = "two workers, gradients in single precision, batch by batch"
            yield Row(f"the same, {told}", size, 1 / rate, 1 / two, plain)
            rounds = _network(weights, steps, way)
            yield Row(
                f"step of one machine from which two pay, {told}",
                f"{weights:,} weights",
                *(2 * rounds, 2 * network, plain),
            )


def _two_workers() -> list[dict[str, str]]:
    """The environments of two workers, on ports that are free now."""
    return [{**_threads(1), "TF_CONFIG": worker} for worker in _cluster()]


def _rate(
    root: Path,
    config: str,
    names: list[str],
    own: list[str],
    environments: list[dict[str, str]],
    way: str = "",
) -> float:
    """Pairs a second in the second half of the log of the first of some processes."""
    commands = [_command("train", config, [*own, f"name={name}"], way) for name in names]
    _run(commands, environments)
    return _logged(root / names[0] / "logs")


def _network(weights: int, steps: int, way: str = "") -> float:
    """Seconds that the rounds of a batch take two workers that do nothing else."""
    command = [sys.executable, __file__, f"--network={weights}", f"--steps={steps}"]
    command += [f"--way={way}"]
    return float(_run([command] * 2, _two_workers())[0].splitlines()[-1])


def network(weights: int, steps: int, way: str) -> float:
    """The same, for one of the workers."""
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    batches = 2 if way == "together" else 1
    precision = tf.float16 if way == "half" else tf.float32

    def together(number: tf.Tensor, many: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        replica = tf.distribute.get_replica_context()
        number = tf.identity(number)  # On the device of the replica.
        for _ in range(batches * (ROUNDS - 1)):
            number = replica.all_reduce(tf.distribute.ReduceOp.SUM, number) / 2
        # After the others, as the gradients are.
        sent = tf.cast(many + 0 * number, precision)
        return number, tf.cast(replica.all_reduce(tf.distribute.ReduceOp.SUM, sent), many.dtype)

    step = tf.function(lambda *values: strategy.run(together, values), autograph=False)
    values = tf.ones([]), tf.ones([weights])
    times = []
    for _ in range(3 + steps):
        begin = time.perf_counter()
        step(*values)[1].numpy()
        times.append(time.perf_counter() - begin)
    return float(np.median(times[3:])) / batches


def train_otherwise(way: str) -> None:
    """Runs the command line with gradients that are sent in one of the ways of `SENT`."""
    import tensorflow as tf

    from keras_xmr.model import retriever

    plain_sum, plain = retriever.sum_over_replicas, retriever.Retriever._gradients

    def in_half(tensors: Sequence[Any], scalars: Sequence[Any]) -> tuple[list[Any], Any]:
        if not tensors:
            return plain_sum(tensors, scalars)
        context = tf.distribute.get_replica_context()
        sent = [tf.cast(tensor, tf.float16) for tensor in [*tensors, tf.stack(scalars)]]
        sums = context.all_reduce(tf.distribute.ReduceOp.SUM, sent)
        *sums, values = [tf.cast(tensor, tf.float32) for tensor in sums]
        return sums, tf.unstack(values)

    def of_two(self: Any, x: Any, y: Any) -> tuple[Any, dict[str, Any], list[Any]]:
        first, second = (
            tf.nest.map_structure(lambda t, part=part: t[part::2], (x, y)) for part in (0, 1)
        )
        loss, log, gradients = plain(self, *first)
        # One after the other: workers must come to their rounds in one order.
        with tf.control_dependencies(gradients):
            second = tf.nest.map_structure(tf.identity, second)
            other_loss, other_log, others = plain(self, *second)
        log = {name: (value + other_log[name]) / 2 for name, value in log.items()}
        both = zip(gradients, others, strict=True)
        return (loss + other_loss) / 2, log, [(first + second) / 2 for first, second in both]

    if way == "half":
        retriever.sum_over_replicas = in_half
    else:
        retriever.Retriever._gradients = of_two
    runpy.run_path(str(ROOT / "main.py"), run_name="__main__")


def _logged(folder: Path) -> float:
    import tensorflow as tf
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder)).Reload()
    found = events.Tensors("train/pairs_per_second")
    values = [float(tf.make_ndarray(event.tensor_proto)) for event in found]
    late = sorted(values[len(values) // 2 :])
    return late[len(late) // 2]


def _command(name: str, config: str, own: list[str], way: str = "") -> list[str]:
    program = [__file__, f"--way={way}"] if way else [str(ROOT / "main.py")]
    sets = [f"--set={setting}" for setting in own]
    return [sys.executable, *program, name, f"--config={config}", *sets]


def _run(commands: list[list[str]], environments: list[dict[str, str]]) -> list[str]:
    """Runs processes at once; what they print."""
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(
                    command,
                    env=os.environ | environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            for command, environment in zip(commands, environments, strict=True)
        ]
        with ThreadPoolExecutor() as pool:
            said = list(pool.map(lambda process: process.communicate(), processes))
    for process, (_, errors) in zip(processes, said, strict=True):
        if process.returncode:
            raise RuntimeError(errors[-2000:])
    return [printed for printed, _ in said]


def _threads(count: int) -> dict[str, str]:
    names = "OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"
    return dict.fromkeys(names, str(count))


def _cluster() -> list[str]:
    """TF_CONFIG of two workers."""
    ports = []
    with ExitStack() as stack:
        for _ in range(2):
            free = stack.enter_context(socket.socket())
            free.bind(("localhost", 0))
            ports.append(free.getsockname()[1])
    workers = {"worker": [f"localhost:{port}" for port in ports]}
    return [
        json.dumps({"cluster": workers, "task": {"type": "worker", "index": index}})
        for index in range(2)
    ]


def main() -> None:
    """Measures, and prints a table."""
    if len(sys.argv) > 2 and sys.argv[2] == "train":
        train_otherwise(sys.argv.pop(1).partition("=")[2])
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--way", default="", help=argparse.SUPPRESS)
    parser.add_argument("--config", default="scenes_pcme")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--network", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.network:
        print(network(options.network, options.steps, options.way))
        return
    show(rows(False, options.config, options.set))


if __name__ == "__main__":
    main()
