"""The trained model of a run."""

from __future__ import annotations

from data_pipelines.errors import UserError
from data_pipelines.records import Records
from data_pipelines.text import Tokenizer
from keras_xmr.config.schema import Config
from keras_xmr.model.build import build_model
from keras_xmr.model.retriever import Retriever
from keras_xmr.runs.folder import RunFolder


class WeightsError(UserError):
    """Weights of a run cannot be read; the message names the reason and the remedy."""


def load_retriever(
    config: Config, records: Records, tokenizer: Tokenizer, reads: bool = True
) -> Retriever:
    """Builds the model of a finished run, and loads its trained weights.

    Args:
        config: The config of the run.
        records: The records, for the shape of region features; or `keras_xmr.model.build.PHOTOS`.
        tokenizer: The tokenizer that the model was trained with.
        reads: Whether this worker reads the weights; of several the chief alone does, and all
            make the variables together.

    Raises:
        UserError: If the file of the weights is missing or damaged.
    """
    model = build_model(config, records, tokenizer, pretrained=False)
    bare = model.without_optimizer()
    if reads:
        load_trained(bare, config, RunFolder(config))
        model.global_step.assign(bare.global_step)
    return model


def load_trained(model: Retriever, config: Config, folder: RunFolder) -> None:
    """Loads the weights of a finished training that the config chooses.

    Args:
        model: The model, without an optimizer.
        config: Its `export.weights` is "best" or "last"; without a validation split there are
            only the last ones.
        folder: The run.

    Raises:
        UserError: If the file of the weights is missing or damaged.
    """
    path = folder.trained_weights(config)
    folder.verify(path)
    try:
        model.load_weights(path)
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise WeightsError(
            f"{path} cannot be read: {reason}. Copy it back, or delete {folder.checkpoints} and "
            "train again"
        ) from None
