"""Deletes what finished runs no longer need: checkpoints, and copies of their weights.

A run needs none of it for search, evaluation, export or updates. All that would be deleted is
listed first, with its size, and nothing is deleted without a yes.

examples:
  keras-xmr clean
  keras-xmr clean --run=saved_models/csv_pretrained --yes
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from keras_xmr.commands._options import add_path
from keras_xmr.utils.errors import UserError

if TYPE_CHECKING:
    from keras_xmr.experiments.runs.folder import RunFolder

_OUTPUT = Path("saved_models")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    text = "folder of a finished run; default: all runs in saved_models"
    add_path(parser, "--run", "FOLDER", text)
    parser.add_argument("--yes", action="store_true", help="delete without a question")


def run(arguments: argparse.Namespace) -> None:
    """Lists what may go, asks, and deletes it."""
    from keras_xmr.experiments.runs.folder import RunFolder
    from keras_xmr.experiments.runs.weight_files import remove_superfluous
    from keras_xmr.utils.files import locked

    if arguments.run is not None:
        runs = [arguments.run]
        _check_run(arguments.run)
    else:
        runs = sorted(path.parent for path in _OUTPUT.glob("*/config.yaml"))
    # Not by their configs, which import TensorFlow.
    folders = [RunFolder(path) for path in runs]
    listed = {folder: paths for folder in folders if (paths := _may_go(folder))}
    total = 0
    for path in (path for paths in listed.values() for path in paths):
        total += (size := _size(path))
        print(f"{_megabytes(size):>12}  {path}")
    if not listed:
        print("nothing to delete")
        return
    print(f"{_megabytes(total):>12}  together")
    if not (arguments.yes or _agrees()):
        print("nothing was deleted")
        return
    for folder, paths in listed.items():
        with locked(folder.path):
            remove_superfluous(folder)
            for path in paths:
                shutil.rmtree(path, ignore_errors=True)
    print(f"deleted {_megabytes(total)}")


def _check_run(path: Path) -> None:
    """Checks that a folder is one of a run.

    Raises:
        ConfigError: If it is not.
    """
    if not (path / "config.yaml").is_file():
        from keras_xmr.experiments.runs.configs import load_run

        load_run(path)


def _may_go(folder: RunFolder) -> list[Path]:
    """Lists the files that a finished run does not need, and its SavedModels but the newest."""
    from keras_xmr.experiments.runs.weight_files import superfluous

    paths = superfluous(folder)
    if not folder.is_complete:
        return []
    versions = sorted(
        (path for path in folder.serving.glob("*") if path.name.isdecimal()),
        key=lambda path: int(path.name),
    )
    return [*paths, *versions[:-1]]


def _agrees() -> bool:
    """Asks on a terminal.

    Raises:
        UserError: If there is none to ask on.
    """
    if not sys.stdin.isatty():
        raise UserError("there is no terminal to ask on; add --yes to delete all of it")
    return input("Delete all of it? [y/N] ").strip().lower() in ("y", "yes")


def _size(path: Path) -> int:
    files = [path] if path.is_file() else path.rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file())


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
