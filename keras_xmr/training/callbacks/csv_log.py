"""One line an epoch, for spreadsheets."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from data_pipelines.files import atomic_write
from keras_xmr.training.callbacks.base import StepCallback


class CsvLog(StepCallback):
    """Writes losses and validation metrics of every epoch.

    A training that goes on after a kill drops the lines of steps that it does again.

    Args:
        path: The file.
        steps_per_epoch: Steps an epoch.
    """

    def __init__(self, path: Path, steps_per_epoch: int) -> None:
        super().__init__()
        self.path = path
        self.steps_per_epoch = steps_per_epoch

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        rows = []
        if self.path.exists():
            with self.path.open(newline="") as file:
                rows = [row for row in csv.DictReader(file) if int(row["step"]) < self.step]
        row = {"epoch": self.step // self.steps_per_epoch, "step": self.step}
        row |= {name: f"{float(value):.6g}" for name, value in sorted((logs or {}).items())}
        rows.append({name: str(value) for name, value in row.items()})
        names = list(dict.fromkeys(name for row in rows for name in row))
        text = io.StringIO()
        writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        atomic_write(self.path, text.getvalue().encode())
