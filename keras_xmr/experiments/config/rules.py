"""What does not fit in a config: each part speaks for itself, and here the sections do."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any

from pydantic import BaseModel, ByteSize

from data_pipelines.sources import Source
from keras_xmr.experiments.config.schema import Config
from keras_xmr.judgements import EXTENDED_COCO, IDENTICAL, TRUTH, name_clashes
from keras_xmr.parts.contracts import ChosenPart, Contract, Mistake, Setting, names_of
from keras_xmr.parts.registry import Choice, components
from keras_xmr.utils.installing import install_command
from keras_xmr.utils.messages import cut, nearest

TOWER_PARTS = ("encoder", "pooling", "head", "log_variance")
"""The parts of a tower, which can be frozen or have other learning rates."""

_SCHEDULES = Contract(
    only_with={"cosine_epochs": {"schedule": "cosine"}, "decay_epochs": {"schedule": "step"}}
)
"""Options of a phase that belong to a schedule."""


def mistakes(config: Config) -> Iterator[Mistake]:
    """Yields every combination that cannot work, with an explanation."""
    yield from _numbers(config, "")
    yield from _ineffective(config)
    yield from setting_of(config).mistakes()
    training = _phases, _sampler, _compiled, _precomputed, _precomputed_captions, _start
    for rule in (_matchers, _data, *training, _judgements, _training_judgements, _paper):
        yield from rule(config)


def setting_of(config: Config) -> Setting:
    """Returns the parts of a config, and what decides whether they fit."""
    return Setting(
        parts=tuple(_parts(config)),
        dimension=config.model.dimension,
        image_size=config.data.image.size,
        source=config.data.source.name,
        holds=config.data.source.holds,
        sampler=config.train.sampler,
        start=config.train.start,
        continues=config.train.initial_weights is not None,
        frozen=tuple(frozenset(phase.freeze) for phase in config.train.phases),
        in_chunks=config.train.gradient_caching is not None,
        compiled=config.train.jit_compile,
        stores_captions=config.train.precompute_captions,
        judged=config.data.training_judgements is not None,
    )


def _choices(config: Config) -> Iterator[tuple[str, str, Choice]]:
    """Yields the key, the family and the section of each part of the model and its training."""
    chosen: list[tuple[str, str, Choice | None]] = []
    for side, tower in config.model.towers.items():
        chosen += [
            (f"model.{side}.encoder", "encoder", tower.encoder),
            (f"model.{side}.head", "head", tower.head),
            (f"model.{side}.pooling", "pooling", tower.pooling),
        ]
    chosen.append(("model.matcher", "matcher", config.model.matcher))
    for number, matcher in enumerate(config.evaluation.matchers):
        chosen.append((f"evaluation.matchers.{number}", "matcher", matcher))
    for number, loss in enumerate(config.objective):
        chosen.append((f"objective.{number}", "loss", loss))
    for key, family, choice in chosen:
        if choice is not None:
            yield key, family, choice


def _parts(config: Config) -> Iterator[ChosenPart]:
    for key, family, choice in _choices(config):
        contract = choice.contract
        options = choice.model_dump(include=contract.named_options())
        yield ChosenPart(key, family, choice.name, choice.part, contract, options)


def _ineffective(config: Config) -> Iterator[Mistake]:
    """Yields options that have no effect with others of their part."""
    for key, _, choice in _choices(config):
        for name, why in choice.ineffective():
            yield f"{key}.{name}: {why}"


def _matchers(config: Config) -> Iterator[Mistake]:
    """Yields matchers of the evaluation that occur with other options before."""
    matchers = [(key, choice) for key, family, choice in _choices(config) if family == "matcher"]
    first: dict[str, Mapping[str, object]] = {}
    for key, matcher in matchers:
        # Initial values of learned scalars make no difference.
        learned = matcher.contract.learned
        fixed = {name: value for name, value in matcher.options().items() if name not in learned}
        if first.setdefault(matcher.name, fixed) != fixed:
            yield f"{key}.name: {matcher.name!r} occurs twice with different options; remove one"


def _data(config: Config) -> Iterator[Mistake]:
    needing = []
    if config.data.judgements == "classes":
        needing.append("data.judgements: 'classes'")
    if config.train.sampler == "one_per_class":
        needing.append("train.sampler: 'one_per_class'")
    if config.relevance.references == "class":
        needing.append("relevance.references: 'class'")
    for choice in needing if config.data.source.label_kind != "class" else ():
        yield (
            f"{choice} needs one class per image, which the source {config.data.source.name!r} "
            "does not have"
        )


def _sampler(config: Config) -> Iterator[Mistake]:
    """Yields options of one sampler alone, with another."""
    for name, of in (("offline_candidates", "offline_negatives"), ("captions_per_image", "images")):
        default = type(config.train).model_fields[name].default
        if getattr(config.train, name) != default and config.train.sampler != of:
            yield (
                f"train.{name} has no effect with train.sampler {config.train.sampler!r}; set that "
                f"to {of}, or leave this out"
            )


def _training_judgements(config: Config) -> Iterator[Mistake]:
    """Yields human judgements that no loss learns from."""
    losses = config.objective
    if config.data.training_judgements is None or any(
        loss.contract.reads_matches for loss in losses
    ):
        return
    names = ", ".join(loss.name for loss in losses)
    yield (
        f"data.training_judgements: no loss of the objective ({names}) learns from matching "
        "pairs; remove it"
    )


def _precomputed(config: Config) -> Iterator[Mistake]:
    """Yields why features cannot be computed once.

    The encoder must be frozen, and pixels the same where no phase reads others.
    """
    if not config.train.precompute_features:
        return
    key = "train.precompute_features"
    if config.model.image.encoder.contract.reads != "pixels":
        source = config.data.source.name
        yield f"{key}: the source {source!r} holds features already; leave it out"
        return
    yield from _always_trained(config, "image", key)
    image = config.data.image
    if not all(phase.freezes_encoder("image") for phase in config.train.phases):
        return
    random = {"crop": image.crop == "random_resized", "flip": image.flip, "cutout": image.cutout}
    if changed := [f"data.image.{name}" for name, is_on in random.items() if is_on]:
        yield (
            f"{key}: features are computed once, of images as evaluation sees them, but "
            f"{', '.join(changed)} changes them at random; write data.image: {{crop: center, "
            "flip: false, cutout: 0}"
        )


def _precomputed_captions(config: Config) -> Iterator[Mistake]:
    """Yields features of captions need a frozen encoder and fixed words."""
    if not config.train.precompute_captions:
        return
    key = "train.precompute_captions"
    yield from _always_trained(config, "text", key)
    if config.data.text.drop_words:
        yield (
            f"{key}: features are computed once, of whole captions, but data.text.drop_words drops "
            "words at random; write data.text.drop_words: 0"
        )


def _always_trained(config: Config, side: str, key: str) -> Iterator[Mistake]:
    phases = config.train.phases
    if phases and not any(phase.freezes_encoder(side) for phase in phases):
        yield (
            f"{key}: every phase trains {side}.encoder, so features change with every step; freeze "
            f"it in a phase (freeze: [{side}.encoder])"
        )


def _start(config: Config) -> Iterator[Mistake]:
    """Yields why a training cannot start at CCA: by its towers, or by the weights of a run."""
    if config.train.start != "cca":
        return
    if config.train.initial_weights is not None:
        yield (
            "train.initial_weights: the weights of a run would be replaced by CCA; write "
            "train.start: random"
        )
    for side, tower in config.model.towers.items():
        if tower.pooling is None or tower.pooling.contract.set_by != "cca":
            names = names_of("pooling", lambda pooling: pooling.set_by == "cca")
            yield (
                f"train.start: 'cca' sets the pooling `{names[0]}`, which model.{side} does not "
                f"have; write model.{side}.pooling: {' or '.join(names)}"
            )


def _compiled(config: Config) -> Iterator[Mistake]:
    if config.train.jit_compile and config.train.gradient_caching is not None:
        yield (
            "train.jit_compile: XLA cannot compile train.gradient_caching; leave out one of the two"
        )


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
    """Yields unknown names in the figures of a paper."""
    for number, figures in enumerate(config.paper.figures if config.paper else ()):
        for family in ("matcher", "reranker"):
            name, known = getattr(figures, family), components(family)
            if name is not None and name not in known:
                unknown = f"unknown {family} {cut(repr(name))}.{nearest(name, known)}"
                yield f"paper.figures.{number}.{family}: {unknown}"


def _phases(config: Config) -> Iterator[Mistake]:
    towers = config.model.towers
    kinds = [tower.head.contract.kind for tower in towers.values()]
    parts = ["matcher", *towers, *(f"{side}.{part}" for side in towers for part in TOWER_PARTS)]
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
