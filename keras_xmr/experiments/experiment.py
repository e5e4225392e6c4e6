"""An experiment: from a config to records, a trained model, its evaluation and its exports."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

import keras

from data_pipelines.prepare import prepare
from data_pipelines.report import data_report
from data_pipelines.sources import Split
from data_pipelines.text import Tokenizer
from keras_xmr.experiments import run_evaluation, run_exports
from keras_xmr.experiments.build import build_tokenizer, encoder_tokenizer, restore_tokenizer
from keras_xmr.experiments.config.evaluation_section import EvaluationOptions
from keras_xmr.experiments.config.loader import load_config, override
from keras_xmr.experiments.config.model_facts import is_as_published
from keras_xmr.experiments.config.packaged_configs import find_config
from keras_xmr.experiments.config.schema import Config
from keras_xmr.experiments.evaluation.advice import advice_before_training
from keras_xmr.experiments.evaluation.evaluate import plan_memory
from keras_xmr.experiments.reports.evaluation_report import PAGE, ReportPage
from keras_xmr.experiments.run_contents import RunContents
from keras_xmr.experiments.run_texts import print_paragraphs, what_next
from keras_xmr.experiments.runs.beginning import check_tokenizer
from keras_xmr.experiments.runs.cluster import cluster_of
from keras_xmr.experiments.runs.configs import check_config, check_folders, load_run
from keras_xmr.experiments.runs.loading import check_files, check_initial_weights
from keras_xmr.experiments.runs.outcome import outcome_of_training
from keras_xmr.experiments.training.distribution import (
    LOST,
    Distribution,
    limit_threads,
    lost_worker,
)
from keras_xmr.experiments.training.train import train
from keras_xmr.metrics import ScoreMatrices
from keras_xmr.metrics.results import Results
from keras_xmr.model.retriever import Retriever
from keras_xmr.utils.errors import ArgumentError, UserError
from keras_xmr.utils.files import locked
from keras_xmr.utils.notebooks import in_notebook, show_log

_LOGGER = logging.getLogger(__name__)


class Experiment(RunContents):
    """A config, and everything that is made from it in its folder.

    Each step locks the folder while it works. Results are printed, and returned. An interrupted
    step resumes when it is called again. The same folder serves the command line.

    Args:
        config: The name of a packaged config, such as `csv_pretrained`, a YAML file, the folder of
            a run, or a config that was loaded.
        changes: Values of keys, such as `{"data.source.root": "my_photos"}`.

    Attributes:
        config: The config with these changes.
        folder: The paths of the outputs, below `output/name`.

    Raises:
        ArgumentError: If there are changes of a config that was loaded.
        ConfigError: If the config does not exist or is not valid; the message names the key.
    """

    def __init__(
        self, config: str | Path | Config, changes: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(_load(config, [override(*item) for item in (changes or {}).items()]))
        self._is_working = False
        self._has_reported = False
        if in_notebook():
            show_log()

    def run(self) -> None:
        """Prepares the records if they are missing, trains, evaluates, and exports.

        Of several workers all train, and the chief does the rest. `results` and `report` have the
        evaluation.
        """
        with self._working(records=True, trains=True):
            self._check_files()
            distribution = self.distribution
            if distribution.is_chief and not self.config.data.is_prepared:
                self.prepare()
            distribution.wait()
            for split in self.config.evaluation.splits if distribution.is_chief else ():
                plan_memory(self.config, self.records, self.records.split(split))
            self._train(on_closed_form=self._report_closed_form)
            if distribution.is_chief:
                self._finish()
            distribution.wait()

    def _finish(self) -> None:
        """Evaluates and exports the model that `run` has trained, and says what comes next."""
        texts = list(run_evaluation.evaluate_splits(self, is_brief=True))
        # Where nothing that was trained is used, the Keras model has been exported.
        if self._has_reported and not self.folder.summary().best_step:
            run_exports.write_saved_model(self)
        else:
            self.export()
        outcome = outcome_of_training(self.folder.summary())
        print_paragraphs(*texts, *filter(None, [outcome]), what_next(self.config, self.folder))

    def _report_closed_form(self, model: Retriever) -> None:
        """Evaluates and exports a model whose closed form is finished, before it is trained."""
        self.retriever = model
        texts = list(run_evaluation.evaluate_splits(self, is_brief=True))
        run_exports.write_keras(self)
        del self.retriever
        self._has_reported = True
        print_paragraphs(*texts)
        _LOGGER.info("== train: %s can be searched now; the training goes on", self.folder.path)

    def prepare(self) -> None:
        """Writes the records, and reports on the data."""
        with self._working(run=False, records=True):
            _LOGGER.info("== prepare: %s", self.config.data.records)
            tokenizer = self._encoder_tokenizer
            self.records = prepare(self.config.data)
            print(data_report(self.records, self.config.data.text, tokenizer), flush=True)

    def train(self, callbacks: Sequence[keras.callbacks.Callback] = ()) -> None:
        """Trains the model, or resumes an interrupted training.

        Args:
            callbacks: Called after the callbacks of the training itself.
        """
        self._train(callbacks)

    def _train(
        self,
        callbacks: Sequence[keras.callbacks.Callback] = (),
        on_closed_form: Callable[[Retriever], None] | None = None,
    ) -> None:
        """Trains the model; see `keras_xmr.experiments.training.train.train`."""
        with self._working(trains=True):
            _LOGGER.info("== train: %s", self.folder.path)
            distribution = self.distribution
            if distribution.is_chief:
                check_config(self.folder, self.config)
            self._check_files()
            tokenizer = build_tokenizer(self.config, self.records, self._encoder_tokenizer)
            if distribution.is_chief:
                self._check_resumed(tokenizer)
                images = len(self.records.split("train"))
                if warning := advice_before_training(self.config, images):
                    _LOGGER.warning("%s", warning)
            if distribution.is_alone:
                self.tokenizer = tokenizer
            model = train(
                self.config,
                self.folder,
                self.records,
                tokenizer,
                distribution,
                callbacks,
                on_closed_form if distribution.is_alone else None,
            )
            distribution.wait()
            if distribution.is_alone:
                # Of several workers the chief alone goes on, with a model that is not shared.
                self.retriever = model

    def _check_files(self) -> None:
        """Checks the files of others that a training begins with, before anything is done."""
        check_initial_weights(self.config)
        if not self.folder.goes_on:
            check_files(self.config)

    def _check_resumed(self, tokenizer: Tokenizer) -> None:
        """Checks that a training goes on with the tokenizer that it began with."""
        if self.folder.goes_on:
            kept = restore_tokenizer(self.config, self.folder.path)
            check_tokenizer(self.folder, kept.files(), tokenizer.files())

    def evaluate(self, is_brief: bool = False) -> Results:
        """Evaluates the trained model, writes reports, and prints tables.

        Of a published model the records are prepared if they are missing.

        Args:
            is_brief: Whether a summary is printed in place of all tables.

        Returns:
            The results, as `results` has them.
        """
        prepares = is_as_published(self.config)
        with self._working(records=prepares):
            if prepares and not self.config.data.is_prepared:
                self.prepare()
            for text in run_evaluation.evaluate_splits(self, is_brief):
                print_paragraphs(text)
        return self.results

    @property
    def results(self) -> Results:
        """The results of the last evaluation, one long table of all splits.

        Raises:
            UserError: If the run has not been evaluated, or a table is damaged.
        """
        tables = (self._results(split) for split in self.config.evaluation.splits)
        return sum(tables, Results())

    def _results(self, split: Split) -> Results:
        path = self.folder.results(split)
        if not path.exists():
            raise UserError(f"{path} does not exist; evaluate the run first")
        try:
            return Results.read(path)
        except (OSError, ValueError) as error:
            raise UserError(f"{path} cannot be read ({error}); evaluate the run again") from None

    def report(self, split: Split = "test") -> ReportPage:
        """Returns the report of the last evaluation of a split, which a notebook shows.

        Raises:
            UserError: If the split has not been evaluated.
        """
        path = self.folder.evaluation(split) / PAGE
        if not path.exists():
            raise UserError(f"{path} does not exist; evaluate the run first")
        return ReportPage(path)

    def with_evaluation(self, options: EvaluationOptions) -> Experiment:
        """Returns an experiment with other options of the evaluation, and the model of this one.

        Args:
            options: The options.
        """
        other = type(self)(self.config.model_copy(update={"evaluation": options}))
        for name in ("records", "tokenizer", "retriever"):
            if name in self.__dict__:
                setattr(other, name, self.__dict__[name])
        return other

    def score(self, split: Split) -> ScoreMatrices:
        """Returns the scores of a split by the matcher of the model, as tiles."""
        return run_evaluation.score_split(self, split)

    def tune_reranker(self) -> None:
        """Searches the scales of fast re-ranking on the validation split, and prints the best."""
        with self._working():
            run_evaluation.tune_reranker(self)

    def export(self, earlier: Path | None = None) -> None:
        """Writes `model.keras` and the SavedModel; then removes what only the training needed.

        Args:
            earlier: The folder of the run before it was trained again. Its SavedModel is taken with
                the weights of now, if that equals the model.
        """
        with self._working():
            _LOGGER.info("== export")
            run_exports.write_keras(self)
            run_exports.write_saved_model(self, earlier)

    def export_onnx(self) -> None:
        """Writes the towers as ONNX."""
        with self._working():
            _LOGGER.info("== export as ONNX")
            run_exports.write_onnx(self)

    def write_relevance(self) -> None:
        """Writes how relevant each caption is to each image."""
        with self._working():
            run_evaluation.write_relevance(self)

    @contextmanager
    def _working(
        self, *, run: bool = True, records: bool = False, trains: bool = False
    ) -> Iterator[None]:
        """Locks the folder of the run during a step, and logs how long it took.

        Args:
            run: Whether the step writes into the folder of the run.
            records: Whether it writes records, if they are missing.
            trains: Whether it trains.

        Raises:
            LockedError: If another process works in the folder.
            UserError: For every fault that the user can correct.
        """
        if self._is_working:  # A step of `run`.
            yield
            return
        begin, cluster = time.perf_counter(), cluster_of()
        limit_threads(self.config.train.operation_threads)
        if cluster.is_chief:
            check_folders(self.config, run=run, records=records, trains=trains)
        writes = run and cluster.is_chief
        self._is_working = True
        try:
            with locked(self.config.folder) if writes else nullcontext():
                if writes:
                    self.folder.remove_temporary_files()
                yield
        except LOST as error:
            if cluster.count == 1:
                raise
            raise lost_worker(error) from error
        finally:
            self._is_working = False
        minutes, seconds = divmod(round(time.perf_counter() - begin), 60)
        _LOGGER.info("done in %d min %d s", minutes, seconds)

    @cached_property
    def distribution(self) -> Distribution:
        """The devices and workers. Several workers must access it before anything is computed."""
        options = self.config.train
        return Distribution(options.batch_size, options.devices, cluster_of())

    @cached_property
    def _encoder_tokenizer(self) -> Tokenizer | None:
        """The tokenizer of the text encoder, loaded once: Keras would rename a second one."""
        return encoder_tokenizer(self.config)


def _load(config: str | Path | Config, changes: Sequence[str]) -> Config:
    """Loads a config by its name, its file or the folder of its run, with changes."""
    if isinstance(config, Config):
        if changes:
            raise ArgumentError("changes need a config by its name or file, not a loaded one")
        return config
    path = Path(config)
    if path.is_dir():
        return load_run(path, changes)
    return load_config(find_config(str(config), "config"), changes)
