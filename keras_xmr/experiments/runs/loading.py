"""The trained model of a run, also as the start of another training."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import keras

from data_pipelines.records import Records
from data_pipelines.text import Tokenizer
from keras_xmr.encoders import EncoderError
from keras_xmr.experiments.build import build_model
from keras_xmr.experiments.config.differences import differences
from keras_xmr.experiments.config.schema import Config
from keras_xmr.experiments.runs.configs import load_run
from keras_xmr.experiments.runs.folder import RunFolder
from keras_xmr.experiments.runs.weight_files import trained_weights, verify_file, verify_model
from keras_xmr.model.retriever import Retriever
from keras_xmr.utils.errors import ConfigError, UserError
from keras_xmr.utils.files import user_path


class UnreadableWeightsError(UserError):
    """Weights of a run cannot be read; the message names the reason and the remedy."""


def load_retriever(
    config: Config, records: Records, tokenizer: Tokenizer, reads: bool = True
) -> Retriever:
    """Builds the model of a finished run, and loads its trained weights.

    Where the folder of a pretrained encoder is gone, the exported model describes the encoder.

    Args:
        config: The config of the run.
        records: The records, for the shape of region features; or `build.PHOTOS`.
        tokenizer: The tokenizer that the model was trained with.
        reads: Whether this worker reads the weights; of several the chief alone does, and all
            make the variables together.

    Raises:
        UserError: If the file of the weights is missing or damaged.
        EncoderError: If the folder of an encoder is gone, and there is no exported model.
    """
    folder = RunFolder(config)
    try:
        model = build_model(config, records, tokenizer, pretrained=False)
    except EncoderError as error:
        # The description of an encoder is gone, and the exported model has it too.
        if not folder.model.is_file():
            raise EncoderError(
                f"{folder.model} is missing, which describes the encoders of this run. Copy it "
                f"back, or the folder of the encoder: {error}"
            ) from None
        verify_model(folder)
        model = keras.models.load_model(folder.model, compile=False)
    plain = model.without_optimizer()
    if reads:
        load_trained(plain, config, folder)
        model.global_step.assign(plain.global_step)
    return model


def load_trained(model: Retriever, config: Config, folder: RunFolder) -> None:
    """Loads the weights of a finished training that the config chooses.

    Args:
        model: The model, without an optimizer.
        config: The config, whose `export.weights` is "best" or "last"; without a validation split
            there are only the last ones.
        folder: The run.

    Raises:
        UserError: If the file of the weights is missing or damaged.
    """
    path = trained_weights(folder, config)
    verify_file(folder, path)
    try:
        with _weights_file(path) as file:
            model.load_weights(file)
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise UnreadableWeightsError(
            f"{path} cannot be read: {reason}. Copy it back, or delete {folder.checkpoints} and "
            "train again"
        ) from None


_IN_ARCHIVE = "model.weights.h5"


@contextmanager
def _weights_file(path: Path) -> Iterator[Path]:
    """Yields a file of weights alone: of `model.keras`, a temporary copy of the weights in it.

    Keras reads weights within an archive from the beginning of the archive for each of them.
    """
    if path.suffix != ".keras":
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        try:
            with ZipFile(path) as archive:
                file = Path(archive.extract(_IN_ARCHIVE, folder))
        except (OSError, BadZipFile, KeyError):  # The disk may be full.
            file = path
        yield file


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
    theirs, ours = (c.model.model_dump(mode="json") for c in (other, config))
    if (changed := next(differences(theirs, ours, key="model"), None)) is not None:
        raise ConfigError(
            f"{_KEY}: {run} has another model ({changed.key}); take its model section"
        )
    return other


_GLOVE = (
    "; GloVe's are at https://nlp.stanford.edu/projects/glove/, and null learns vectors from "
    "scratch"
)


def check_files(config: Config) -> None:
    """Checks that all files that the config names exist, before hours of work that need them.

    Raises:
        ConfigError: If one does not; all of them are named.
    """
    named: dict[str, Any] = {"data.training_judgements": config.data.training_judgements}
    if (labels := config.evaluation.labels) is not None and not labels.optional:
        named |= {f"evaluation.labels.{key}": getattr(labels, key) for key in ("instances", "ids")}
    files = config.data.source.judgement_files()
    for number, section in enumerate(config.evaluation.judgements):
        named[f"evaluation.judgements.{number}"] = files.get(section.source)
    for side, tower in config.model.towers.items():
        options = tower.encoder.options()
        for option in ("vectors", "weights", "preset"):
            value = options.get(option)
            # Names of weights and of presets are not files, and addresses are fetched.
            if option == "vectors" or (os.sep in str(value) and "://" not in str(value)):
                named[f"model.{side}.encoder.{option}"] = value
    missing = [
        f"{key}: {path} does not exist{_GLOVE if key.endswith('vectors') else ''}"
        for key, path in named.items()
        if path is not None and not user_path(path).exists()
    ]
    if missing:
        raise ConfigError("\n".join(missing))


def load_initial_weights(model: Retriever, config: Config) -> None:
    """Gives a model the weights of the run that `train.initial_weights` names, if it names one.

    Args:
        model: The model, without an optimizer.
        config: The config.

    Raises:
        UserError: If they are missing, damaged, or of another model.
    """
    other = check_initial_weights(config)
    if other is None:
        return
    try:
        load_trained(model, other, RunFolder(other))
    except UnreadableWeightsError as error:
        raise UserError(f"{_KEY}: {error}") from None
