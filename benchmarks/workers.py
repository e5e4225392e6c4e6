"""Pairs a second of two workers on this machine, one thread each, beside one process with two.

What is trained is a config on the scenes, for two epochs. The rate is that between two points of
the second one's log, so neither starting nor tracing is in it. Two workers gather embeddings over a
connection of this machine; the bound is two processes at once that know nothing of each other, with
one thread and half of the batch each: they compute as much, but for the other half of the loss.

    python benchmarks/workers.py [--config scenes_pcme] [--set KEY=VALUE]
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from measuring import ROOT, Row, show

from keras_xmr.config.loader import find_config, load_config


def rows(
    smoke: bool = False, config: str = "scenes_pcme", sets: Sequence[str] = ()
) -> Iterator[Row]:
    """A row, of two workers beside one process."""
    tiny = ["data.source={name: scenes, train: 96, val: 8, test: 8}"] if smoke else []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        own = [f"data.records={root / 'records'}", f"output={root}", *tiny, *sets]
        _run([_command("prepare", config, own)], [{}])
        own += ["train.validate_every=100", "train.checkpoint_steps=0", "train.log_steps=5"]
        own += ["train.phases.0.epochs=2", "train.devices=1"]
        one = _rate(root, config, ["one"], own, [_threads(2)])
        workers = [{**_threads(1), "TF_CONFIG": worker} for worker in _cluster()]
        two = _rate(root, config, ["two"] * 2, own, workers)
        batch = load_config(find_config(config), list(sets)).train.batch_size
        half = [*own, f"train.batch_size={batch // 2}"]
        apart = _rate(root, config, ["apart0", "apart1"], half, [_threads(1)] * 2)
    yield Row(
        f"a pair of {config}, two workers",
        "one thread each",
        1 / two,
        1 / one,
        "one process with two threads",
        bound=1 / (2 * apart),
        bound_by="two processes at once with half of the batch each, which gather nothing",
    )


def _rate(
    root: Path, config: str, names: list[str], own: list[str], environments: list[dict[str, str]]
) -> float:
    """Pairs a second in the second half of the log of the first of some processes."""
    commands = [_command("train", config, [*own, f"name={name}"]) for name in names]
    _run(commands, environments)
    return _logged(root / names[0] / "logs")


def _logged(folder: Path) -> float:
    import tensorflow as tf
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder)).Reload()
    found = events.Tensors("train/pairs_per_second")
    values = [float(tf.make_ndarray(event.tensor_proto)) for event in found]
    late = sorted(values[len(values) // 2 :])
    return late[len(late) // 2]


def _command(name: str, config: str, own: list[str]) -> list[str]:
    sets = [f"--set={setting}" for setting in own]
    return [sys.executable, str(ROOT / "main.py"), name, f"--config={config}", *sets]


def _run(commands: list[list[str]], environments: list[dict[str, str]]) -> None:
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(
                    command,
                    env=os.environ | environment,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            for command, environment in zip(commands, environments, strict=True)
        ]
        said = [process.communicate()[1] for process in processes]
    for process, errors in zip(processes, said, strict=True):
        if process.returncode:
            raise RuntimeError(errors[-2000:])


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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", default="scenes_pcme")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    show(rows(False, options.config, options.set))


if __name__ == "__main__":
    main()
