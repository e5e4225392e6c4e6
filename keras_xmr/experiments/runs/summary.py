"""The summary of a training, `training.json`, and the choices of its part in closed form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from keras_xmr.experiments.config.train_section import CCAOptions
from keras_xmr.utils.errors import UserError


class Choices(BaseModel):
    """The choices of a model with a part in closed form.

    Attributes:
        cca: The options of CCA, one value of each.
        local_scaling: Whether cosines are scaled locally (CSLS).
        weight: The weight of the closed form.
        is_trained: Whether validation has gained by training.
        epochs: Number of epochs until the best validation.
        rank_strengths: The strengths of the predictions of ranks, of "images" and "captions".
    """

    cca: CCAOptions
    local_scaling: bool
    weight: float
    is_trained: bool
    epochs: int = 0
    rank_strengths: dict[str, float] = {}


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
        records: The digest of the records that the model was trained on.
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
    records: str | None = None
    config: dict[str, Any] = {}
    sha256: dict[str, str] = {}


def read_summary(path: Path) -> Summary:
    """Reads `training.json`; empty before a training has ended.

    Raises:
        UserError: If it is damaged.
    """
    if not path.exists():
        return Summary(steps=0)
    try:
        return Summary.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UserError(
            f"{path} cannot be read: {error.strerror}. Copy it back, or remove it and run "
            "the command `train`, which writes it again"
        ) from None
    except ValidationError as error:
        fault = error.errors()[0]
        where = "".join(f"{key}: " for key in fault["loc"])
        raise UserError(
            f"{path} is damaged ({where}{fault['msg']}). Copy it back, or delete it and "
            "run the command `train`, which writes it again"
        ) from None
