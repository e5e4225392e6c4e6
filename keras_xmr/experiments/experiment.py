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

from data_pipelines.prepare import check_origin, prepare
from data_pipelines.records import Records
from data_pipelines.report import data_report
from data_pipelines.shards import RecordsError
from data_pipelines.source_changes import source_change
from data_pipelines.sources import Split
from data_pipelines.text import Tokenizer
from keras_xmr.experiments.build import (
    PHOTOS,
    build_tokenizer,
    encoder_tokenizer,
    restore_tokenizer,
)
from keras_xmr.experiments.config.evaluation_section import EvaluationOptions
from keras_xmr.experiments.config.loader import find_config, load_config, override
from keras_xmr.experiments.config.model_facts import is_as_published, why_not_indexed
from keras_xmr.experiments.config.schema import Config
from keras_xmr.experiments.evaluation.advice import advice_before_training
from keras_xmr.experiments.evaluation.baselines import add_baselines
from keras_xmr.experiments.evaluation.embed import embed_split, embed_unknown
from keras_xmr.experiments.evaluation.evaluate import evaluate_split, plan_memory
from keras_xmr.experiments.evaluation.inspection import compute_attention
from keras_xmr.experiments.evaluation.relevance_files import write_caption_relevance
from keras_xmr.experiments.evaluation.results import Evaluation
from keras_xmr.experiments.evaluation.scoring import score_tiles
from keras_xmr.experiments.evaluation.tuning import search_scales
from keras_xmr.experiments.evaluation.uncertainty.damage import probe
from keras_xmr.experiments.export.embedder import run_embedder
from keras_xmr.experiments.export.onnx_export import check_packages, export_onnx
from keras_xmr.experiments.export.saved_model import (
    export_keras,
    export_saved_model,
    next_version,
    remove_old_versions,
    some_inputs,
)
from keras_xmr.experiments.reports.evaluation_report import PAGE, ReportPage
from keras_xmr.experiments.reports.rerank_scales import scale_pictures, search_lines, search_tables
from keras_xmr.experiments.run_texts import (
    meaning_of,
    next_steps,
    print_paragraphs,
    report,
    what_next,
)
from keras_xmr.experiments.runs.beginning import check_tokenizer
from keras_xmr.experiments.runs.cluster import cluster_of
from keras_xmr.experiments.runs.configs import check_config, check_folders, load_run, write_config
from keras_xmr.experiments.runs.folder import RunFolder
from keras_xmr.experiments.runs.frozen_features import with_features
from keras_xmr.experiments.runs.loading import check_files, check_initial_weights, load_retriever
from keras_xmr.experiments.runs.outcome import outcome_of_training
from keras_xmr.experiments.runs.weights import remove_superfluous, verify_tokenizer, write_model
from keras_xmr.experiments.trained_model import TrainedModel
from keras_xmr.experiments.training.distribution import (
    LOST,
    Distribution,
    limit_threads,
    lost_worker,
)
from keras_xmr.experiments.training.train import train
from keras_xmr.judgements import judge
from keras_xmr.metrics import ScoreMatrices
from keras_xmr.metrics.results import Results
from keras_xmr.model.retriever import Retriever
from keras_xmr.utils.errors import ArgumentError, UserError
from keras_xmr.utils.files import locked
from keras_xmr.utils.notebooks import in_notebook, show_log
from keras_xmr.utils.program import update_hint

_LOGGER = logging.getLogger(__name__)


