"""Trains the model of a config, phase after phase, from wherever it was stopped."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from data_pipelines.batches import caption_batches, training_batches
from data_pipelines.records import Records, SplitRecords, records_error
from data_pipelines.samplers import SAMPLERS, OfflineNegativeSampler, Sampler
from data_pipelines.text import CaptionIds, Tokenizer
from keras_xmr.experiments.build import build_model
from keras_xmr.experiments.config.schema import Config, PhaseOptions, RelevanceOptions
from keras_xmr.experiments.evaluation.evaluate import evaluate_split
from keras_xmr.experiments.evaluation.results import Evaluation
from keras_xmr.experiments.runs.folder import RunFolder
from keras_xmr.experiments.runs.frozen_features import (
    CaptionEncoder,
    ImageEncoder,
    features_for_training,
)
from keras_xmr.experiments.runs.loading import load_initial_weights, load_retriever, load_trained
from keras_xmr.experiments.runs.termination import TerminationNotice
from keras_xmr.experiments.training import callbacks
from keras_xmr.experiments.training.cca_start import (
    choose_weight,
    start_from_cca,
    weighted_poolings,
)
from keras_xmr.experiments.training.checkpoints import Checkpoints
from keras_xmr.experiments.training.distribution import Distribution
from keras_xmr.experiments.training.dry_run import try_parts
from keras_xmr.experiments.training.judged import judged_training
from keras_xmr.experiments.training.offline_negatives import mine
from keras_xmr.experiments.training.phases import (
    SIDES,
    freeze,
    learning_rate_factors,
    never_trained,
    phase_schedule,
)
from keras_xmr.heads.pooling import Adapter
from keras_xmr.layers import BagOfWords
from keras_xmr.layers.keras_compat import all_layers
from keras_xmr.model.gradient_caching import check_towers
from keras_xmr.model.retriever import Retriever
from keras_xmr.model.towers import tower_on_features
from keras_xmr.relevance import (
    TOKENIZERS,
    BatchRelevance,
    average_references,
    reference_groups,
    weigh,
)

_LOGGER = logging.getLogger(__name__)

# XLA compiles a step for each length of captions. Padding costs time, too.
_MULTIPLE = 8

# Paths, which may differ between workers.
_PLACES: Any = {
    "output": True,
    "data": {"records": True, "source": True, "prepare": True, "training_judgements": True},
}


@dataclass(frozen=True)
class _Span:
    """The steps of one phase: from `start` up to, but not including, `end`."""

    number: int
    phase: PhaseOptions
    start: int
    end: int


def train(
    config: Config,
    folder: RunFolder,
    records: Records,
    tokenizer: Tokenizer,
    distribution: Distribution,
    more_callbacks: Sequence[keras.callbacks.Callback] = (),
) -> Retriever:
    """Trains a model, or finishes its training.

    A training that was killed, at any moment, resumes from its last checkpoint and ends with the
    same weights as one that was not.

    Args:
        config: The config.
        folder: Where checkpoints and logs go.
        records: The records.
        tokenizer: Makes word ids of the captions.
        distribution: The devices and workers that train it; all workers must call this.
        more_callbacks: Called after those of the training itself, on every worker.

    Returns:
        The model with the weights that the config chooses, the best or the last; of several
        workers only the chief has them.

    Raises:
        TrainingStoppedError: If the watchdog stops the training.
        TerminatedError: After SIGTERM; a checkpoint is kept.
        ConfigError: If the folder holds a run with another config.
        CheckpointError: If the checkpoints are of another model, none of them can be read, one
            cannot be written.
        RecordsError: If a record is damaged.
        EncoderError: If weights or word vectors cannot be loaded.
        UserError: If a loss needs relevance, and its tokenizer cannot be run; or if a part does not
            behave as its family must.
        ArgumentError: If gradient caching would normalise by chunks.
    """
    options = config.train
    if not folder.is_trained:
        try_parts(config)
    keras.utils.set_random_seed(config.seed)
    records, grades, grades_checksum = judged_training(config, folder, records)
    split = records.split("train")
    devices = distribution.strategy.num_replicas_in_sync
    sampler = SAMPLERS[options.sampler](split, options.batch_size, config.seed, devices)
    distribution.check_same(
        {
            "config": config.model_dump_json(exclude=_PLACES),
            "records": json.dumps(records.manifest["splits"], sort_keys=True),
            "judgements": grades_checksum,
            "vocabulary": repr(sorted(tokenizer.files().items())),
        }
    )
    with distribution.strategy.scope():
        trained, begun = distribution.from_chief([int(folder.is_trained), int(folder.has_begun)])
        if trained:
            if distribution.is_chief:
                folder.begin(config, tokenizer.files())
            return load_retriever(config, records, tokenizer, reads=distribution.is_chief)
        model = build_model(config, records, tokenizer, pretrained=not begun)
        _check_phases(model, config)
        if distribution.is_chief:
            folder.begin(config, tokenizer.files())
            folder.keep_judgements(config)
        captions = CaptionIds.from_texts(split.texts, tokenizer)
        relevance = None
        if model.objective.needs_relevance:
            relevance = _batch_relevance(split, config.relevance)
        frozen = never_trained(model, options.phases)
        checkpoints = Checkpoints(folder.checkpoints, model, distribution, frozen)
        trainer = _Trainer(config, folder, records, tokenizer, sampler, checkpoints, more_callbacks)
        done = checkpoints.read_step() if begun else 0
        if not options.phases:
            trainer.begin_without_phases()
        for span in trainer.spans():
            if done >= span.end:
                continue
            trainer.start(span, done)
            while (step := checkpoints.progress.step) < span.end:
                trainer.mine(step)
                batches = training_batches(
                    trainer.records.split("train"),
                    sampler,
                    tokenizer,
                    config.data.image,
                    config.data.text,
                    start=step,
                    part=(distribution.cluster.number, distribution.cluster.count),
                    relevance=relevance,
                    pieces=distribution.devices,
                    captions=captions,
                    judged=grades,
                    multiple=_MULTIPLE if options.jit_compile else 1,
                )
                trainer.fit(distribution.distribute(batches), span)
        trainer.finish(done)
    return model


def _check_phases(model: Retriever, config: Config) -> None:
    """Checks that no phase would normalise by chunks, before the first one is trained.

    Raises:
        ArgumentError: If one would.
    """
    if config.train.gradient_caching is None:
        return
    for phase in config.train.phases:
        freeze(model, phase.freeze)
        check_towers(model.input_models())


def _batch_relevance(
    split: SplitRecords, options: RelevanceOptions
) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Returns the relevance within batches of a split; its captions are the references."""
    begin = time.perf_counter()
    words = TOKENIZERS[options.tokenizer](split.texts)
    measure = options.train_measure or options.measure
    owners = reference_groups(options.references, split.labels, len(split))
    number = int(owners.max(initial=-1)) + 1
    weighted = weigh(words, owners[split.caption_image], number, measure)
    _LOGGER.info(
        "relevance: %s, %d captions weighed in %.1f s",
        measure,
        split.num_captions,
        time.perf_counter() - begin,
    )
    if options.references == "image":
        return BatchRelevance(weighted)
    relevance = BatchRelevance(average_references(weighted))
    return lambda images, captions: relevance(owners[images], captions)


