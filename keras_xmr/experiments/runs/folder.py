"""The folder that holds everything a run makes."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from keras_xmr.experiments.config.schema import Config
from keras_xmr.experiments.config.train_section import CCAOptions
from keras_xmr.experiments.runs.summary import Choices, Summary, read_summary
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.files import atomic_write, remove_stale_temporaries


class RunFolder:
    """Paths of the outputs of a run, under `<output>/<name>/`.

    Args:
        run: The config of the run, or its folder.
    """

    def __init__(self, run: Config | Path) -> None:
        self.path = run if isinstance(run, Path) else run.folder
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
        self.baseline = self.path / "baseline.json"
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

    def summary(self) -> Summary:
        """Reads `training.json`; empty before a training has ended.

        Raises:
            UserError: If it is damaged.
        """
        return read_summary(self.done)

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

    def kept_baseline(self) -> CCAOptions | None:
        """Returns the options of the linear model that the model is compared with, once chosen."""
        try:
            return CCAOptions.model_validate_json(self.baseline.read_bytes())
        except (OSError, ValidationError):
            return None

    def keep_baseline(self, options: CCAOptions) -> None:
        """Writes the options of the linear model that the model is compared with."""
        self.path.mkdir(parents=True, exist_ok=True)
        atomic_write(self.baseline, options.model_dump_json(indent=2).encode())

    @property
    def has_begun(self) -> bool:
        """Whether a training has saved a checkpoint, from which the next one goes on."""
        saved = self.checkpoints / "checkpoint"
        return saved.exists() or any(self.checkpoints.glob("ckpt-*.index"))

    @property
    def is_complete(self) -> bool:
        """Whether a training has ended."""
        return self.done.exists() and self.summary().is_complete

    @property
    def is_trained(self) -> bool:
        """Whether a training has ended, and its weights are there."""
        return self.is_complete and (self.last_weights.exists() or self.model.exists())

    @property
    def goes_on(self) -> bool:
        """Whether the next training goes on from what there is, or has nothing left to do."""
        return self.has_begun or self.is_trained

    @property
    def has_judgements(self) -> bool:
        """Whether a training has begun, with judgements of which the folder has a copy."""
        return self.goes_on and self.training_judgements.exists()

    @property
    def has_best(self) -> bool:
        """Whether the training has saved best weights, even if the file is missing."""
        return self.best_weights.exists() or self.best_weights.name in self.summary().sha256

    def remove_temporary_files(self) -> None:
        """Removes temporary files of killed processes from the folders of the run."""
        inner = (path for name in ("evaluation", "audit") for path in self.path.glob(f"{name}/*"))
        for folder in (self.logs, self.checkpoints, self.path / "relevance", *inner):
            remove_stale_temporaries(folder)