class Experiment:
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
        self.config = _load(config, [override(*item) for item in (changes or {}).items()])
        self.folder = RunFolder(self.config)
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
            check_initial_weights(self.config)
            if not self.folder.goes_on:
                check_files(self.config)
            distribution = self.distribution
            if distribution.is_chief and not self.config.data.is_prepared:
                self.prepare()
            distribution.wait()
            for split in self.config.evaluation.splits if distribution.is_chief else ():
                plan_memory(self.config, self.records, self.records.split(split))
            self._train(on_closed_form=self._report_closed_form)
            if distribution.is_chief:
                texts = list(self._evaluations(is_brief=True))
                # Where nothing that was trained is used, the model has been exported.
                if self._has_reported and not self.folder.summary().best_step:
                    self._export_saved_model()
                else:
                    self.export()
                outcome = outcome_of_training(self.folder.summary())
                print_paragraphs(
                    *texts, *filter(None, [outcome]), what_next(self.config, self.folder)
                )
            distribution.wait()

    def _report_closed_form(self, model: Retriever) -> None:
        """Evaluates and exports a model whose closed form is finished, before it is trained."""
        self.retriever = model
        texts = list(self._evaluations(is_brief=True))
        self._export_keras()
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
            check_initial_weights(self.config)
            if not self.folder.goes_on:
                check_files(self.config)
            tokenizer = build_tokenizer(self.config, self.records, self._encoder_tokenizer)
            if distribution.is_chief and self.folder.goes_on:
                kept = restore_tokenizer(self.config, self.folder.path)
                check_tokenizer(self.folder, kept.files(), tokenizer.files())
            if distribution.is_chief and (
                warning := advice_before_training(self.config, len(self.records.split("train")))
            ):
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
            for text in self._evaluations(is_brief):
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

    def _evaluations(self, is_brief: bool = False) -> Iterator[str]:
        """Evaluates the trained model, writes reports, and yields a text per split to print."""
        for split in self.config.evaluation.splits:
            _LOGGER.info("== evaluate: %s", split)
            evaluation = evaluate_split(
                self.retriever,
                self.embedded_records,
                split,
                self.tokenizer,
                self.config,
            )
            part, kept = (r.split(split) for r in (self.records, self.embedded_records))
            self._add_baselines(evaluation)
            evaluation.attention = compute_attention(self.retriever, part, self.config, kept)
            if self.config.model.dimension == 2:
                evaluation.unknown = embed_unknown(self.retriever, self.tokenizer)
            if self.config.evaluation.report_card:
                evaluation.probes = probe(
                    self.retriever,
                    self.tokenizer,
                    self.config,
                    self.embedded_records,
                    split,
                    evaluation.embedded,
                )
            meaning = meaning_of(self.config, self.folder, self.records, len(part))
            steps = next_steps(self.config, self.records, self.tokenizer, part)
            folder = self.folder.evaluation(split)
            yield report(evaluation, part, self.config, folder, meaning, steps, is_brief)

    def _add_baselines(self, evaluation: Evaluation) -> None:
        """Adds simpler models, whose options are chosen once per run."""
        # A published model may be measured on other data each time.
        keeps = not is_as_published(self.config)
        kept = self.folder.kept_baseline() if keeps else None
        chosen = add_baselines(evaluation, self.embedded_records, self.config, kept)
        if keeps and chosen is not None and chosen != kept:
            self.folder.keep_baseline(chosen)

    def score(self, split: Split) -> ScoreMatrices:
        """Returns the scores of a split by the matcher of the model, as tiles."""
        part = self.embedded_records.split(split)
        embedded = embed_split(self.retriever, part, self.tokenizer, self.config)
        tile = self.config.evaluation.tile
        return score_tiles(self.retriever.matcher, embedded.images, embedded.captions, tile)

    def tune_reranker(self) -> None:
        """Searches the scales of fast re-ranking on the validation split, and prints the best."""
        with self._working():
            _LOGGER.info("== tune the re-ranker: val")
            part = self.records.split("val")
            judgements = judge(
                self.config.data.judgements, part.caption_image, part.labels, len(part)
            )
            search = search_scales(self.score("val").dense(), judgements)
            tables = search_tables(
                search, f"val: fast re-ranking of {self.config.model.matcher.name}"
            )
            print_paragraphs(*map(str, tables), "\n".join(search_lines(search)))
            folder = self.folder.evaluation("val")
            folder.mkdir(parents=True, exist_ok=True)
            for picture in scale_pictures(search):
                picture.write(folder)
                _LOGGER.info("picture: %s", folder / f"{picture.name}.png")

    def export(self) -> None:
        """Writes `model.keras` and the SavedModel; then removes what only the training needed."""
        with self._working():
            _LOGGER.info("== export")
            self._export_keras()
            self._export_saved_model()

    def _export_keras(self) -> None:
        model = self.retriever
        write_model(self.folder, lambda path: export_keras(model, path), self.config)
        _LOGGER.info("Keras model: %s", self.folder.model)

    def _export_saved_model(self) -> None:
        path = next_version(self.folder.serving)
        export_saved_model(self.retriever, self.tokenizer, self.config.data.image, path)
        remove_old_versions(self.folder.serving, self.config.export.keep)
        _LOGGER.info("SavedModel for TF Serving: %s", path)
        if not self.config.export.keep_training_files:
            remove_superfluous(self.folder)

    def export_onnx(self) -> None:
        """Writes the towers as ONNX."""
        with self._working():
            _LOGGER.info("== export as ONNX")
            check_packages()
            folder = self.folder.path / "onnx"
            if why_not_indexed(self.config):
                samples = {
                    "image": some_inputs(self.retriever.image_tower),
                    "text": self.tokenizer(["a dog runs on the grass", "two men", ""]).numpy(),
                }
                export_onnx(self.retriever, samples, self.tokenizer.pad, folder)
            else:
                run_embedder(self.folder.path)
            for path in sorted(folder.glob("*.onnx")):
                _LOGGER.info("ONNX: %s", path)

    def write_relevance(self) -> None:
        """Writes how relevant each caption is to each image."""
        with self._working():
            for split in self.config.evaluation.splits:
                _LOGGER.info("== relevance: %s", split)
                records = self.records.split(split)
                write_caption_relevance(
                    records.image_keys,
                    records.captions,
                    records.caption_image,
                    self.folder.relevance(split),
                    self.config.relevance,
                )

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

    @property
    def model(self) -> TrainedModel:
        """The trained model with its tokenizer, which embeds and scores photos and texts."""
        return TrainedModel(self.config, self.retriever, self.tokenizer)

    @cached_property
    def retriever(self) -> Retriever:
        """The Keras model, trained."""
        self._check_trained()
        write_config(self.folder, self.config)
        records = PHOTOS if self.config.data.source.holds == "images" else self.records
        return load_retriever(self.config, records, self.tokenizer)

    @cached_property
    def _encoder_tokenizer(self) -> Tokenizer | None:
        """The tokenizer of the text encoder, loaded once: Keras would rename a second one."""
        return encoder_tokenizer(self.config)

    def _check_trained(self) -> None:
        if not self.folder.done.exists():
            raise UserError(
                f"{self.folder.path} holds no finished training; run the command `train` first"
            )


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
