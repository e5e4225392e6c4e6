"""Runs steps of a run, which need TensorFlow."""

from __future__ import annotations

from pathlib import Path

from data_pipelines.errors import UserError
from data_pipelines.files import check_folder
from keras_xmr.config.model_compatibility import is_as_published
from keras_xmr.config.schema import Config
from keras_xmr.runs.cluster import cluster_of
from keras_xmr.runs.folder import RunFolder


def do(config: Config, step: str) -> None:
    """Runs a step of a run, after a check that its results can be written.

    Args:
        config: The config of the run.
        step: The name of a method of `keras_xmr.pipeline.run.Run`.

    Raises:
        UserError: If a folder cannot be written to, or as the step raises it.
    """
    if cluster_of().is_chief:
        _check_folders(config, step)

    from keras_xmr.pipeline.run import run

    run(config, step)


def _check_folders(config: Config, step: str) -> None:
    if step != "prepare":
        check_folder(config.folder)
    prepares = step == "all" or (step == "evaluate" and is_as_published(config))
    if step == "prepare" or (prepares and not config.data.is_prepared):
        check_folder(config.data.records)
        root = getattr(config.data.source, "root", None)
        if isinstance(root, Path) and not root.exists():
            raise UserError(
                f"{root} does not exist; data.source.root names the folder of the data. "
                f"{config.data.source.origin}"
            )
    # Last: of a wrong folder of data it would only say that another run had another one.
    if step in ("all", "train"):
        RunFolder(config).check(config)
