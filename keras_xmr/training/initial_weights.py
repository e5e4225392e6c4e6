"""Weights of a finished run as the start of a training."""

from __future__ import annotations

from data_pipelines.errors import UserError
from keras_xmr.config.loader import ConfigError
from keras_xmr.config.schema import Config
from keras_xmr.model.retriever import Retriever
from keras_xmr.runs.folder import RunFolder, load_run
from keras_xmr.runs.loading import WeightsError, load_trained

_KEY = "train.initial_weights"


def check_initial_weights(config: Config) -> Config | None:
    """Checks that the run of `train.initial_weights` exists, and has the same model.

    Returns:
        The config of that run; None without the option.

    Raises:
        UserError: If not.
    """
    run = config.train.initial_weights
    if run is None:
        return None
    try:
        other = load_run(run)
    except ConfigError as error:
        raise ConfigError(f"{_KEY}: {error}") from None
    if not RunFolder(other).done.exists():
        raise UserError(f"{_KEY}: {run} holds no finished training")
    ours, theirs = (c.model.model_dump(mode="json") for c in (config, other))
    if changed := [key for key in ours if ours[key] != theirs[key]]:
        raise ConfigError(
            f"{_KEY}: {run} has another model (model.{changed[0]}); take its model section"
        )
    return other


def load_initial_weights(model: Retriever, config: Config) -> None:
    """Gives a model the weights of the run that `train.initial_weights` names, if it names one.

    Args:
        model: The model, without an optimizer.
        config: Its config.

    Raises:
        UserError: If they are missing, damaged, or of another model.
    """
    other = check_initial_weights(config)
    if other is None:
        return
    try:
        load_trained(model, other, RunFolder(other))
    except WeightsError as error:
        raise UserError(f"{_KEY}: {error}") from None
