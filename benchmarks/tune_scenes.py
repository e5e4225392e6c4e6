"""Tunes every method on the scenes with equal effort, on validation.

A method is tuned by whole trainings: by learning rates, and at the best of them by what its loss is
sensitive to (a margin, a temperature, a scale), each a factor of two apart, from what the config
has on until the best is at no edge. Each setting is judged by the mean over two seeds, as one says
little (`--seeds` names others). `--only=rates` tunes nothing else, and `--only=values` holds the
rate that the config has, as for what is combined with a method that has been tuned. What the best
validation RSUM of each training was stands in a JSON line of the file of results, by the setting
and a digest of the config; what is there is not trained again, so a run that was stopped goes on.
Afterwards `make compare` with other seeds measures what was chosen.

    OMP_NUM_THREADS=1 TF_NUM_INTRAOP_THREADS=1 python benchmarks/tune_scenes.py
    python benchmarks/tune_scenes.py --methods scenes_pcme,scenes_vsepp
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import shutil
import statistics
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

SEEDS = 0, 100
RATE = "train.phases.0.learning_rate"

Setting = tuple[tuple[str, float], ...]
"""Keys of a config, and their values."""

Rsums = tuple[float, ...]
"""The best validation RSUM of each seed."""


@dataclass(frozen=True)
class Method:
    """The tuned options of a config.

    Attributes:
        config: Its name.
        keys: What the method is sensitive to; several keys have one value.
    """

    config: str
    keys: tuple[str, ...]


_MARGIN = ("objective.0.margin",)
_SCALE = "model.matcher.scale", "model.matcher.shift"
_TEMPERATURE = ("objective.0.temperature",)
METHODS = (
    Method("scenes_nt_xent", _TEMPERATURE),
    Method("scenes_smooth_ap", _TEMPERATURE),
    Method("scenes_vse0", _MARGIN),
    Method("scenes_vsepp", _MARGIN),
    Method("scenes_pcme", _SCALE),
    Method("scenes_pcmepp", _SCALE),
    Method("scenes_msrm", _TEMPERATURE),
    Method("scenes_pvse", _MARGIN),
    Method("scenes_dvse", _MARGIN),
    Method("scenes_dive", _MARGIN),
    Method("scenes_pcme_mean_only", _SCALE),
    Method("scenes_pcme_smooth_ap", ("objective.2.weight",)),
    Method("scenes_pcme_daa", ("objective.2.weight",)),
    Method("scenes_pcme_daa_scores", ("objective.2.weight",)),
    Method("scenes_attention_triplet", _MARGIN),
    Method("scenes_attention_nt_xent", _TEMPERATURE),
    Method("scenes_attention_smooth_ap", _TEMPERATURE),
    Method("scenes_attention_vse0", _MARGIN),
    Method("scenes_attention_vsepp", _MARGIN),
    Method("scenes_pvse_k1", _MARGIN),
    Method("scenes_dive_k1", _MARGIN),
    Method("scenes_dvse_no_orthogonality", _MARGIN),
    Method("scenes_vsrn_triplet", _MARGIN),
    Method("scenes_vsrn_hardest", _MARGIN),
    Method("scenes_vsrn_nt_xent", _TEMPERATURE),
    Method("scenes_vsrn_smooth_ap", _TEMPERATURE),
    Method("scenes_saf", _MARGIN),
    Method("scenes_sgr", _MARGIN),
)


@dataclass(frozen=True)
class Tried:
    """Trials of a method: values of one option, at one value of another.

    Attributes:
        config: The config.
        key: The option.
        held: The other option.
        at: Its value.
        found: By value, the best validation RSUM of each seed.
    """

    config: str
    key: str
    held: str
    at: float
    found: dict[float, Rsums]

    def line(self) -> str:
        """A row of a table in Markdown."""
        best = best_of(self.found)
        cells = []
        for value, rsums in sorted(self.found.items()):
            cell = f"{value:g}: {', '.join(f'{rsum:.1f}' for rsum in rsums)}"
            cells.append(f"**{cell}**" if value == best else cell)
        return f"| `{self.config}`, {self.held} {self.at:g} | {self.key} {'; '.join(cells)} |"


def tune(
    method: Method,
    results: Path,
    work: Path,
    seeds: Sequence[int] = SEEDS,
    only: Literal["rates", "values"] | None = None,
) -> list[Tried]:
    """Tunes a method, by what the file of results has and by what it lacks.

    Args:
        method: What is tuned.
        results: The file of results.
        work: A folder for the runs, which are removed.
        seeds: The seeds whose mean judges a setting.
        only: `rates` or `values`, if only one of them is tuned.

    Returns:
        Rates, at what the config has of what the loss is sensitive to, and at the best rate (or the
        one that the config has, if rates are not tuned) values of that.
    """

    def found(rate: float, value: float) -> Rsums:
        setting = ((RATE, rate), *((key, value) for key in method.keys))
        return tuple(of_seed(setting, seed) for seed in seeds)

    def of_seed(setting: Setting, seed: int) -> float:
        named = (*setting, ("seed", seed))
        name = " ".join([method.config, digest, *(f"{key}={value:g}" for key, value in named)])
        done = read(results)
        if name in done:
            return done[name]
        rsum = train(method.config, named, work)
        with results.open("a") as file:
            file.write(json.dumps({"name": name, "rsum": rsum}) + "\n")
        print(f"{name}: {rsum:.1f}", flush=True)
        return rsum

    digest = digest_of(method.config)
    rate, value = of_config(method.config, RATE), of_config(method.config, method.keys[0])
    key = method.keys[0].rpartition(".")[2]
    tried = []
    if only != "values":
        rates = search(lambda rate: found(rate, value), rate)
        tried.append(Tried(method.config, "rate", key, value, rates))
        rate = best_of(rates)
    if only != "rates":
        values = search(lambda value: found(rate, value), value)
        tried.append(Tried(method.config, key, "rate", rate, values))
    return tried


def search(found: Callable[[float], Rsums], start: float) -> dict[float, Rsums]:
    """Results at values a factor of two apart, extended until the best is not at an edge."""
    tried = {value: found(value) for value in (start / 2, start, 2 * start)}
    while (best := best_of(tried)) in (min(tried), max(tried)):
        further = best / 2 if best == min(tried) else best * 2
        tried[further] = found(further)
    return tried


def best_of(tried: dict[float, Rsums]) -> float:
    """The value with the highest mean over the seeds."""
    return max(tried, key=lambda value: statistics.fmean(tried[value]))


def of_config(name: str, key: str) -> float:
    """The number that a config has at a key, as `objective.0.margin`."""
    from keras_xmr.config.loader import find_config, load_config

    found: Any = load_config(find_config(name)).model_dump()
    for part in key.split("."):
        found = found[int(part) if part.isdigit() else part]
    return float(found)


def digest_of(name: str) -> str:
    """Eight letters that differ where a config is another one."""
    from keras_xmr.config.loader import find_config, load_config

    written = load_config(find_config(name)).model_dump_json(exclude={"fidelity"})
    return hashlib.sha256(written.encode()).hexdigest()[:8]


def read(results: Path) -> dict[str, float]:
    """The validation RSUM of everything that was trained, by name."""
    lines = results.read_text("utf-8").splitlines() if results.exists() else []
    return {found["name"]: found["rsum"] for found in map(json.loads, lines)}


def train(name: str, setting: Setting, work: Path) -> float:
    """Trains a config with a setting; its best RSUM on validation, in percent."""
    import keras

    from keras_xmr.commands._steps import Run
    from keras_xmr.config.loader import find_config, load_config

    sets = [
        f"name=tuned-{os.getpid()}",
        f"output={work}",
        "train.checkpoint_steps=0",
        *(f"{key}={value}" for key, value in setting),
    ]
    config = load_config(find_config(name), sets)
    shutil.rmtree(config.folder, ignore_errors=True)
    run = Run(config)
    run.train()
    rsum = 100 * json.loads(run.folder.done.read_text("utf-8"))["best"]
    keras.backend.clear_session()
    shutil.rmtree(config.folder)
    return rsum


def _prepare() -> None:
    """Writes the records, which all methods share."""
    from keras_xmr.commands._steps import Run
    from keras_xmr.config.loader import find_config, load_config

    config = load_config(find_config(METHODS[0].config))
    if not config.data.is_prepared:
        Run(config).prepare()


def main(arguments: Sequence[str] | None = None) -> None:
    """Tunes what is not tuned yet, and prints what was chosen."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, default=Path("data/tune_scenes"))
    parser.add_argument(
        "--methods", default="", help="configs, with commas between; all by default"
    )
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)), help="whose mean judges")
    parser.add_argument("--only", choices=("rates", "values"), help="what alone is tuned")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args(arguments)
    options.work.mkdir(parents=True, exist_ok=True)
    results = options.work / "results.jsonl"
    _prepare()
    names = options.methods.split(",") if options.methods else [m.config for m in METHODS]
    chosen = [method for method in METHODS if method.config in names]
    seeds = [int(seed) for seed in options.seeds.split(",")]
    with ProcessPoolExecutor(
        options.processes, mp_context=multiprocessing.get_context("spawn")
    ) as pool:
        futures = [
            pool.submit(tune, method, results, options.work, seeds, options.only)
            for method in chosen
        ]
        for future in futures:
            for tried in future.result():
                print(tried.line(), flush=True)


if __name__ == "__main__":
    main()
