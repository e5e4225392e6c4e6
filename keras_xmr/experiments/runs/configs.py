"""The config of a run: written to its folder, loaded, and compared with another."""

from __future__ import annotations

import copy
import json
import platform
from collections.abc import Sequence
from functools import reduce
from importlib import metadata
from operator import getitem
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from keras_xmr.experiments.config.differences import differences
from keras_xmr.experiments.config.loader import dump_config, load_config
from keras_xmr.experiments.config.model_facts import is_as_published
from keras_xmr.experiments.config.schema import Config
from keras_xmr.experiments.runs.folder import RunFolder
from keras_xmr.utils.errors import ConfigError, UserError
from keras_xmr.utils.files import atomic_write, check_folder

_PACKAGES = (
    "keras-xmr",
    "tensorflow",
    "keras",
    "keras-hub",
    "tensorflow-text",
    "tensorflow-probability",
    "numpy",
    "scipy",
    "pillow",
)

# Keys that may change between two starts of a run. Threads depend on the machine.
_MUTABLE_KEYS = (
    *("output", "plugins", "evaluation", "audit", "export", "paper", "fidelity"),
    *("data.prepare", "train.operation_threads"),
)

# Keys that may also be edited in the config of a finished run: names and paths. Records are
# compared with their source separately.
_EDITABLE_KEYS = (
    *(*_MUTABLE_KEYS, "name", "data.source", "data.records"),
    *("data.training_judgements", "train.initial_weights"),
)

_RUNS = "<output>/<name>/, such as saved_models/scenes_pcme"


def check_config(folder: RunFolder, config: Config) -> None:
    """Checks that the folder is free for this run.

    A folder in which nothing has been trained yet is free for any.

    Raises:
        ConfigError: If the folder holds a run with another config, or with one that was
            edited after the training.
        UserError: If it cannot be written to.
    """
    check_folder(folder.path)
    taken = folder.has_begun or folder.done.exists() or (folder.path / "evaluation").exists()
    # A published model is measured on any data.
    free = _EDITABLE_KEYS if is_as_published(config) else _MUTABLE_KEYS
    if taken and (changes := _changes_of(folder, config, free)):
        raise ConfigError(
            f"{folder.path} holds a run with another config:\n  "
            + "\n  ".join(changes[:10])
            + "\nContinue it with its settings, give this run another name "
            "(--set name=...), or delete the folder"
        )
    check_trained_config(folder, config)


def check_trained_config(folder: RunFolder, config: Config) -> None:
    """Checks that a finished training, if there is one, was made with this config.

    Raises:
        ConfigError: If it was not: its `config.yaml` was edited.
        UserError: If the summary of the training is damaged.
    """
    trained = folder.summary().config
    if trained and (changes := _changes(trained, config, _EDITABLE_KEYS)):
        raise ConfigError(
            f"{folder.config} was edited after the training, and the weights are for the "
            "previous content:\n  "
            + "\n  ".join(changes[:10])
            + "\nRestore it, or train a run with "
            "another name (--set name=...)"
        )


def write_config(folder: RunFolder, config: Config) -> None:
    """Makes the folder and writes config and versions into it.

    Raises:
        ConfigError: If the folder holds a run with another config.
    """
    check_config(folder, config)
    folder.logs.mkdir(parents=True, exist_ok=True)
    content = dump_config(config).encode("utf-8")
    # Evaluations of this config are newer than the file.
    if not folder.config.exists() or folder.config.read_bytes() != content:
        atomic_write(folder.config, content)
    atomic_write(folder.versions, json.dumps(_versions(config), indent=2).encode())


def is_evaluated(folder: RunFolder, config: Config) -> bool:
    """Returns whether the training has ended, and every split was evaluated with this
    very config.
    """
    if not folder.is_complete or _changes_of(folder, config, ("output", "plugins")):
        return False
    begin = folder.config.stat().st_mtime_ns
    splits = config.evaluation.splits
    files = [path for split in splits for path in (folder.results(split), folder.queries(split))]
    return all(path.exists() and path.stat().st_mtime_ns >= begin for path in files)


