"""What does not fit in a config: each part speaks for itself, and here the sections do."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any

from pydantic import BaseModel, ByteSize

from data_pipelines.sources import Source
from keras_xmr.experiments.config.schema import Config
from keras_xmr.experiments.config.training_rules import training_mistakes
from keras_xmr.judgements import EXTENDED_COCO, IDENTICAL, TRUTH, name_clashes
from keras_xmr.parts.contracts import ChosenPart, Mistake, Setting
from keras_xmr.parts.registry import Choice, components
from keras_xmr.utils.installing import install_command
from keras_xmr.utils.messages import cut, nearest


def mistakes(config: Config) -> Iterator[Mistake]:
    """Yields every combination that cannot work, with an explanation."""
    yield from _numbers(config, "")
    yield from _ineffective(config)
    yield from setting_of(config).mistakes()
    for rule in (_matchers, _data, training_mistakes, _judgements, _training_judgements, _paper):
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


def _paper(config: Config) -> Iterator[Mistake]:
    """Yields unknown names in the figures of a paper."""
    for number, figures in enumerate(config.paper.figures if config.paper else ()):
        for family in ("matcher", "reranker"):
            name, known = getattr(figures, family), components(family)
            if name is not None and name not in known:
                unknown = f"unknown {family} {cut(repr(name))}.{nearest(name, known)}"
                yield f"paper.figures.{number}.{family}: {unknown}"


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
