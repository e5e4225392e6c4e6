"""Tunes every method on the scenes with equal effort, on validation.

A method is tuned by halving: five learning rates, then some values of what its loss is sensitive
to (a margin, a temperature, a scale), each in a training of a third of the length; the best two of
all settings are then trained to the end, and the better one is the method's. Where the best of the
rates is at an edge, rates go on there until it is not. What the best validation RSUM of each
training was stands in a JSON line of the file of results; what is there is not trained again, so a
run that was stopped goes on. Afterwards `make compare` with fresh seeds measures what was chosen.

    OMP_NUM_THREADS=1 TF_NUM_INTRAOP_THREADS=1 python benchmarks/tune_scenes.py
    python benchmarks/tune_scenes.py --methods scenes_pcme,scenes_vsepp
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

EPOCHS = 6
SHORT = 2
RATES = (2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3)
RATE = "train.phases.0.learning_rate"

Setting = tuple[tuple[str, float], ...]
"""Keys of a config, and their values."""


@dataclass(frozen=True)
class Method:
    """What of a config is tuned.

    Attributes:
        config: Its name.
        keys: What the method is sensitive to; several keys have one value.
        values: What is tried beside the value of the config.
    """

    config: str
    keys: tuple[str, ...] = ()
    values: tuple[float, ...] = ()


_MARGINS = ("objective.0.margin",), (0.1, 0.4)
_SCALES = "model.matcher.scale", "model.matcher.shift"
_TEMPERATURE = ("objective.0.temperature",)
METHODS = (
    Method("scenes_nt_xent", _TEMPERATURE, (0.03, 0.2)),
    Method("scenes_smooth_ap", _TEMPERATURE, (0.005, 0.02, 0.05)),
    Method("scenes_vse0", *_MARGINS),
    Method("scenes_vsepp", *_MARGINS),
    Method("scenes_pcme", _SCALES, (5, 10, 40)),
    Method("scenes_pcme_mean_only", _SCALES, (5, 10, 40)),
    Method("scenes_pcme_daa", ("objective.2.weight",), (0.02, 0.2)),
    Method("scenes_pcmepp", _SCALES, (5, 20, 40)),
    Method("scenes_msrm", _TEMPERATURE, (5, 20)),
    Method("scenes_pvse", *_MARGINS),
    Method("scenes_pvse_k1", *_MARGINS),
    Method("scenes_dvse", *_MARGINS),
    Method("scenes_dvse_no_orthogonality", *_MARGINS),
    Method("scenes_dive", *_MARGINS),
    Method("scenes_nt_xent_attention", _TEMPERATURE, (0.03, 0.2)),
    Method("scenes_smooth_ap_attention", _TEMPERATURE, (0.005, 0.02, 0.05)),
    Method("scenes_vse0_attention", *_MARGINS),
    Method("scenes_vsepp_attention", *_MARGINS),
    Method("scenes_dive_k1", *_MARGINS),
    Method("scenes_saf", *_MARGINS),
    Method("scenes_sgr", *_MARGINS),
)


@dataclass(frozen=True)
class Trial:
    """One training: what is set in a config, for how many epochs, with which seed."""

    config: str
    setting: Setting
    epochs: int
    seed: int

    @property
    def name(self) -> str:
        """What it is called in the file of results."""
        words = [f"{key.rpartition('.')[2]}={value:g}" for key, value in self.setting]
        return " ".join([self.config, *words, f"epochs={self.epochs}", f"seed={self.seed}"])


class Tuning:
    """The tuning of one method, whose trials are read where they are done, and else trained.

    Args:
        method: What is tuned.
        results: The file of results.
        work: A folder for the runs, which are removed.
    """

    def __init__(self, method: Method, results: Path, work: Path) -> None:
        self.method = method
        self.results = results
        self.work = work

    def best(self) -> tuple[Setting, list[tuple[Setting, float]]]:
        """The best setting, and all that were trained to the end with their validation RSUM."""
        rate, rates = self._best_rate()
        settings = {((RATE, tried),): found for tried, found in rates.items()}
        for value in self.method.values:
            setting = ((RATE, rate), *((key, value) for key in self.method.keys))
            settings[setting] = self._found(setting, SHORT)
        first = sorted(settings, key=settings.__getitem__, reverse=True)[:2]
        ended = [(setting, self._found(setting, EPOCHS)) for setting in first]
        return max(ended, key=lambda pair: pair[1])[0], ended

    def _best_rate(self) -> tuple[float, dict[float, float]]:
        tried = {rate: self._found(((RATE, rate),), SHORT) for rate in RATES}
        while True:
            best = max(tried, key=tried.__getitem__)
            if best not in (min(tried), max(tried)) or not 1e-5 < best < 0.05:
                return best, tried
            further = best / 2 if best == min(tried) else best * 2
            tried[further] = self._found(((RATE, further),), SHORT)

    def _found(self, setting: Setting, epochs: int) -> float:
        """The validation RSUM of a trial."""
        trial = Trial(self.method.config, setting, epochs, seed=0)
        done = read(self.results)
        if trial.name not in done:
            started = time.process_time()
            rsum = train(trial, self.work)
            line = {"trial": trial.name, "rsum": rsum, "seconds": time.process_time() - started}
            with self.results.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(f"{trial.name}: {rsum:.1f} ({line['seconds']:.0f} s)", flush=True)
            done = read(self.results)
        return done[trial.name]


def read(results: Path) -> dict[str, float]:
    """The validation RSUM of every trial that was done."""
    lines = results.read_text("utf-8").splitlines() if results.exists() else []
    return {found["trial"]: found["rsum"] for found in map(json.loads, lines)}


def train(trial: Trial, work: Path) -> float:
    """Trains a config; its best RSUM on validation, in percent."""
    import keras

    from keras_xmr.config.loader import find_config, load_config
    from keras_xmr.pipeline import Run

    sets = [
        f"name=tuned-{os.getpid()}",
        f"output={work}",
        f"seed={trial.seed}",
        f"train.phases.0.epochs={trial.epochs}",
        "train.validate_every=1",
        "train.checkpoint_steps=0",
        *(f"{key}={value}" for key, value in trial.setting),
    ]
    path = find_config(trial.config)
    warmups = _warmups(load_config(path), trial.epochs / EPOCHS)
    config = load_config(path, sets + warmups)
    shutil.rmtree(config.folder, ignore_errors=True)
    run = Run(config)
    run.train()
    rsum = 100 * json.loads(run.folder.done.read_text("utf-8"))["best"]
    keras.backend.clear_session()
    shutil.rmtree(config.folder)
    return rsum


def _warmups(config: Any, part: float) -> list[str]:
    """Warm-ups of losses that take the same part of a shorter training."""
    found = []
    for number, loss in enumerate(config.objective):
        steps = loss.options().get("warmup_steps", 0)
        if steps:
            found.append(f"objective.{number}.warmup_steps={round(part * steps)}")
    return found


def _prepare() -> None:
    """Writes the records, which all methods share."""
    from keras_xmr.config.loader import find_config, load_config
    from keras_xmr.pipeline import Run

    config = load_config(find_config(METHODS[0].config))
    if not config.data.is_prepared:
        Run(config).prepare()


def _tune(method: Method, results: Path, work: Path) -> str:
    setting, ended = Tuning(method, results, work).best()
    return f"| {method.config} | {_words(setting)} | " + ", ".join(
        f"{_words(tried)}: {rsum:.1f}" for tried, rsum in ended
    )


def _words(setting: Setting) -> str:
    return ", ".join(f"{key.rpartition('.')[2]} {value:g}" for key, value in setting)


def main(arguments: Sequence[str] | None = None) -> None:
    """Tunes what is not tuned yet, and prints what was chosen."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, default=Path("data/tune_scenes"))
    parser.add_argument("--methods", default="", help="configs, with commas between; all by default")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args(arguments)
    options.work.mkdir(parents=True, exist_ok=True)
    results = options.work / "results.jsonl"
    _prepare()
    names = options.methods.split(",") if options.methods else [m.config for m in METHODS]
    chosen = [method for method in METHODS if method.config in names]
    with ProcessPoolExecutor(
        options.processes, mp_context=multiprocessing.get_context("spawn")
    ) as pool:
        futures = [pool.submit(_tune, method, results, options.work) for method in chosen]
        for future in futures:
            print(future.result(), flush=True)


if __name__ == "__main__":
    main()
