"""Trains the model of a config, phase after phase, from wherever it was stopped."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from data_pipelines.batches import training_batches
from data_pipelines.records import Records, SplitRecords
from data_pipelines.samplers import SAMPLERS
from data_pipelines.text import CaptionIds, Tokenizer
from keras_xmr.experiments.build import build_model
from keras_xmr.experiments.config.schema import Config, RelevanceOptions
from keras_xmr.experiments.runs.beginning import begin_training, keep_judgements
from keras_xmr.experiments.runs.folder import RunFolder
from keras_xmr.experiments.runs.loading import load_retriever
from keras_xmr.experiments.training.checkpoints import Checkpoints
from keras_xmr.experiments.training.distribution import Distribution
from keras_xmr.experiments.training.dry_run import try_parts
from keras_xmr.experiments.training.judged import judged_training
from keras_xmr.experiments.training.phases import (
    freeze,
    never_trained,
)
from keras_xmr.experiments.training.trainer import Trainer
from keras_xmr.model.gradient_caching import check_towers
from keras_xmr.model.retriever import Retriever
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


def train(
    config: Config,
    folder: RunFolder,
    records: Records,
    tokenizer: Tokenizer,
    distribution: Distribution,
    more_callbacks: Sequence[keras.callbacks.Callback] = (),
    on_closed_form: Callable[[Retriever], None] | None = None,
) -> Retriever:
    """Trains a model, or finishes its training.

    A training that was killed, at any moment, resumes from its last checkpoint and ends with the
    same weights as one that was not.

    With `train.patience`, the part of the model in closed form is a finished model before the first
    epoch: its weights are in the folder, and the training goes on from there.

    Args:
        config: The config.
        folder: Where checkpoints and logs go.
        records: The records.
        tokenizer: Makes word ids of the captions.
        distribution: The devices and workers that train it; all workers must call this.
        more_callbacks: Called after the callbacks of the training itself, on every worker.
        on_closed_form: Called with the model whose closed form is finished, on the chief.

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
    more = {} if (count := options.captions_per_image) is None else {"captions": count}
    sampler = SAMPLERS[options.sampler](split, options.batch_size, config.seed, devices, **more)
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
                begin_training(folder, config, tokenizer.files())
            return load_retriever(config, records, tokenizer, reads=distribution.is_chief)
        model = build_model(config, records, tokenizer, pretrained=not begun)
        _check_phases(model, config)
        if distribution.is_chief:
            begin_training(folder, config, tokenizer.files())
            keep_judgements(folder, config)
        captions = CaptionIds.from_texts(split.texts, tokenizer)
        relevance = None
        if model.objective.needs_relevance:
            relevance = _batch_relevance(split, config.relevance)
        frozen = never_trained(model, options.phases)
        checkpoints = Checkpoints(folder.checkpoints, model, distribution, frozen)
        trainer = Trainer(
            config,
            folder,
            records,
            tokenizer,
            sampler,
            checkpoints,
            more_callbacks,
            grades,
            on_closed_form,
        )
        done = checkpoints.read_step() if begun else 0

        def batches(records: Records, step: int) -> object:
            return distribution.distribute(
                training_batches(
                    records.split("train"),
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
            )

        trainer.run(done, batches)
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