@dataclass(eq=False)
class _Trainer:
    """The state of one training."""

    config: Config
    folder: RunFolder
    whole_records: Records
    tokenizer: Tokenizer
    sampler: Sampler
    checkpoints: Checkpoints
    more_callbacks: Sequence[keras.callbacks.Callback]

    def __post_init__(self) -> None:
        self.records = self.whole_records
        self.model = self.checkpoints.model
        self.steps_per_epoch = self.sampler.steps
        self.distribution = self.checkpoints.distribution
        self.notice = TerminationNotice()
        self.callbacks = [*self._callbacks(), *self.more_callbacks]

    @property
    def _epochs(self) -> int:
        return sum(phase.epochs for phase in self.config.train.phases)

    def spans(self) -> list[_Span]:
        """Returns the phases, and when they begin and end."""
        phases = self.config.train.phases
        steps = accumulate((phase.epochs * self.steps_per_epoch for phase in phases), initial=0)
        numbered = zip(enumerate(phases), pairwise(steps), strict=True)
        return [_Span(number, phase, *ends) for (number, phase), ends in numbered]

    def start(self, span: _Span, done: int) -> None:
        """Compiles the model for a phase, and restores its checkpoint, if there is one.

        Args:
            span: The phase.
            done: Steps that were done before this process began.
        """
        phase = span.phase
        frozen = [side for side in SIDES if phase.freezes_encoder(side)]
        freeze(self.model, phase.freeze)
        self._take_towers(frozen)
        schedule = phase_schedule(phase, self.steps_per_epoch)
        optimizer = self.config.train.optimizer.build(learning_rate=schedule)
        optimizer.set_factors(learning_rate_factors(self.model, phase))
        self.model.compile(optimizer, jit_compile=self.config.train.jit_compile)
        self.checkpoints.start_phase()
        if done == span.start == 0:
            self._begin()
        else:
            if done > span.start:
                self.checkpoints.restore()
            elif done == span.start:
                self.checkpoints.restore_model()
            if done >= span.start:
                _LOGGER.info("resuming at step %d", done)
            self._take_features()
        _LOGGER.info(
            "phase %d of %d: epochs: %d, steps per epoch: %d, frozen: %s, learning rate: %g",
            span.number + 1,
            len(self.config.train.phases),
            phase.epochs,
            self.steps_per_epoch,
            ", ".join(phase.freeze) or "nothing",
            phase.learning_rate,
        )

    def begin_without_phases(self) -> None:
        """Starts, and ends, a training without phases."""
        options = self.config.train
        if options.start == "cca" and (options.precompute_features or options.precompute_captions):
            freeze(self.model, tuple(f"{side}.encoder" for side in SIDES))
            self._take_towers(SIDES)
        self._begin()

    def _begin(self) -> None:
        """Gives the model the weights that it begins with, before or in place of all steps."""
        options = self.config.train
        if options.initial_weights is not None:
            load_initial_weights(self.checkpoints.bare, self.config)
            self._share()
        else:
            self._adapt()
        self._take_features()
        if options.start == "cca":
            start_from_cca(self.model, self.records, self.tokenizer, self.config)
            self._share()

    def _share(self) -> None:
        """Gives all workers the weights of the chief."""
        self.distribution.share([variable.value for variable in self.model.variables])

    def _adapt(self) -> None:
        """Lets a bag of words learn its words."""
        for layer in self.model.text_tower.layers:
            if isinstance(layer, BagOfWords):
                texts = self.records.split("train").texts
                batches = caption_batches(texts, self.tokenizer, len(texts))
                layer.adapt(next(iter(batches.as_numpy_iterator())))

    def _take_towers(self, frozen: Sequence[str]) -> None:
        """Lets the model be called on features that are computed once, where encoders are frozen.

        Args:
            frozen: The sides of these, "image" and "text".
        """
        model, options = self.model, self.config.train
        on_images = options.precompute_features and "image" in frozen
        on_captions = options.precompute_captions and "text" in frozen
        model.feature_tower = tower_on_features(model.image_tower) if on_images else None
        model.caption_feature_tower = tower_on_features(model.text_tower) if on_captions else None

    def _take_features(self) -> None:
        """Gives the records the features that the model is called on in this phase.

        Not before the weights of the encoders are those of the checkpoint.
        """
        model, read = self.model, (self.whole_records.folder, self.config)
        encoders: dict[str, Any] = {}
        if model.feature_tower is not None:
            encoders["image_features"] = ImageEncoder(model.image_tower, *read)
        if model.caption_feature_tower is not None:
            encoders["caption_features"] = CaptionEncoder(model.text_tower, *read, self.tokenizer)
        with self.distribution.chief_first():
            features = {
                name: features_for_training(encoder, self.whole_records)
                for name, encoder in encoders.items()
            }
        self.records = replace(self.whole_records, **features)

    def mine(self, step: int) -> None:
        """Finds the hard negatives of the epoch of a step, for a sampler that takes them."""
        if not isinstance(self.sampler, OfflineNegativeSampler):
            return
        epoch = step // self.steps_per_epoch
        reads = (self.records, self.tokenizer, self.config)
        file = self.checkpoints.folder / "offline_negatives.npz"
        mine(self.sampler, epoch, self.model, *reads, self.distribution, file)

    def fit(self, batches: object, span: _Span) -> None:
        """Trains to the end of the phase, or of an epoch that was begun or whose negatives end."""
        step = self.checkpoints.progress.step
        left = -step % self.steps_per_epoch
        first = step // self.steps_per_epoch
        last = span.end // self.steps_per_epoch
        mines = isinstance(self.sampler, OfflineNegativeSampler)
        try:
            with self.notice:
                self.model.fit(
                    batches,
                    initial_epoch=first,
                    epochs=first + 1 if left or mines else last,
                    steps_per_epoch=left or self.steps_per_epoch,
                    callbacks=callbacks.UnreadLogs(
                        self.callbacks, add_history=True, model=self.model
                    ),
                    verbose=0,
                    shuffle=False,
                )
        except tf.errors.OpError as error:
            raise records_error(error) or error from None

    def finish(self, done: int) -> None:
        """Saves the last weights, and loads those that the config chooses."""
        self.model.feature_tower = None
        self.model.caption_feature_tower = None
        if done and done >= self.spans()[-1].end:
            self.checkpoints.restore_model()
        if not self.distribution.is_chief:
            return
        folder, new, progress = self.folder, [], self.checkpoints.progress
        if not folder.last_weights.exists():
            self.checkpoints.save_weights(folder.last_weights)
            new.append(folder.last_weights.name)
        if progress.best > float("-inf") and not folder.best_weights.exists():
            self.checkpoints.write_best(folder.best_weights)
            new.append(folder.best_weights.name)
        summary = {"steps": progress.step, "best_step": progress.best_step, "best": progress.best}
        weights = [folder.best_weights.name, folder.last_weights.name]
        folder.finish(summary, self.config, [*weights, *self.tokenizer.files()], new)
        # Not a model that is made now: of several workers the chief alone would make it.
        load_trained(self.checkpoints.bare, self.config, folder)
        self.model.global_step.assign(self.checkpoints.bare.global_step)

    def _validate(self) -> Evaluation:
        """Evaluates the validation split, by which a part in closed form is weighed before."""
        if weighted_poolings(self.model):
            choose_weight(self.model, self.records, self.tokenizer, self.config)
        return evaluate_split(
            self.model, self.records, "val", self.tokenizer, self.config, brief=True
        )

    def _callbacks(self) -> list[keras.callbacks.Callback]:
        options = self.config.train
        trivial = {}
        if options.watchdog.flat_steps:
            positives = self.sampler.positives()
            trivial = self.model.objective.trivial_values(
                tf.zeros(positives.shape), {"positives": tf.constant(positives)}
            )
        watchdog = callbacks.Watchdog(
            options.watchdog, options.log_steps, trivial, self.checkpoints
        )
        validation = None
        if "val" in self.records.splits:
            validation = callbacks.Validation(
                self._validate,
                self.checkpoints,
                options.monitor,
                options.validate_every,
                self.steps_per_epoch,
                self._epochs * self.steps_per_epoch,
                self.model.objective.warmup_steps,
                any(isinstance(layer, Adapter) for layer in all_layers(self.model)),
            )
        means = callbacks.EpochMeans(self.checkpoints, self.steps_per_epoch)
        checkpoint = callbacks.Checkpoint(
            self.checkpoints, watchdog, options.checkpoint_steps, self.notice, means
        )
        if not self.distribution.is_chief:
            return [means, watchdog, checkpoint]
        made = [
            means,
            callbacks.ProgressBar(self.sampler, self._epochs, options.log_steps),
            watchdog,
            validation,
            callbacks.CsvLog(self.folder.training_log, self.steps_per_epoch),
            callbacks.TensorBoard(self.folder.logs, self.sampler, options.log_steps, validation),
            checkpoint,
        ]
        return [callback for callback in made if callback is not None]
