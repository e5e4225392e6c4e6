"""The trainer: one training, phase after phase, with what happens between phases."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from data_pipelines.batches import caption_batches
from data_pipelines.records import Records, records_error
from data_pipelines.samplers import OfflineNegativeSampler, Sampler
from data_pipelines.text import Tokenizer
from keras_xmr.experiments.config.schema import Config
from keras_xmr.experiments.evaluation.advice import expected_gain
from keras_xmr.experiments.evaluation.evaluate import evaluate_split
from keras_xmr.experiments.evaluation.split_evaluation import Evaluation
from keras_xmr.experiments.runs.folder import RunFolder
from keras_xmr.experiments.runs.loading import load_initial_weights, load_trained
from keras_xmr.experiments.runs.weight_files import finish_training
from keras_xmr.experiments.training import callbacks
from keras_xmr.experiments.training.cca_start import ClosedForm, start_from_cca
from keras_xmr.experiments.training.checkpoints import Checkpoints
from keras_xmr.experiments.training.closed_form_weight import (
    WEIGHTS,
    choices_made,
    choose_weight,
    weighted_poolings,
)
from keras_xmr.experiments.training.offline_negatives import mine_negatives
from keras_xmr.experiments.training.phases import (
    freeze,
    learning_rate_factors,
    phase_schedule,
)
from keras_xmr.experiments.training.plan import Plan, Span
from keras_xmr.experiments.training.stored_features import (
    encoders_of_features,
    expected_duration,
    take_towers,
    with_training_features,
)
from keras_xmr.heads.pooling import Adapter
from keras_xmr.judgements.judgement_files import BatchGrades
from keras_xmr.layers import BagOfWords
from keras_xmr.layers.keras_compat import all_layers
from keras_xmr.metrics import Recall
from keras_xmr.model.retriever import Retriever
from keras_xmr.utils.files import replace_atomically
from keras_xmr.utils.sides import SIDES
from keras_xmr.utils.termination import TerminationNotice
from keras_xmr.utils.waiting import bars

_LOGGER = logging.getLogger(__name__)


@dataclass(eq=False)
class Trainer:
    """One training, from where it was stopped to its last weights.

    Args:
        config: The config.
        folder: Where checkpoints and logs go.
        whole_records: The records, without features of frozen encoders.
        tokenizer: Makes word ids of the captions.
        sampler: Makes batches of the training split.
        checkpoints: The checkpoints, and the model.
        more_callbacks: Called after the callbacks of the training itself.
        grades: How far people judged pairs to match, if the training learns from that.
        on_closed_form: Called with the model whose closed form is finished, on the chief.
    """

    config: Config
    folder: RunFolder
    whole_records: Records
    tokenizer: Tokenizer
    sampler: Sampler
    checkpoints: Checkpoints
    more_callbacks: Sequence[keras.callbacks.Callback]
    grades: BatchGrades | None = None
    on_closed_form: Callable[[Retriever], None] | None = None

    def __post_init__(self) -> None:
        self.records = self.whole_records
        self.model = self.checkpoints.model
        self.distribution = self.checkpoints.distribution
        self.notice = TerminationNotice()
        self.choices = self.folder.kept_choices()
        self.plan = Plan(self.config.train, self.sampler.steps, self.choices)
        self.validation = self._validation()
        options = self.config.train
        self.bar = callbacks.ProgressBar(
            self.sampler, self.plan.epochs, options.log_steps, options.patience is not None
        )
        self.callbacks = [*self._callbacks(), *self.more_callbacks]

    def run(self, done: int, batches: Callable[[Records, int], object]) -> None:
        """Trains all phases that are left, and gives the model the weights that the config chooses.

        Args:
            done: Steps that were done before this process began.
            batches: Makes batches of records, from a step on.
        """
        if not self.plan.spans:
            self._begin_without_phases()
        for span in self.plan.spans:
            if done >= span.end:
                continue
            self._start(span, done)
            while (step := self.checkpoints.progress.step) < span.end and not self._is_over():
                self._mine_negatives(step)
                self._fit(batches(self.records, step), span)
        self._finish(done)

    def _is_over(self) -> bool:
        """Returns what the chief says of the end of the training: it alone validates."""
        progress, validates = self.checkpoints.progress, self.validation is not None
        over = self.plan.is_over(progress.step, progress.best_step, validates)
        return bool(self.distribution.from_chief([int(over)])[0])

    def _start(self, span: Span, done: int) -> None:
        """Compiles the model for a phase, and restores its checkpoint, if there is one.

        Args:
            span: The phase.
            done: Steps that were done before this process began.
        """
        phase = span.phase
        frozen = [side for side in SIDES if phase.freezes_encoder(side)]
        freeze(self.model, phase.freeze)
        take_towers(self.model, self.config, frozen)
        schedule = phase_schedule(phase, self.plan.steps_per_epoch)
        optimizer = self.config.train.optimizer.build(learning_rate=schedule)
        optimizer.set_factors(learning_rate_factors(self.model, phase))
        metrics = [Recall(m.k, m.direction) for m in self.config.train.metrics]
        self.model.compile(optimizer, metrics=metrics, jit_compile=self.config.train.jit_compile)
        self.checkpoints.start_phase()
        if done == span.start == 0:
            self._begin()
            self._finish_closed_form()
        else:
            if done > span.start:
                self.checkpoints.restore()
            elif done == span.start:
                self.checkpoints.restore_model()
            if done >= span.start:
                _LOGGER.info("resuming at step %d", done)
            self._take_features()
        _LOGGER.info(
            "phase %d of %d: %d epochs of %d steps, learning rate %g, not trained: %s%s",
            span.number + 1,
            len(self.config.train.phases),
            phase.epochs,
            self.plan.steps_per_epoch,
            phase.learning_rate,
            ", ".join(phase.freeze) or "nothing",
            self._expectation(),
        )

    def _expectation(self) -> str:
        """Says when a training with `train.patience` ends, and the gain that is to be expected."""
        patience = self.config.train.patience
        if repeated := self.plan.repeated_epochs:
            return f". It ends after {repeated} epochs, as the one before the update"
        if patience is None or self.validation is None:
            return ""
        epochs = patience * self.config.train.validate_every
        gain = expected_gain(self.config, len(self.records.split("train")))
        return f". It ends {epochs} epochs after the last gain on the validation split{gain}"

    def _finish_closed_form(self) -> None:
        """Makes the closed form a finished model, before the first epoch."""
        if self.validation is None or not self.validation.at_start:
            return
        if not self.distribution.is_chief:
            return
        self.validation.begin(self.model)
        options = self.config
        if options.train.patience is None or options.export.weights == "last":
            return
        if not weighted_poolings(self.model):
            return
        self.checkpoints.save_weights(self.folder.best_weights)
        self._summarize([self.folder.best_weights.name], is_complete=False)
        if self.on_closed_form is not None:
            # Like a finished model, it reads photos and words, not stored features alone.
            towers = self.model.feature_tower, self.model.caption_feature_tower
            self.model.feature_tower = self.model.caption_feature_tower = None
            self.on_closed_form(self.model)
            self.model.feature_tower, self.model.caption_feature_tower = towers

    def _begin_without_phases(self) -> None:
        """Starts, and ends, a training without phases."""
        options = self.config.train
        if options.start == "cca" and (options.precompute_features or options.precompute_captions):
            freeze(self.model, tuple(f"{side}.encoder" for side in SIDES))
            take_towers(self.model, self.config, SIDES)
        self._begin()
        if self.choices is not None and weighted_poolings(self.model):
            # Of a closed form alone, which is made again.
            scaling = self.choices.local_scaling
            read = (self.model, self.records, self.tokenizer, self.config)
            progress = self.checkpoints.progress
            progress.best = choose_weight(*read, weights=(1.0,), local_scaling=scaling).rsum

    def _begin(self) -> None:
        """Gives the model the weights that it begins with, before or in place of all steps."""
        options = self.config.train
        if options.initial_weights is not None:
            load_initial_weights(self.checkpoints.plain, self.config)
            self._share()
        else:
            self._adapt()
        self._take_features()
        if options.start == "cca":
            kept, progress = None, self.checkpoints.progress
            if self.choices is not None:
                kept = ClosedForm(self.choices.cca, self.choices.rank_strengths)
            chosen = start_from_cca(
                self.model, self.records, self.tokenizer, self.config, kept, self.grades
            )
            progress.cca = chosen.options.model_dump(mode="json")
            progress.rank_strengths = dict(chosen.rank_strengths)
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

    def _take_features(self) -> None:
        """Gives the records the features that the model is called on in this phase.

        Not before the encoders have the weights of the checkpoint.
        """
        encoders = encoders_of_features(self.model, self.whole_records, self.tokenizer, self.config)
        if self.distribution.is_chief and not self.checkpoints.progress.step:
            epochs = self.plan.epochs if self.plan.spans else 0
            if duration := expected_duration(
                self.model, encoders, self.whole_records, self.config, epochs
            ):
                _LOGGER.info("expected: %s", duration)
        with self.distribution.chief_first():
            self.records = with_training_features(self.whole_records, encoders)

    def _mine_negatives(self, step: int) -> None:
        """Finds the hard negatives of the epoch of a step, for a sampler that takes them."""
        if not isinstance(self.sampler, OfflineNegativeSampler):
            return
        epoch = step // self.plan.steps_per_epoch
        reads = (self.records, self.tokenizer, self.config)
        file = self.checkpoints.folder / "offline_negatives.npz"
        mine_negatives(self.sampler, epoch, self.model, *reads, self.distribution, file)

    def _fit(self, batches: object, span: Span) -> None:
        """Trains some epochs of a phase."""
        step, one = self.checkpoints.progress.step, isinstance(self.sampler, OfflineNegativeSampler)
        first, last, steps = self.plan.epochs_at_once(step, span, one)
        try:
            with self.notice:
                self.model.fit(
                    batches,
                    initial_epoch=first,
                    epochs=last,
                    steps_per_epoch=steps,
                    callbacks=callbacks.UnreadLogs(
                        self.callbacks, add_history=True, model=self.model
                    ),
                    verbose=0,
                    shuffle=False,
                )
        except tf.errors.OpError as error:
            raise records_error(error) or error from None

    def _finish(self, done: int) -> None:
        """Saves the last weights, and loads those that the config chooses."""
        self.bar.close()
        self.model.feature_tower = None
        self.model.caption_feature_tower = None
        if done and (done >= self.plan.spans[-1].end or self._is_over()):
            self.checkpoints.restore_model()
        if not self.distribution.is_chief:
            return
        folder, new, progress = self.folder, [], self.checkpoints.progress
        if not (folder.last_weights.exists() and folder.is_complete):
            self.checkpoints.save_weights(folder.last_weights)
            new.append(folder.last_weights.name)
        has_best = progress.best > float("-inf") and progress.step
        if has_best and not (folder.best_weights.exists() and folder.is_complete):
            if progress.best_step == progress.step:
                with replace_atomically(folder.best_weights, ".weights.h5") as temporary:
                    shutil.copyfile(folder.last_weights, temporary)
            else:
                self.checkpoints.write_best(folder.best_weights)
            new.append(folder.best_weights.name)
        # Not a model that is made now: of several workers the chief alone would make it.
        self._summarize(new)
        load_trained(self.checkpoints.plain, self.config, folder)
        self.model.global_step.assign(self.checkpoints.plain.global_step)
        self._summarize([])

    def _summarize(self, new: Collection[str], is_complete: bool = True) -> None:
        """Writes the summary of the training, with the choices that the model was made with."""
        progress, folder = self.checkpoints.progress, self.folder
        summary: dict[str, Any] = {
            "steps": progress.step,
            "best_step": progress.best_step,
            "best": progress.best,
            "is_complete": is_complete,
            "records": self.whole_records.digest,
        }
        if progress.cca and (
            choices := choices_made(self.model, progress, self.plan.steps_per_epoch)
        ):
            summary["choices"] = choices
        if self.grades is not None and progress.cca:
            split = self.whole_records.split("train")
            summary["labels"] = self.grades.count(split.caption_image)
        weights = [folder.best_weights.name, folder.last_weights.name]
        finish_training(folder, summary, self.config, [*weights, *self.tokenizer.files()], new)

    def _validate(self) -> Evaluation:
        """Evaluates the validation split, by which a part in closed form is weighed before."""
        with bars(False):
            if weighted_poolings(self.model):
                # Before the first step there is nothing else to weigh.
                weights: Sequence[float] = (1.0,)
                if int(self.model.global_step.numpy()):
                    weights = WEIGHTS if self.choices is None else (self.choices.weight,)
                scaling = None if self.choices is None else self.choices.local_scaling
                read = (self.model, self.records, self.tokenizer, self.config)
                choose_weight(*read, weights, scaling)
            return evaluate_split(
                self.model, self.records, "val", self.tokenizer, self.config, brief=True
            )

    def _validation(self) -> callbacks.Validation | None:
        options = self.config.train
        if "val" not in self.records.splits:
            return None
        has_closed_form = options.patience is not None and bool(weighted_poolings(self.model))
        return callbacks.Validation(
            self._validate,
            self.checkpoints,
            options.monitor,
            self.plan.validate_every,
            self.plan.steps_per_epoch,
            self.plan.steps,
            self.model.objective.warmup_steps,
            has_closed_form or any(isinstance(layer, Adapter) for layer in all_layers(self.model)),
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
        means = callbacks.EpochMeans(self.checkpoints, self.plan.steps_per_epoch)
        checkpoint = callbacks.Checkpoint(
            self.checkpoints,
            watchdog,
            options.checkpoint_steps,
            self.notice,
            means,
            # A training that repeats a former one with few photos has many short epochs.
            end=self.plan.steps if self.plan.repeated_epochs else None,
        )
        if not self.distribution.is_chief:
            return [means, watchdog, checkpoint]
        made = [
            means,
            self.bar,
            watchdog,
            self.validation,
            callbacks.CsvLog(self.folder.training_log, self.plan.steps_per_epoch),
            callbacks.TensorBoard(
                self.folder.logs, self.sampler, options.log_steps, self.validation
            ),
            checkpoint,
        ]
        return [callback for callback in made if callback is not None]