def check_folders(
    config: Config, *, run: bool = True, records: bool = False, trains: bool = False
) -> None:
    """Checks that the results of a step can be written, before anything is computed.

    Args:
        config: The config of the run.
        run: Whether the step writes into the folder of the run.
        records: Whether it writes records, if they are missing.
        trains: Whether it trains.

    Raises:
        ConfigError: If the folder of the run holds a run with another config.
        UserError: If a folder cannot be written to, or the folder of the data does not exist.
    """
    if run:
        check_folder(config.folder)
    if records and not config.data.is_prepared:
        check_folder(config.data.records)
        root = getattr(config.data.source, "root", None)
        if isinstance(root, Path) and not root.exists():
            raise UserError(
                f"{root} does not exist; data.source.root names the folder of the data. "
                f"{config.data.source.origin}"
            )
    # Last: of a wrong folder of data it would only say that another run had another one.
    if trains:
        check_config(RunFolder(config), config)


def load_run(folder: Path, overrides: Sequence[str] = ()) -> Config:
    """Loads the config of a run from its folder.

    Args:
        folder: Such as `saved_models/scenes_pcme`.
        overrides: Changes, as `load_config` takes them.

    Raises:
        ConfigError: If the folder has no run, or the run of another version.
    """
    folder = folder if folder.name else folder.absolute()
    path = folder / "config.yaml"
    if not path.is_file():
        raise ConfigError(f"{folder} holds no run (no config.yaml); a run is in {_RUNS}")
    if any(change.partition("=")[0].strip() in ("name", "output") for change in overrides):
        raise ConfigError(f"{folder}: a run has the name and the place of its folder; copy that")
    # The folder may have been moved, copied or renamed since, or be named from elsewhere.
    place = {"output": folder.parent, "name": folder.name}
    try:
        written = load_config(path)
    except ConfigError as error:
        raise ConfigError(
            f"{error}\nIf another version of keras_xmr wrote {path}, train the run again with this "
            "one, or use it with that one"
        ) from None
    config = load_config(path, overrides) if overrides else written
    check_trained_config(RunFolder(config.model_copy(update=place)), written)
    return config.model_copy(update=place)


def _changes_of(folder: RunFolder, config: Config, free: tuple[str, ...]) -> list[str]:
    """Returns how the config differs from the config in the folder, if there is one."""
    if not folder.config.exists():
        return []
    old, why = None, "it holds no config"
    try:
        old = yaml.safe_load(folder.config.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        why = str(error)
    if not isinstance(old, dict):
        raise ConfigError(
            f"{folder.config} is damaged: {why}\nCopy it back, or delete it if the run was "
            "started with the config that there is now"
        )
    return _changes(old, config, free)


def fixed_keys(config: Config) -> dict[str, Any]:
    """Returns the keys that must not be edited in the config of a finished run."""
    kept = config.model_dump(mode="json")
    for key in _EDITABLE_KEYS:
        *sections, name = key.split(".")
        reduce(getitem, sections, kept).pop(name)
    return kept


def _changes(old: dict[str, Any], config: Config, free: Sequence[str]) -> list[str]:
    """Returns how a config differs from an older one, but for keys that are free.

    Options that did not exist when that was written have their defaults there.
    """
    now, then = config.model_dump(mode="json"), copy.deepcopy(old)
    try:
        for key in free:
            *sections, name = key.split(".")
            reduce(getitem, sections, then)[name] = reduce(getitem, [*sections, name], now)
        then = Config.model_validate(then).model_dump(mode="json")
    except (ValidationError, LookupError, TypeError):  # Removed keys are named.
        then = old
    return [
        f"{key}: {there} there, {here} now" for key, there, here in differences(then, now, free)
    ]


def _versions(config: Config) -> dict[str, Any]:
    versions = {"python": platform.python_version(), "platform": platform.platform()}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed as a package"
    return {"seed": config.seed, "versions": versions}
