"""The folder that holds everything a run makes."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

from data_pipelines.errors import UserError
from data_pipelines.files import write_aside
from data_pipelines.folders import check_folder
from keras_xmr.config import Config
from keras_xmr.config_file import ConfigError, dump_config, load_config

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

# What may change between two starts of a run without making it another run.
_FREE = ("output", "evaluation", "audit", "export", "paper")


_RUNS = "<output>/<name>/, such as saved_models/scenes_pcme"


class RunFolder:
    """Paths of what a run makes, under `<output>/<name>/`.

    Args:
        config: The config of the run.
    """

    def __init__(self, config: Config) -> None:
        self.path = config.folder
        self.config = self.path / "config.yaml"
        self.versions = self.path / "versions.json"
        self.checkpoints = self.path / "checkpoints"
        self.logs = self.path / "logs"
        self.training_log = self.logs / "training.csv"
        self.best_weights = self.path / "best.weights.h5"
        self.last_weights = self.path / "last.weights.h5"
        self.done = self.path / "training.json"
        self.model = self.path / "model.keras"
        self.serving = self.path / "serving"

    def evaluation(self, split: str) -> Path:
        """Where the evaluation of a split goes."""
        return self.path / "evaluation" / split

    def relevance(self, split: str) -> Path:
        """Where the relevance of the captions of a split goes."""
        return self.path / "relevance" / f"{split}.npz"

    def audit(self, split: str) -> Path:
        """Where the audit of a split goes."""
        return self.path / "audit" / split

    def metrics(self, split: str) -> Path:
        """The figures of the evaluation of a split."""
        return self.evaluation(split) / "metrics.json"

    def queries(self, split: str) -> Path:
        """The metrics of every query of a split."""
        return self.evaluation(split) / f"queries-{split}.npz"

    def check(self, config: Config) -> None:
        """Checks that the folder is free for this run.

        Raises:
            ConfigError: If the folder holds a run with another config.
            UserError: If it cannot be written to.
        """
        check_folder(self.path)
        if changes := self._changes(config, _FREE):
            raise ConfigError(
                f"{self.path} holds a run with another config:\n  "
                + "\n  ".join(changes[:10])
                + "\nGive this run another name (--set name=...), or delete the folder"
            )

    def claim(self, config: Config) -> None:
        """Makes the folder and writes config and versions into it.

        Raises:
            ConfigError: If the folder holds a run with another config.
        """
        self.check(config)
        self.logs.mkdir(parents=True, exist_ok=True)
        content = dump_config(config).encode("utf-8")
        # Its time tells which evaluations were made with it.
        if not self.config.exists() or self.config.read_bytes() != content:
            write_aside(self.config, content)
        write_aside(self.versions, json.dumps(_versions(config), indent=2).encode())

    def keep(self, files: Mapping[str, bytes]) -> None:
        """Keeps the files that the tokenizer is rebuilt from.

        Args:
            files: Their content, by their path in the folder.

        Raises:
            UserError: If a training has begun with others.
        """
        begun = (self.checkpoints / "checkpoint").exists()
        for name, content in files.items():
            path = self.path / name
            if path.exists() and path.read_bytes() == content:
                continue
            if begun:
                raise UserError(
                    f"the training in {self.path} began with another vocabulary or tokenizer than "
                    f"there is now ({name}): ids would stand for other words. Give this run "
                    "another name (--set name=...), or delete the folder"
                )
            path.parent.mkdir(exist_ok=True)
            write_aside(path, content)

    def is_evaluated(self, config: Config) -> bool:
        """Whether the training has ended, and every split was evaluated with this very config."""
        if not self.done.exists() or self._changes(config, ("output",)):
            return False
        begin = self.config.stat().st_mtime_ns
        splits = config.evaluation.splits
        files = [path for split in splits for path in (self.metrics(split), self.queries(split))]
        return all(path.exists() and path.stat().st_mtime_ns >= begin for path in files)

    def _changes(self, config: Config, free: tuple[str, ...]) -> list[str]:
        """How the config differs from that of the folder, if there is one."""
        if not self.config.exists():
            return []
        old = yaml.safe_load(self.config.read_text("utf-8"))
        return _differences(old, yaml.safe_load(dump_config(config)), free)


def load_run(folder: Path, overrides: Sequence[str] = ()) -> Config:
    """The config of a run, from the folder that holds what it made.

    Args:
        folder: Such as `saved_models/scenes_pcme`.
        overrides: Changes, as `load_config` takes them.

    Raises:
        ConfigError: If the folder holds no run, or has been renamed.
    """
    folder = folder if folder.name else folder.absolute()
    path = folder / "config.yaml"
    if not path.is_file():
        raise ConfigError(f"{folder} holds no run (no config.yaml); a run is in {_RUNS}")
    # The folder may have been moved as a whole since, or be named from elsewhere.
    config = load_config(path, overrides).model_copy(update={"output": folder.parent})
    if config.folder != folder:
        raise ConfigError(f"{folder} holds the run {config.name!r}; a run is in {_RUNS}")
    return config


def _differences(old: Any, new: Any, free: tuple[str, ...], key: str = "") -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        names = [n for n in {**old, **new} if key or n not in free]
        inner = [
            _differences(old.get(n), new.get(n), free, f"{key}.{n}".lstrip(".")) for n in names
        ]
        return [line for lines in inner for line in lines]
    return [] if old == new else [f"{key}: {old} there, {new} now"]


def _versions(config: Config) -> dict[str, Any]:
    versions = {"python": platform.python_version(), "platform": platform.platform()}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed as a package"
    return {"seed": config.seed, "versions": versions}
