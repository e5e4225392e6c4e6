"""Does steps of a run, which need TensorFlow."""

from __future__ import annotations

from data_pipelines.folders import check_folder
from keras_xmr.config.schema import Config
from keras_xmr.training.cluster import cluster_of


def do(config: Config, step: str) -> None:
    """Does a step of a run, once it is clear that its results can be written.

    Args:
        config: The config of the run.
        step: The method of `keras_xmr.pipeline.Run` that does it.

    Raises:
        UserError: If a folder cannot be written to, or as the step raises it.
    """
    _check_folders(config, step)

    from keras_xmr.pipeline import run

    run(config, step)


def _check_folders(config: Config, step: str) -> None:
    if not cluster_of().is_chief:
        return
    if step != "prepare":
        check_folder(config.folder)
    if step == "prepare" or (step == "all" and not config.data.is_prepared):
        check_folder(config.data.records)
