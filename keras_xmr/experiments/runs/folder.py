"""The folder that holds everything a run makes."""

from __future__ import annotations

import copy
import json
import platform
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import reduce
from importlib import metadata
from operator import getitem
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from keras_xmr.experiments.config.differences import differences
from keras_xmr.experiments.config.loader import dump_config, load_config
from keras_xmr.experiments.config.model_facts import is_as_published
from keras_xmr.experiments.config.schema import CCAOptions, Config
from keras_xmr.utils.errors import ConfigError, UserError
from keras_xmr.utils.files import atomic_write, check_folder, checksum, remove_stale_temporaries

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


class Choices(BaseModel):
    """The choices of a model with a part in closed form.

    Attributes:
        cca: The options of CCA, one value of each.
        local_scaling: Whether cosines are scaled locally (CSLS).
        weight: The weight of the closed form.
        is_trained: Whether validation has gained by training.
    """

    cca: CCAOptions
    local_scaling: bool
    weight: float
    is_trained: bool


class Summary(BaseModel):
    """The content of `training.json`. A training of an early version has only steps.

    Attributes:
        steps: Number of steps.
        best_step: The step with the best validation.
        best: The metric of the best validation.
        is_complete: Whether the training has ended; if not, its closed form is finished.
        choices: The choices of a model with a part in closed form.
        exported: The file of weights that the exported model has.
        labels: Pairs that people judged; see `BatchGrades.count`.
        config: The config, without keys that may be edited.
        sha256: Checksums of the files of the training, by path.
    """

    steps: int
    best_step: int = 0
    best: float = float("-inf")
    is_complete: bool = True
    choices: Choices | None = None
    exported: str | None = None
    labels: tuple[int, int] | None = None
    config: dict[str, Any] = {}
    sha256: dict[str, str] = {}


