"""The files of weights of a run: which there are, and by their checksums whether they are whole."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from keras_xmr.experiments.config.schema import Config
from keras_xmr.experiments.runs.configs import fixed_keys
from keras_xmr.experiments.runs.folder import RunFolder
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.files import atomic_write, checksum


def finish_training(
    folder: RunFolder,
    summary: Mapping[str, Any],
    config: Config,
    files: Iterable[str],
    new: Collection[str] = (),
) -> None:
    """Writes that the training has ended, with its config and the checksums of its files.

    Args:
        folder: The folder of the run.
        summary: Further entries.
        config: The config that it was made with.
        files: Paths of the evaluated and exported files in the folder.
        new: Files of them that were written just now. The checksums of others stay, if they
            were written before.
    """
    known = {name: value for name, value in folder.summary().sha256.items() if name not in new}
    missing = [f for f in files if f not in known and (folder.path / f).exists()]
    sums = known | {name: checksum(folder.path / name) for name in missing}
    content = {**summary, "config": fixed_keys(config), "sha256": sums}
    before = folder.summary()
    if before.exported in sums and before.best_step == summary.get("best_step", 0):
        content["exported"] = before.exported
    else:  # The exported model is of other weights.
        sums.pop(folder.model.name, None)
    atomic_write(folder.done, json.dumps(content, indent=2).encode())


def trained_weights(folder: RunFolder, config: Config) -> Path:
    """Returns the file with the weights that a config chooses, the best or the last.

    The file is `model.keras`, if it has the weights and no other file does.
    """
    name = _chosen(folder, config)
    path = folder.path / name
    if not path.exists() and folder.model.exists() and folder.summary().exported == name:
        return folder.model
    return path


def weights_checksum(folder: RunFolder, config: Config) -> str:
    """Returns the checksum of the weights that a config chooses, wherever they are.

    Raises:
        UserError: If their file is missing, or is `model.keras` and damaged.
    """
    path = trained_weights(folder, config)
    if path == folder.model:
        verify_file(folder, path)
        return folder.summary().sha256.get(_chosen(folder, config)) or checksum(path)
    if not path.is_file():
        verify_file(folder, path)
    return checksum(path)


def verify_file(folder: RunFolder, path: Path) -> None:
    """Checks that a file is unchanged since the training.

    Raises:
        UserError: If it is missing or damaged.
    """
    expected = folder.summary().sha256.get(str(path.relative_to(folder.path)))
    if not path.is_file():
        wrong = "is missing"
    elif expected not in (None, checksum(path)):
        wrong = f"is damaged: its checksum is not the one in {folder.done.name}"
    else:
        return
    kept = folder.summary().exported
    if path.name.endswith(".weights.h5") and kept is not None and folder.model.is_file():
        raise UserError(
            f"{path} {wrong}, and {folder.model.name} has the weights of {kept}, by "
            "`export.weights`, as it was when the run was exported. Set it back; "
            "export.keep_training_files keeps both kinds of weights of a later training"
        )
    raise UserError(
        f"{path} {wrong}. Copy it back, or train again in a folder without {folder.done.name}"
    )


def verify_tokenizer(folder: RunFolder) -> None:
    """Checks the files of the tokenizer.

    Raises:
        UserError: If one is missing or damaged.
    """
    for name in folder.summary().sha256:
        if not name.endswith((".weights.h5", folder.model.name)):
            verify_file(folder, folder.path / name)


def verify_model(folder: RunFolder) -> None:
    """Checks that the exported model is there, is of this run, and is whole.

    Raises:
        UserError: If not.
    """
    if not folder.model.is_file():
        raise UserError(
            f"{folder.path} has no exported model ({folder.model.name}); export the run first"
        )
    if folder.summary().sha256.get(folder.model.name) not in (None, checksum(folder.model)):
        raise UserError(
            f"{folder.model} is damaged, or of another run: its checksum is not the one in "
            f"{folder.done.name}; export the run again"
        )


def write_model(folder: RunFolder, write: Callable[[Path], None], config: Config) -> None:
    """Writes the exported model, and its checksum.

    Args:
        folder: The folder of the run.
        write: Writes the model to a path.
        config: Says which weights the model has.
    """
    # Until it is whole, the weights are read from their own files.
    if trained_weights(folder, config) == folder.model:
        return
    _keep_checksum(folder, None, config)  # Killed in between, the model is one without a checksum.
    write(folder.model)
    _keep_checksum(folder, checksum(folder.model), config)


def superfluous(folder: RunFolder) -> list[Path]:
    """Returns files and folders that a finished training and its exported model do not need.

    A training is resumed from some; the others are files of weights that `model.keras` has, too.
    """
    if not (folder.is_complete and folder.model.is_file()):
        return []
    exported = folder.summary().exported
    if exported is None or folder.summary().sha256.get(folder.model.name) is None:
        return []
    paths = (folder.checkpoints, folder.best_weights, folder.last_weights)
    return [path for path in paths if path.exists()]


def remove_superfluous(folder: RunFolder) -> None:
    """Removes all that `superfluous` names, after a look at the exported model.

    Raises:
        UserError: If the exported model is damaged.
    """
    if paths := superfluous(folder):
        verify_model(folder)
        for path in paths:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _chosen(folder: RunFolder, config: Config) -> str:
    """Returns the name of the file that a training writes the chosen weights to."""
    best = config.export.weights == "best" and folder.has_best
    return folder.best_weights.name if best else folder.last_weights.name


def _keep_checksum(folder: RunFolder, sha256: str | None, config: Config) -> None:
    summary = json.loads(folder.done.read_bytes())
    summary["exported"] = _chosen(folder, config) if sha256 else None
    sums = summary.setdefault("sha256", {})
    sums.pop(folder.model.name, None)
    sums |= {folder.model.name: sha256} if sha256 else {}
    atomic_write(folder.done, json.dumps(summary, indent=2).encode())
