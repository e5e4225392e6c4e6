"""What is in a run: its records, tokenizer and model, each read when it is first used."""

from __future__ import annotations

import logging
from functools import cached_property

from data_pipelines.prepare import check_origin
from data_pipelines.records import Records
from data_pipelines.shards import RecordsError
from data_pipelines.source_changes import source_change
from data_pipelines.text import Tokenizer
from keras_xmr.experiments.build import PHOTOS, restore_tokenizer
from keras_xmr.experiments.config.schema import Config
from keras_xmr.experiments.runs.configs import write_config
from keras_xmr.experiments.runs.folder import RunFolder
from keras_xmr.experiments.runs.frozen_features import with_features
from keras_xmr.experiments.runs.loading import load_retriever
from keras_xmr.experiments.runs.weight_files import verify_tokenizer
from keras_xmr.experiments.trained_model import TrainedModel
from keras_xmr.model.retriever import Retriever
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.program import update_hint

_LOGGER = logging.getLogger(__name__)


class RunContents:
    """The config of a run, and what its folder and its records hold.

    Args:
        config: The config.

    Attributes:
        folder: The paths of the outputs, below `output/name`.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.folder = RunFolder(config)

    @cached_property
    def records(self) -> Records:
        """The finished records."""
        data = self.config.data
        check_origin(data)
        records = Records.open(data.records)
        if change := source_change(data, records):
            if not (self.folder.has_begun or self.folder.done.exists()):
                raise RecordsError(
                    f"{change}. Delete {data.records} and start again, which writes the records of "
                    "the present data; or set data.source.root to a folder that does not exist, "
                    "and the records serve as they are"
                )
            _LOGGER.warning(
                "%s. This run uses the records that it began with; %s takes over the present data",
                change,
                update_hint(self.folder.path),
            )
        return records

    @cached_property
    def embedded_records(self) -> Records:
        """The records as the trained model embeds them; see `with_features`."""
        return with_features(
            self.records,
            self.retriever,
            self.tokenizer,
            self.config,
            self.config.evaluation.splits,
        )

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that the model was trained with."""
        self._check_trained()
        verify_tokenizer(self.folder)
        return restore_tokenizer(self.config, self.folder.path)

    @cached_property
    def retriever(self) -> Retriever:
        """The Keras model, trained."""
        self._check_trained()
        write_config(self.folder, self.config)
        records = PHOTOS if self.config.data.source.holds == "images" else self.records
        return load_retriever(self.config, records, self.tokenizer)

    @property
    def model(self) -> TrainedModel:
        """The trained model with its tokenizer, which embeds and scores photos and texts."""
        return TrainedModel(self.config, self.retriever, self.tokenizer)

    def _check_trained(self) -> None:
        if not self.folder.done.exists():
            raise UserError(
                f"{self.folder.path} holds no finished training; run the command `train` first"
            )
