"""Checks that data, training and evaluation of a config fit together."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from pydantic import BaseModel, ByteSize

from data_pipelines.sources import Source
from keras_xmr.experiments.config.model_compatibility import (
    Mistake,
    check_model,
    embedding_kinds,
    names_of,
    options_text,
    parts_of,
)
from keras_xmr.experiments.config.schema import Config
from keras_xmr.judgements import EXTENDED_COCO, IDENTICAL, TRUTH, name_clashes
from keras_xmr.parts.contracts import Contract
from keras_xmr.parts.registry import components
from keras_xmr.utils.installing import install_command
from keras_xmr.utils.messages import cut, nearest

PARTS = ("encoder", "pooling", "head", "log_variance")
"""The parts of a tower, which can be frozen or have other learning rates."""

_SCHEDULES = Contract(
    only_with={"cosine_epochs": {"schedule": "cosine"}, "decay_epochs": {"schedule": "step"}}
)
"""Options of a phase that belong to a schedule."""


def check(config: Config) -> Iterator[Mistake]:
    """Yields every combination that cannot work, with an explanation."""
    yield from _numbers(config, "")
    training = _phases, _gradient_caching, _compiled, _precomputed, _precomputed_captions, _start
    evaluation = _judgements, _training_judgements, _paper
    for rule in (check_model, _data, _sampler, *training, *evaluation):
        yield from rule(config)


def _data(config: Config) -> Iterator[Mistake]:
    needing = []
    if config.data.judgements == "classes":
        needing.append("data.judgements: 'classes'")
    if config.train.sampler == "one_per_class":
        needing.append("train.sampler: 'one_per_class'")
    for choice in needing if config.data.source.label_kind != "class" else ():
        yield (
            f"{choice} needs one class per image, which the source {config.data.source.name!r} "
            "does not have"
        )


def _sampler(config: Config) -> Iterator[Mistake]:
    """Losses that read the batches of one sampler, and what belongs to it."""
    sampler, offline = config.train.sampler, "offline_negatives"
    for loss in parts_of(config, "loss"):
        if loss.contract.sampler not in (None, sampler):
            yield (
                f"{loss.key}.name: {loss.choice.name!r} reads the batches of another sampler; set "
                f"train.sampler to {loss.contract.sampler}"
            )
    default = type(config.train).model_fields["offline_candidates"].default
    if config.train.offline_candidates != default and sampler != offline:
        yield (
            f"train.offline_candidates has no effect with train.sampler {sampler!r}; set that to "
            f"{offline}, or leave this out"
        )


def _training_judgements(config: Config) -> Iterator[Mistake]:
    """Human judgements, and losses that cannot learn from them."""
    if config.data.training_judgements is None:
        return
    key, losses = "data.training_judgements", list(parts_of(config, "loss"))
    if not any(loss.contract.reads_matches for loss in losses):
        names = ", ".join(loss.choice.name for loss in losses)
        yield f"{key}: no loss of the objective ({names}) learns from matching pairs; remove it"
    for loss in losses:
        if loss.contract.assumes_one_image_per_caption:
            yield (
                f"{loss.key}.name: {loss.choice.name!r} assumes one image per caption, and {key} "
                "may name several, or none; remove one of the two"
            )


def _precomputed(config: Config) -> Iterator[Mistake]:
    """Features that are computed once need a frozen encoder and fixed pixels."""
    if not config.train.precompute_features:
        return
    key = "train.precompute_features"
    if config.model.image.encoder.contract.reads != "pixels":
        source = config.data.source.name
        yield f"{key}: the source {source!r} holds features already; leave it out"
        return
    yield from _always_trained(config, "image", key)
    image = config.data.image
    random = {"crop": image.crop == "random_resized", "flip": image.flip, "cutout": image.cutout}
    if changed := [f"data.image.{name}" for name, is_on in random.items() if is_on]:
        yield (
            f"{key}: features are computed once, of images as evaluation sees them, but "
            f"{', '.join(changed)} changes them at random; write data.image: {{crop: center, "
            "flip: false, cutout: 0}"
        )


def _precomputed_captions(config: Config) -> Iterator[Mistake]:
    """Features of captions need a frozen encoder and fixed words."""
    if not config.train.precompute_captions:
        return
    key = "train.precompute_captions"
    yield from _always_trained(config, "text", key)
    if config.data.text.drop_words:
        yield (
            f"{key}: features are computed once, of whole captions, but data.text.drop_words drops "
            "words at random; write data.text.drop_words: 0"
        )
    for loss in parts_of(config, "loss"):
        if loss.contract.reads_words:
            yield f"{key}: {loss.choice.name!r} reads the words of captions; leave this out"


def _always_trained(config: Config, side: str, key: str) -> Iterator[Mistake]:
    phases = config.train.phases
    if phases and not any(phase.freezes_encoder(side) for phase in phases):
        yield (
            f"{key}: every phase trains {side}.encoder, so features change with every step; freeze "
            f"it in a phase (freeze: [{side}.encoder])"
        )


def _start(config: Config) -> Iterator[Mistake]:
    """A start at CCA needs linear maps in both towers."""
    options, heads = config.train, list(parts_of(config, "head"))
    for head in heads:
        needed = head.contract.needs_start
        if needed not in (None, options.start) and options.initial_weights is None:
            yield (
                f"{head.key}.name: {head.choice.name!r} is computed where training starts; write "
                f"train.start: {needed}"
            )
    for side in config.model.towers:
        yield from _closed_form(config, side)
    if options.start != "cca":
        return
    if options.initial_weights is not None:
        yield (
            "train.initial_weights: the weights of a run would be replaced by those of CCA; write "
            "train.start: random"
        )
    for (side, tower), head in zip(config.model.towers.items(), heads, strict=True):
        if tower.pooling is None or tower.pooling.contract.set_by != "cca":
            names = names_of("pooling", lambda pooling: pooling.set_by == "cca")
            yield (
                f"train.start: 'cca' sets the pooling `{names[0]}`, which model.{side} does not "
                f"have; write model.{side}.pooling: {' or '.join(names)}"
            )
        if not head.contract.begins_as_pooling:
            options_there = head.contract.options_for("begins_as_pooling")
            opposite = {name: not value for name, value in options_there.items()}
            hint = f"{head.key}.{options_text(opposite)}" if opposite else "another head"
            yield (
                f"train.start: 'cca' begins at the pooling, but the LayerNorm of {head.key} undoes "
                f"it; write {hint}"
            )
        if head.contract.keeps_width:
            name = next(iter(head.contract.options_for("keeps_width")), head.choice.name)
            yield (
                f"train.start: 'cca' sets the mean, which `{name}` of {head.key} leaves as it is; "
                "leave out one of the two"
            )


def _closed_form(config: Config, side: str) -> Iterator[Mistake]:
    """A part of embeddings in closed form must be in both towers, and be set."""
    pooling, head = config.model.towers[side].pooling, config.model.towers[side].head
    contract = None if pooling is None else pooling.contract
    if contract is None or contract.closed_form is None:
        return
    key = f"model.{side}.pooling"
    width = getattr(pooling, contract.closed_form, 0)
    if width + contract.across >= config.model.dimension:
        yield (
            f"{key}.{contract.closed_form}: {width} leaves none of the {config.model.dimension} "
            "numbers of an embedding to learn; choose fewer, or a larger model.dimension"
        )
    if not width:
        return
    for shared in contract.shared:
        values = {getattr(tower.pooling, shared, 0) for tower in config.model.towers.values()}
        if len(values) > 1:
            yield (
                f"{key}.{shared}: both towers need the same number, since their vectors are "
                "compared"
            )
    key = f"{key}.{contract.closed_form}"
    if config.train.start != "cca" and config.train.initial_weights is None:
        yield f"{key}: nothing sets the closed form; write train.start: cca"
    head_contract = head.contract
    if head_contract.reads_pooling:
        yield f"{key}: {head.name!r} reads the whole matrix of its pooling; write 0"
    if contract.across and head_contract.attends:
        yield (
            f"model.{side}.head: its attention would be added to numbers of the pooling that only "
            "compare with the other side; remove the attention, or local_scaling of the pooling"
        )


def _gradient_caching(config: Config) -> Iterator[Mistake]:
    """Batch normalisation that the config shows, in towers that embed in chunks."""
    if config.train.gradient_caching is None:
        return
    for number, phase in enumerate(config.train.phases, 1):
        for part in parts_of(config, "encoder", "pooling"):
            side, name = part.side, f"the {part.family} {part.choice.name!r}"
            option = next(iter(part.contract.options_for("batch_norm")), "")
            frozen_by = [f"{side}.encoder"]
            if part.family == "pooling":
                frozen_by = [f"{side}.pooling", f"{side}.head"]
            elif option:
                # A layer that comes before the encoder proper is not frozen with it.
                frozen_by = [side]
            if part.contract.batch_norm and not {side, *frozen_by} & set(phase.freeze):
                what = f"{part.key}.{option}" if option else name
                yield (
                    f"train.gradient_caching: a batch is embedded in chunks, and {what} would "
                    f"normalise each alone; leave it out, or freeze {frozen_by[0]} in phase "
                    f"{number}"
                )


def _compiled(config: Config) -> Iterator[Mistake]:
    """Losses that XLA cannot compile, and gradient caching."""
    if not config.train.jit_compile:
        return
    key = "train.jit_compile"
    if config.train.gradient_caching is not None:
        yield f"{key}: XLA cannot compile train.gradient_caching; leave out one of the two"
    for loss in parts_of(config, "loss"):
        if loss.contract.compiles:
            continue
        begin = f"{key}: XLA cannot compile the loss {loss.choice.name!r}"
        if needed := loss.contract.options_for("compiles"):
            yield (
                f"{begin} with these options; leave it out, or write {loss.key} with "
                f"{options_text(needed)}"
            )
        else:
            yield f"{begin}; leave it out"


def _judgements(config: Config) -> Iterator[Mistake]:
    files = config.data.source.judgement_files()
    for number, section in enumerate(config.evaluation.judgements):
        key, source = f"evaluation.judgements.{number}", section.source
        if source in files:
            # Data may come later; a folder that is there without the file is a mistake.
            if files[source].parent.is_dir() and not files[source].is_file():
                yield f"{key}: {source!r} comes from {files[source]}, which does not exist"
        elif source not in EXTENDED_COCO:
            if source != IDENTICAL and not os.path.isfile(source):
                known = ", ".join([*files, IDENTICAL, *EXTENDED_COCO])
                yield (
                    f"{key}: {cut(repr(source))} does not exist; it should be a CSV file, or one "
                    f"of {known}"
                )
        elif config.data.source.name != "coco":
            yield f"{key}: {source!r} judges COCO, not the source {config.data.source.name!r}"
        elif find_spec("eccv_caption") is None:
            yield f"{key}: {source!r} needs a package: {install_command('eccv')}"
    knows_truth = type(config.data.source).truth is not Source.truth
    for number, clash in name_clashes(config.judgements_of("test"), [TRUTH] if knows_truth else ()):
        yield f"evaluation.judgements.{number}: {clash}"


def _paper(config: Config) -> Iterator[Mistake]:
    """Unknown names in the figures of a paper."""
    for number, figures in enumerate(config.paper.figures if config.paper else ()):
        for family in ("matcher", "reranker"):
            name, known = getattr(figures, family), components(family)
            if name is not None and name not in known:
                unknown = f"unknown {family} {cut(repr(name))}.{nearest(name, known)}"
                yield f"paper.figures.{number}.{family}: {unknown}"


def _phases(config: Config) -> Iterator[Mistake]:
    towers, kinds = config.model.towers, embedding_kinds(config)
    parts = ["matcher", *towers, *(f"{side}.{part}" for side in towers for part in PARTS)]
    unpooled = [f"{side}.pooling" for side, tower in towers.items() if tower.pooling is None]
    with_kinds = zip(towers, kinds, strict=True)
    without_variance = [f"{side}.log_variance" for side, kind in with_kinds if kind != "gaussian"]
    for number, phase in enumerate(config.train.phases):
        key = f"train.phases.{number}"
        for name in (*phase.freeze, *phase.learning_rates):
            where = f"{key}.{'freeze' if name in phase.freeze else 'learning_rates'}"
            if name not in parts:
                yield f"{where}: unknown part {cut(repr(name))}. There are: {', '.join(parts)}"
            if name in unpooled:
                yield f"{where}: the tower of {name!r} has no pooling"
            if name in without_variance:
                yield f"{where}: the head of {name!r} has no log-variance"
        # The pooling of a tower is a part of its head.
        frozen = set(phase.freeze)
        if all(side in frozen or {f"{side}.encoder", f"{side}.head"} <= frozen for side in towers):
            yield f"{key}.freeze: both towers are frozen: nothing is left to train"
        if phase.warmup_epochs > phase.epochs:
            yield (
                f"{key}.warmup_epochs: {phase.warmup_epochs} is more than the {phase.epochs} "
                "epochs of the phase"
            )
        if phase.schedule == "step" and not phase.decay_epochs:
            yield f"{key}.decay_epochs: schedule 'step' needs the epochs of its steps"
        if phase.schedule == "cosine" and (phase.cosine_epochs or phase.epochs) < phase.epochs:
            yield (
                f"{key}.cosine_epochs: {phase.cosine_epochs} is less than the {phase.epochs} "
                "epochs of the phase, the last of which would have a learning rate of 0"
            )
        options = dict(phase)
        defaults = {name: field.default for name, field in type(phase).model_fields.items()}
        for name, why in _SCHEDULES.ineffective(options, defaults):
            yield f"{key}.{name}: {why}"


LARGEST = 2**31 - 1
"""The largest whole number of a config."""


def _numbers(value: Any, key: str) -> Iterator[Mistake]:
    """Integers that overflow the int32 of TensorFlow."""
    if isinstance(value, BaseModel | dict):
        for name, inner in dict(value).items():
            yield from _numbers(inner, f"{key}.{name}")
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from _numbers(inner, f"{key}.{number}")
    elif isinstance(value, int) and not isinstance(value, ByteSize) and abs(value) > LARGEST:
        yield f"{key[1:]}: got {cut(str(value))}; whole numbers go to {LARGEST:,}"