class RunFolder:
    """Paths of the outputs of a run, under `<output>/<name>/`.

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
        self.training_judgements = self.path / "training_judgements.csv"
        self.done = self.path / "training.json"
        self.choices = self.path / "choices.json"
        self.model = self.path / "model.keras"
        self.serving = self.path / "serving"

    def evaluation(self, split: str) -> Path:
        """Returns the folder of the evaluation of a split."""
        return self.path / "evaluation" / split

    def relevance(self, split: str) -> Path:
        """Returns the file of the relevance of the captions of a split."""
        return self.path / "relevance" / f"{split}.npz"

    def audit(self, split: str) -> Path:
        """Returns the folder of the audit of a split."""
        return self.path / "audit" / split

    def results(self, split: str) -> Path:
        """Returns the long table of the evaluation of a split."""
        return self.evaluation(split) / "results.csv"

    def queries(self, split: str) -> Path:
        """Returns the metrics of every query of a split."""
        return self.evaluation(split) / f"queries-{split}.npz"

    def check(self, config: Config) -> None:
        """Checks that the folder is free for this run.

        A folder in which nothing has been trained yet is free for any.

        Raises:
            ConfigError: If the folder holds a run with another config, or with one that was
                edited after the training.
            UserError: If it cannot be written to.
        """
        check_folder(self.path)
        taken = self.has_begun or self.done.exists() or (self.path / "evaluation").exists()
        # A published model is measured on any data.
        free = _EDITABLE_KEYS if is_as_published(config) else _MUTABLE_KEYS
        if taken and (changes := self._changes(config, free)):
            raise ConfigError(
                f"{self.path} holds a run with another config:\n  "
                + "\n  ".join(changes[:10])
                + "\nContinue it with its settings, give this run another name "
                "(--set name=...), or delete the folder"
            )
        self.check_trained(config)

    def check_trained(self, config: Config) -> None:
        """Checks that a finished training, if there is one, was made with this config.

        Raises:
            ConfigError: If it was not: its `config.yaml` was edited.
            UserError: If the summary of the training is damaged.
        """
        trained = self.summary().config
        if trained and (changes := _changes(trained, config, _EDITABLE_KEYS)):
            raise ConfigError(
                f"{self.config} was edited after the training, and the weights are for the "
                "previous content:\n  "
                + "\n  ".join(changes[:10])
                + "\nRestore it, or train a run with "
                "another name (--set name=...)"
            )

    def write_config(self, config: Config) -> None:
        """Makes the folder and writes config and versions into it.

        Raises:
            ConfigError: If the folder holds a run with another config.
        """
        self.check(config)
        self.logs.mkdir(parents=True, exist_ok=True)
        content = dump_config(config).encode("utf-8")
        # Evaluations of this config are newer than the file.
        if not self.config.exists() or self.config.read_bytes() != content:
            atomic_write(self.config, content)
        atomic_write(self.versions, json.dumps(_versions(config), indent=2).encode())

    @property
    def has_begun(self) -> bool:
        """Whether a training has saved a checkpoint, from which the next one goes on."""
        saved = self.checkpoints / "checkpoint"
        return saved.exists() or any(self.checkpoints.glob("ckpt-*.index"))

    @property
    def is_complete(self) -> bool:
        """Whether a training has ended."""
        return self.done.exists() and self.summary().is_complete

    def kept_choices(self) -> Choices | None:
        """Returns the choices that a training has to keep, None where it chooses.

        Raises:
            UserError: If their file is damaged.
        """
        if not self.choices.exists():
            return None
        try:
            return Choices.model_validate_json(self.choices.read_bytes())
        except ValidationError as error:
            raise UserError(
                f"{self.choices} is damaged ({error.errors()[0]['msg']}). Delete it, and the "
                "training chooses again"
            ) from None

    def keep_choices(self, choices: Choices) -> None:
        """Writes the choices that the next training in this folder has to keep."""
        self.path.mkdir(parents=True, exist_ok=True)
        atomic_write(self.choices, choices.model_dump_json(indent=2).encode())

    @property
    def is_trained(self) -> bool:
        """Whether a training has ended, and its weights are there."""
        return self.is_complete and (self.last_weights.exists() or self.model.exists())

    @property
    def goes_on(self) -> bool:
        """Whether the next training goes on from what there is, or has nothing left to do."""
        return self.has_begun or self.is_trained

    def check_tokenizer(self, kept: Mapping[str, bytes], now: Mapping[str, bytes]) -> None:
        """Checks that a training goes on with the tokenizer that it began with.

        Args:
            kept: Files of that tokenizer: content by path.
            now: The same of the tokenizer that there is now.

        Raises:
            UserError: If they differ.
        """
        if changed := [name for name in {**kept, **now} if kept.get(name) != now.get(name)]:
            raise UserError(
                f"the training in {self.path} began with another vocabulary or tokenizer than "
                f"there is now ({changed[0]}): ids would mean other words. Give this run "
                "another name (--set name=...), or delete the folder"
            )

    def begin(self, config: Config, files: Mapping[str, bytes]) -> None:
        """Prepares the folder for a training that begins or resumes.

        A training without a checkpoint removes the outputs of an earlier one.

        Args:
            config: The config.
            files: Files of the tokenizer: content by path.

        Raises:
            ConfigError: If the folder holds a run with another config.
        """
        self.check(config)
        if not self.goes_on:
            # The config too: older evaluations are recognised by its time.
            for path in (self.done, self.best_weights, self.last_weights, self.training_log):
                path.unlink(missing_ok=True)
            self.model.unlink(missing_ok=True)
            self.config.unlink(missing_ok=True)
            shutil.rmtree(self.checkpoints, ignore_errors=True)
            self.path.mkdir(parents=True, exist_ok=True)
            self.write_tokenizer(files)
        self.write_config(config)

    def remove_temporary_files(self) -> None:
        """Removes temporary files of killed processes from the folders of the run."""
        inner = (path for name in ("evaluation", "audit") for path in self.path.glob(f"{name}/*"))
        for folder in (self.logs, self.checkpoints, self.path / "relevance", *inner):
            remove_stale_temporaries(folder)

    @property
    def has_judgements(self) -> bool:
        """Whether a training has begun, with judgements of which the folder has a copy."""
        return self.goes_on and self.training_judgements.exists()

    def keep_judgements(self, config: Config) -> None:
        """Copies the file of judgements that a training begins with, since the file may change."""
        source = config.data.training_judgements
        if source is not None and not self.has_judgements:
            atomic_write(self.training_judgements, source.read_bytes())

    def write_tokenizer(self, files: Mapping[str, bytes]) -> None:
        """Writes the files of the tokenizer: content by path in the folder."""
        for name, content in files.items():
            path = self.path / name
            path.parent.mkdir(exist_ok=True)
            atomic_write(path, content)

    def finish(
        self,
        summary: Mapping[str, Any],
        config: Config,
        files: Iterable[str],
        new: Collection[str] = (),
    ) -> None:
        """Writes that the training has ended, with its config and the checksums of its files.

        Args:
            summary: Further entries.
            config: The config that it was made with.
            files: Paths of the evaluated and exported files in the folder.
            new: Files of them that were written just now. The checksums of others stay, if they
                were written before.
        """
        known = {name: value for name, value in self.summary().sha256.items() if name not in new}
        missing = [f for f in files if f not in known and (self.path / f).exists()]
        sums = known | {name: checksum(self.path / name) for name in missing}
        content = {**summary, "config": _fixed(config), "sha256": sums}
        before = self.summary()
        if before.exported in sums and before.best_step == summary.get("best_step", 0):
            content["exported"] = before.exported
        else:  # The exported model is of other weights.
            sums.pop(self.model.name, None)
        atomic_write(self.done, json.dumps(content, indent=2).encode())

    def export(self, write: Callable[[Path], None], config: Config) -> None:
        """Writes the exported model, and its checksum.

        Args:
            write: Writes the model to a path.
            config: Says which weights the model has.
        """
        # Until it is whole, the weights are read from their own files.
        if self.trained_weights(config) == self.model:
            return
        self._keep_checksum(None, config)  # Killed in between, the model is one without a checksum.
        write(self.model)
        self._keep_checksum(checksum(self.model), config)

    def superfluous(self) -> list[Path]:
        """Returns files and folders that a finished training and its exported model do not need.

        They are what a training is resumed from, and files of weights that `model.keras` has, too.
        """
        if not (self.is_complete and self.model.is_file()):
            return []
        exported = self.summary().exported
        if exported is None or self.summary().sha256.get(self.model.name) is None:
            return []
        paths = (self.checkpoints, self.best_weights, self.last_weights)
        return [path for path in paths if path.exists()]

    def remove_superfluous(self) -> None:
        """Removes all that `superfluous` names, after a look at the exported model.

        Raises:
            UserError: If the exported model is damaged.
        """
        if paths := self.superfluous():
            self.verify_model()
            for path in paths:
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _keep_checksum(self, sha256: str | None, config: Config) -> None:
        summary = json.loads(self.done.read_bytes())
        summary["exported"] = self._chosen(config) if sha256 else None
        sums = summary.setdefault("sha256", {})
        sums.pop(self.model.name, None)
        sums |= {self.model.name: sha256} if sha256 else {}
        atomic_write(self.done, json.dumps(summary, indent=2).encode())

    def verify_model(self) -> None:
        """Checks that the exported model is there, is of this run, and is whole.

        Raises:
            UserError: If not.
        """
        if not self.model.is_file():
            raise UserError(
                f"{self.path} has no exported model ({self.model.name}); export the run first"
            )
        if self.summary().sha256.get(self.model.name) not in (None, checksum(self.model)):
            raise UserError(
                f"{self.model} is damaged, or of another run: its checksum is not the one in "
                f"{self.done.name}; export the run again"
            )

    def verify(self, path: Path) -> None:
        """Checks that a file is unchanged since the training.

        Raises:
            UserError: If it is missing or damaged.
        """
        expected = self.summary().sha256.get(str(path.relative_to(self.path)))
        if not path.is_file():
            wrong = "is missing"
        elif expected not in (None, checksum(path)):
            wrong = f"is damaged: its checksum is not the one in {self.done.name}"
        else:
            return
        kept = self.summary().exported
        if path.name.endswith(".weights.h5") and kept is not None and self.model.is_file():
            raise UserError(
                f"{path} {wrong}, and {self.model.name} has the weights of {kept}, by "
                "`export.weights`, as it was when the run was exported. Set it back; "
                "export.keep_training_files keeps both kinds of weights of a later training"
            )
        raise UserError(
            f"{path} {wrong}. Copy it back, or train again in a folder without {self.done.name}"
        )

    @property
    def has_best(self) -> bool:
        """Whether the training has saved best weights, even if the file is missing."""
        return self.best_weights.exists() or self.best_weights.name in self.summary().sha256

    def trained_weights(self, config: Config) -> Path:
        """Returns the file with the weights that a config chooses, the best or the last.

        That is `model.keras`, if it has them, and no other file does.
        """
        name = self._chosen(config)
        path = self.path / name
        if not path.exists() and self.model.exists() and self.summary().exported == name:
            return self.model
        return path

    def _chosen(self, config: Config) -> str:
        """Returns the name of the file that a training writes the chosen weights to."""
        best = config.export.weights == "best" and self.has_best
        return self.best_weights.name if best else self.last_weights.name

    def weights_checksum(self, config: Config) -> str:
        """Returns the checksum of the weights that a config chooses, wherever they are.

        Raises:
            UserError: If their file is missing, or is `model.keras` and damaged.
        """
        path = self.trained_weights(config)
        if path == self.model:
            self.verify(path)
            return self.summary().sha256.get(self._chosen(config)) or checksum(path)
        if not path.is_file():
            self.verify(path)
        return checksum(path)

    def verify_tokenizer(self) -> None:
        """Checks the files of the tokenizer.

        Raises:
            UserError: If one is missing or damaged.
        """
        for name in self.summary().sha256:
            if not name.endswith((".weights.h5", self.model.name)):
                self.verify(self.path / name)

    def summary(self) -> Summary:
        """Reads `training.json`; empty before a training has ended.

        Raises:
            UserError: If it is damaged.
        """
        if not self.done.exists():
            return Summary(steps=0)
        try:
            return Summary.model_validate_json(self.done.read_bytes())
        except OSError as error:
            raise UserError(
                f"{self.done} cannot be read: {error.strerror}. Copy it back, or remove it and run "
                "the command `train`, which writes it again"
            ) from None
        except ValidationError as error:
            fault = error.errors()[0]
            where = "".join(f"{key}: " for key in fault["loc"])
            raise UserError(
                f"{self.done} is damaged ({where}{fault['msg']}). Copy it back, or delete it and "
                "run the command `train`, which writes it again"
            ) from None

    def is_evaluated(self, config: Config) -> bool:
        """Returns whether the training has ended, and every split was evaluated with this
        very config.
        """
        if not self.is_complete or self._changes(config, ("output", "plugins")):
            return False
        begin = self.config.stat().st_mtime_ns
        splits = config.evaluation.splits
        files = [path for split in splits for path in (self.results(split), self.queries(split))]
        return all(path.exists() and path.stat().st_mtime_ns >= begin for path in files)

    def _changes(self, config: Config, free: tuple[str, ...]) -> list[str]:
        """Returns how the config differs from the config in the folder, if there is one."""
        if not self.config.exists():
            return []
        old, why = None, "it holds no config"
        try:
            old = yaml.safe_load(self.config.read_text("utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            why = str(error)
        if not isinstance(old, dict):
            raise ConfigError(
                f"{self.config} is damaged: {why}\nCopy it back, or delete it if the run was "
                "started with the config that there is now"
            )
        return _changes(old, config, free)


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
        RunFolder(config).check(config)


def load_run(folder: Path, overrides: Sequence[str] = ()) -> Config:
    """Loads the config of a run from its folder.

    Args:
        folder: Such as `saved_models/scenes_pcme`.
        overrides: Changes, as `load_config` takes them.

    Raises:
        ConfigError: If the folder has no run.
    """
    folder = folder if folder.name else folder.absolute()
    path = folder / "config.yaml"
    if not path.is_file():
        raise ConfigError(f"{folder} holds no run (no config.yaml); a run is in {_RUNS}")
    if any(change.partition("=")[0].strip() in ("name", "output") for change in overrides):
        raise ConfigError(f"{folder}: a run has the name and the place of its folder; copy that")
    # The folder may have been moved, copied or renamed since, or be named from elsewhere.
    place = {"output": folder.parent, "name": folder.name}
    config = load_config(path, overrides).model_copy(update=place)
    RunFolder(config).check_trained(load_config(path) if overrides else config)
    return config


def _fixed(config: Config) -> dict[str, Any]:
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
