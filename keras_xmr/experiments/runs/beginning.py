"""A training begins: what the folder of its run then holds, and what has to be as before."""

from __future__ import annotations

import shutil
from collections.abc import Mapping

from keras_xmr.experiments.config.schema import Config
from keras_xmr.experiments.runs.configs import check_config, write_config
from keras_xmr.experiments.runs.folder import RunFolder
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.files import atomic_write


def begin_training(folder: RunFolder, config: Config, files: Mapping[str, bytes]) -> None:
    """Prepares the folder for a training that begins or resumes.

    A training without a checkpoint removes the outputs of an earlier one.

    Args:
        folder: The folder of the run.
        config: The config.
        files: Files of the tokenizer: content by path.

    Raises:
        ConfigError: If the folder holds a run with another config.
    """
    check_config(folder, config)
    if not folder.goes_on:
        # The config too: older evaluations are recognised by its time.
        for path in (folder.done, folder.best_weights, folder.last_weights, folder.training_log):
            path.unlink(missing_ok=True)
        folder.model.unlink(missing_ok=True)
        if not folder.choices.exists():
            folder.baseline.unlink(missing_ok=True)
        folder.config.unlink(missing_ok=True)
        shutil.rmtree(folder.checkpoints, ignore_errors=True)
        folder.path.mkdir(parents=True, exist_ok=True)
        write_tokenizer(folder, files)
    write_config(folder, config)


def check_tokenizer(folder: RunFolder, kept: Mapping[str, bytes], now: Mapping[str, bytes]) -> None:
    """Checks that a training goes on with the tokenizer that it began with.

    Args:
        folder: The folder of the run.
        kept: Files of that tokenizer: content by path.
        now: The same of the tokenizer that there is now.

    Raises:
        UserError: If they differ.
    """
    if changed := [name for name in {**kept, **now} if kept.get(name) != now.get(name)]:
        raise UserError(
            f"the training in {folder.path} began with another vocabulary or tokenizer than "
            f"there is now ({changed[0]}): ids would mean other words. Give this run "
            "another name (--set name=...), or delete the folder"
        )


def keep_judgements(folder: RunFolder, config: Config) -> None:
    """Copies the file of judgements that a training begins with, since the file may change."""
    source = config.data.training_judgements
    if source is not None and not folder.has_judgements:
        atomic_write(folder.training_judgements, source.read_bytes())


def write_tokenizer(folder: RunFolder, files: Mapping[str, bytes]) -> None:
    """Writes the files of the tokenizer: content by path in the folder."""
    for name, content in files.items():
        path = folder.path / name
        path.parent.mkdir(exist_ok=True)
        atomic_write(path, content)
