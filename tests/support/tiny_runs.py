"""Runs of the tiny config: one that is trained once for all tests, and others that are soon had."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
from pathlib import Path
from typing import Any

import graphs
import models
import pytest
from filelock import FileLock
from matplotlib.figure import Figure

from keras_xmr.experiments import run_evaluation
from keras_xmr.experiments.build import build_model, build_tokenizer
from keras_xmr.experiments.evaluation.split_evaluation import Evaluation
from keras_xmr.experiments.experiment import Experiment
from keras_xmr.experiments.run_texts import report
from keras_xmr.experiments.runs.beginning import begin_training

RECURRENT = "model.text.pooling=bi_gru"


def trained_once(folder: Path) -> Experiment:
    """A run with a recurrent pooling, in a folder that all processes of the tests share."""
    folder.mkdir(exist_ok=True)
    with FileLock(folder / "lock"):
        run = Experiment(models.tiny_config(folder, RECURRENT))
        if not run.folder.done.exists():
            run.prepare()
            with graphs.optimized():
                run.train()
    return run


def copy_of(trained: Experiment, folder: Path, *overrides: str) -> Experiment:
    """A copy of a trained run that may be written to; the records stay where they are.

    Args:
        trained: The run.
        folder: Takes the copy.
        overrides: What changes; a name, too.
    """
    records = f"data.records={trained.config.data.records}"
    run = Experiment(models.tiny_config(folder, RECURRENT, records, *overrides))
    shutil.copytree(trained.folder.path, run.folder.path)
    return run


def sharing(run: Experiment, trained: Experiment) -> Experiment:
    """Gives a copy the model of the trained run, which takes longer to load than to evaluate."""
    run.tokenizer, run.retriever = trained.tokenizer, trained.retriever
    return run


def in_memory(run: Experiment) -> Experiment:
    """Gives a run a model that has not learned anything and is in no file."""
    run.tokenizer = build_tokenizer(run.config, run.records)
    run.retriever = build_model(run.config, run.records, run.tokenizer, pretrained=True)
    return run


def untrained(run: Experiment) -> Experiment:
    """Leaves a run as a training does, though it has not learned anything."""
    tokenizer = build_tokenizer(run.config, run.records)
    begin_training(run.folder, run.config, tokenizer.files())
    model = build_model(run.config, run.records, tokenizer, pretrained=True)
    model.without_optimizer().save_weights(run.folder.last_weights)
    run.folder.done.write_text(json.dumps({"steps": 0}))
    return run


def shared_folder(base: Path) -> Path:
    """A folder that all processes of the tests know.

    Args:
        base: The temporary folder of this process; with pytest-xdist it lies in that of all.
    """
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared"


def evaluated(run: Experiment) -> tuple[Evaluation, str]:
    """What the command `evaluate` finds in the last split, and what it prints."""
    found = []

    def keep(evaluation: Evaluation, *more: Any) -> str:
        found.append(evaluation)
        return report(evaluation, *more)

    with pytest.MonkeyPatch.context() as patch, graphs.eager():
        patch.setattr(run_evaluation, "report", keep)
        patch.setattr(Figure, "tight_layout", lambda self: None)  # It draws all twice.
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            run.evaluate()
    return found[-1], printed.getvalue()
