"""The runs of a comparison: every config with every seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from keras_xmr.config.loader import ConfigError, dump_config, find_configs, load_config
from keras_xmr.config.schema import Config
from keras_xmr.runs.folder import RunFolder

_SEED = "-seed"

# Keys that decide the meaning of a figure; with other values, figures are not comparable.
_SPLITS, _ASP = "evaluation.splits", "evaluation.semantic_precision"
_MEANING = ("data.judgements", "evaluation.folds")
_MEANING_OF_ASP = ("relevance.measure", "relevance.tokenizer")


@dataclass(frozen=True)
class PlannedRun:
    """One config with one seed.

    Attributes:
        source: The YAML file.
        overrides: Changes of it, as `key=value`, including name and seed.
        config: The resulting config.
    """

    source: Path
    overrides: tuple[str, ...]
    config: Config

    @property
    def folder(self) -> RunFolder:
        """The folder of its outputs."""
        return RunFolder(self.config)

    def arguments(self, command: str) -> list[str]:
        """Arguments of the command line for a command that does one step of the run."""
        overrides = [f"--set={override}" for override in self.overrides]
        return [command, f"--config={self.source}", *overrides]


def plan_runs(
    patterns: Sequence[str], seeds: Sequence[int], overrides: Sequence[str] = ()
) -> list[PlannedRun]:
    """The runs of configs and seeds, each with its folder: `<config>-seed<seed>`.

    They are in the order of the seeds, so that an interrupted comparison has all methods.

    Args:
        patterns: Files or names of configs, or patterns of them.
        seeds: The seeds.
        overrides: Changes of all configs, as `key=value`.

    Raises:
        ConfigError: If a config or an override is wrong, two configs have one name, their
            figures would not be comparable, or a folder holds another run.
    """
    for override in overrides:
        key = override.partition("=")[0].strip()
        if key in ("name", "seed"):
            way = "--seeds" if key == "seed" else "a file for each config"
            raise ConfigError(f"--set {override}: a comparison names its runs itself; use {way}")
    if len(set(seeds)) < len(seeds):
        raise ConfigError(f"--seeds: {', '.join(map(str, seeds))}: duplicate seed")
    sources: dict[str, Path] = {}
    for source in (path for pattern in patterns for path in find_configs(pattern, "--configs")):
        name = load_config(source, overrides).name
        if name in sources:
            raise ConfigError(
                f"--configs: {sources[name]} and {source} are both named {name!r}; give one of "
                "them another `name`, so that each has its own runs and its own row"
            )
        sources[name] = source
    runs = [_run(n, path, seed, overrides) for seed in seeds for n, path in sources.items()]
    if runs:
        check_comparable({run.config.name: yaml.safe_load(dump_config(run.config)) for run in runs})
    for run in runs:
        run.folder.check(run.config)
    return runs


def _run(name: str, source: Path, seed: int, overrides: Sequence[str]) -> PlannedRun:
    changes = (*overrides, f"name={name}{_SEED}{seed}", f"seed={seed}")
    return PlannedRun(source, changes, load_config(source, changes))


def method_name(folder: str, seed: int) -> str:
    """The method that a run folder of this name is a run of: the name without its seed."""
    return folder.removesuffix(f"{_SEED}{seed}")


def check_comparable(configs: Mapping[str, Mapping[str, Any]]) -> None:
    """Checks that the figures of some runs mean the same.

    Args:
        configs: The plain config of each run, by its name.

    Raises:
        ConfigError: If they have no split in common, measure in different ways, or a config lacks
            one of these keys.
    """
    for name, config in configs.items():
        for key in (_SPLITS, _ASP, *_MEANING, *_MEANING_OF_ASP, "seed"):
            if not _says(config, key):
                raise ConfigError(f"{name}: its config has no {key}; evaluate it again")
    splits = {name: set(_at(config, _SPLITS)) for name, config in configs.items()}
    if not set.intersection(*splits.values()):
        listed = "\n  ".join(f"{name}: {', '.join(sorted(s))}" for name, s in splits.items())
        raise ConfigError(f"these runs have no evaluated split in common:\n  {listed}")
    first, *others = configs
    for other in others:
        both = configs[first], configs[other]
        has_asp = all(_at(config, _ASP) for config in both)
        for key in (*_MEANING, *(_MEANING_OF_ASP if has_asp else ())):
            old, new = (_at(config, key) for config in both)
            if old != new:
                raise ConfigError(
                    f"{first} and {other} cannot be compared: {key} is {old} in one, and {new} in "
                    f"the other. Evaluate all with the same (--set {key}=...)"
                )


def _says(config: Mapping[str, Any], key: str) -> bool:
    kinds: dict[str, type] = {_SPLITS: list, "seed": int}
    try:
        return isinstance(_at(config, key), kinds.get(key, object))
    except (KeyError, TypeError):
        return False


def _at(config: Mapping[str, Any], key: str) -> Any:
    value: Any = config
    for part in key.split("."):
        value = value[part]
    return value
