"""Checks that data, training and evaluation of a config fit together."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ByteSize

from data_pipelines.sources import Source
from keras_xmr.config.messages import cut, nearest
from keras_xmr.config.model_compatibility import Mistake, check_model, embedding_kinds, options_text
from keras_xmr.config.registry import components, contract_of
from keras_xmr.judgements import EXTENDED_COCO, TRUTH, name_clashes

if TYPE_CHECKING:
    from keras_xmr.config.schema import Config

PARTS = ("encoder", "pooling", "head", "log_variance")
"""The parts of a tower, which can be frozen or have other learning rates."""


def check(config: Config) -> Iterator[Mistake]:
    """Yields the key and the explanation of every combination that cannot work."""
    yield from _numbers(config, ())
    data = _mixing, _data
    training = _phases, _gradient_caching, _compiled, _precomputed, _precomputed_captions, _start
    evaluation = _judgements, _training_judgements, _paper
    for rule in (check_model, *data, *training, *evaluation):
        yield from rule(config)


def _mixing(config: Config) -> Iterator[Mistake]:
    if not config.data.image.mixes:
        return
    key = "mixup" if config.data.image.mixup else "cutmix"
    if config.data.source.holds == "regions":
        yield ("data", "image", key), "images are mixed as pixels, and the source holds regions"
    for loss in config.objective:
        if not contract_of("loss", loss).supports_soft_targets:
            names = [n for n, c in components("loss").items() if c.contract.supports_soft_targets]
            yield (
                ("data", "image", key),
                f"{loss.name!r} needs pairs that match or do not, and a mixed image "
                f"matches in part; losses with soft targets are: {', '.join(names)}",
            )


def _data(config: Config) -> Iterator[Mistake]:
    classes = config.data.source.label_kind == "class"
    for key, value, wanted in (
        (("data", "judgements"), config.data.judgements, "classes"),
        (("train", "sampler"), config.train.sampler, "one_per_class"),
    ):
        if value == wanted and not classes:
            yield (
                key,
                f"{wanted!r} needs one class per image, which the source "
                f"{config.data.source.name!r} does not have",
            )


def _training_judgements(config: Config) -> Iterator[Mistake]:
    """Human judgements, and losses that cannot learn from them."""
    if config.data.training_judgements is None:
        return
    key = ("data", "training_judgements")
    if not any(contract_of("loss", loss).reads_matches for loss in config.objective):
        names = ", ".join(loss.name for loss in config.objective)
        yield key, f"no loss of the objective ({names}) learns from matching pairs; remove it"
    for number, loss in enumerate(config.objective):
        if contract_of("loss", loss).assumes_one_image_per_caption:
            yield (
                ("objective", number, "name"),
                f"{loss.name!r} assumes one image per caption, and data.training_judgements "
                "may name several, or none; remove one of the two",
            )
    if config.data.image.mixes:
        yield key, "says nothing of mixed images; write data.image: {mixup: 0, cutmix: 0}"


def _precomputed(config: Config) -> Iterator[Mistake]:
    """Features that are computed once need a frozen encoder and fixed pixels."""
    if not config.train.precompute_features:
        return
    key = ("train", "precompute_features")
    if contract_of("encoder", config.model.image.encoder).reads != "pixels":
        yield key, f"the source {config.data.source.name!r} holds features already; leave it out"
        return
    yield from _always_trained(config, "image", key)
    image = config.data.image
    random = {"crop": image.crop == "random_resized", "flip": image.flip, "cutout": image.cutout}
    random |= {"mixup": image.mixup, "cutmix": image.cutmix}
    if changed := [f"data.image.{name}" for name, is_on in random.items() if is_on]:
        yield (
            key,
            f"features are computed once, of images as evaluation sees them, but "
            f"{', '.join(changed)} changes them at random; write data.image: {{crop: center, "
            "flip: false, cutout: 0, mixup: 0, cutmix: 0}",
        )


def _precomputed_captions(config: Config) -> Iterator[Mistake]:
    """Features of captions need a frozen encoder and fixed words."""
    if not config.train.precompute_captions:
        return
    key = ("train", "precompute_captions")
    yield from _always_trained(config, "text", key)
    if config.data.text.drop_words:
        yield (
            key,
            "features are computed once, of whole captions, but data.text.drop_words drops words "
            "at random; write data.text.drop_words: 0",
        )
    for loss in config.objective:
        if contract_of("loss", loss).reads_words:
            yield key, f"{loss.name!r} reads the words of captions; leave this out"


def _always_trained(config: Config, side: str, key: tuple[str, str]) -> Iterator[Mistake]:
    phases = config.train.phases
    if phases and not any(phase.freezes_encoder(side) for phase in phases):
        yield (
            key,
            f"every phase trains {side}.encoder, so features change with every step; freeze it in "
            f"a phase (freeze: [{side}.encoder])",
        )


def _start(config: Config) -> Iterator[Mistake]:
    """A start at CCA needs linear maps in both towers."""
    for side, tower in config.model.towers.items():
        head = tower.head
        needed = contract_of("head", head).needs_start
        if needed not in (None, config.train.start) and config.train.initial_weights is None:
            yield (
                ("model", side, "head", "name"),
                f"{head.name!r} is computed where training starts; write train.start: {needed}",
            )
    yield from _closed_form(config)
    if config.train.start != "cca":
        return
    if config.train.initial_weights is not None:
        yield (
            ("train", "initial_weights"),
            "the weights of a run would be replaced by those of CCA; write train.start: random",
        )
    for side, tower in config.model.towers.items():
        if tower.pooling is None or contract_of("pooling", tower.pooling).set_by != "cca":
            names = [n for n, c in components("pooling").items() if c.contract.set_by == "cca"]
            yield (
                ("train", "start"),
                f"'cca' sets the pooling `{names[0]}`, which model.{side} does not have; write "
                f"model.{side}.pooling: {' or '.join(names)}",
            )
        head = contract_of("head", tower.head)
        if not head.begins_as_pooling:
            opposite = {n: not v for n, v in head.options_for("begins_as_pooling").items()}
            way_out = f"model.{side}.head.{options_text(opposite)}" if opposite else "another head"
            yield (
                ("train", "start"),
                f"'cca' begins at the pooling, but the LayerNorm of model.{side}.head undoes it; "
                f"write {way_out}",
            )
        if head.keeps_width:
            name = next(iter(head.options_for("keeps_width")), tower.head.name)
            yield (
                ("train", "start"),
                f"'cca' sets the mean, which `{name}` of model.{side}.head leaves as it is; "
                "leave out one of the two",
            )


def _closed_form(config: Config) -> Iterator[Mistake]:
    """A part of embeddings in closed form must be in both towers, and be set."""
    poolings = {side: tower.pooling for side, tower in config.model.towers.items()}
    for side, pooling in poolings.items():
        contract = None if pooling is None else contract_of("pooling", pooling)
        if contract is None or contract.closed_form is None:
            continue
        key = ("model", side, "pooling", contract.closed_form)
        width = getattr(pooling, contract.closed_form, 0)
        if width + contract.across >= config.model.dimension:
            yield (
                key,
                f"{width} leaves none of the {config.model.dimension} numbers of an embedding to "
                "learn; choose fewer, or a larger model.dimension",
            )
        if not width:
            continue
        for shared in contract.shared:
            if len({getattr(each, shared, 0) for each in poolings.values()}) > 1:
                yield (
                    ("model", side, "pooling", shared),
                    "both towers need the same number, since their vectors are compared",
                )
        if config.train.start != "cca" and config.train.initial_weights is None:
            yield key, "nothing sets the closed form; write train.start: cca"
        head = config.model.towers[side].head
        head_contract = contract_of("head", head)
        if head_contract.reads_pooling:
            yield key, f"{head.name!r} reads the whole matrix of its pooling; write 0"
        if contract.across and head_contract.attends:
            yield (
                ("model", side, "head"),
                "what it attends to would be added to numbers that only compare with the other "
                "side; leave out its attention, or local_scaling of the pooling",
            )


def _gradient_caching(config: Config) -> Iterator[Mistake]:
    """Batch normalisation that the config shows, in towers that embed in chunks."""
    if config.train.gradient_caching is None:
        return
    for number, phase in enumerate(config.train.phases):
        for side in ("image", "text"):
            for part, what in _batch_norms(config, side):
                if not {side, *part} & set(phase.freeze):
                    yield (
                        ("train", "gradient_caching"),
                        f"a batch is embedded in chunks, and {what} would normalise each alone; "
                        f"leave it out, or freeze {part[0]} in phase {number + 1}",
                    )


def _compiled(config: Config) -> Iterator[Mistake]:
    """Losses that XLA cannot compile, and gradient caching."""
    if not config.train.jit_compile:
        return
    key = ("train", "jit_compile")
    if config.train.gradient_caching is not None:
        yield key, "XLA cannot compile train.gradient_caching; leave out one of the two"
    for number, loss in enumerate(config.objective):
        contract = contract_of("loss", loss)
        if contract.compiles:
            continue
        if needed := contract.options_for("compiles"):
            yield (
                key,
                f"XLA cannot compile the loss {loss.name!r} with these options; leave it out, or "
                f"write objective.{number} with {options_text(needed)}",
            )
        else:
            yield key, f"XLA cannot compile the loss {loss.name!r}; leave it out"


def _batch_norms(config: Config, side: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Parts of a tower that normalise by batches: the names that freeze them, and a description."""
    tower = config.model.towers[side]
    if (encoder := contract_of("encoder", tower.encoder)).batch_norm:
        option = next(iter(encoder.options_for("batch_norm")), "")
        name = f"model.{side}.encoder.{option}" if option else f"the encoder {tower.encoder.name!r}"
        # A layer that comes before the encoder proper is not frozen with it.
        yield (side,) if option else (f"{side}.encoder",), name
    if tower.pooling is not None and (pooling := contract_of("pooling", tower.pooling)).batch_norm:
        option = next(iter(pooling.options_for("batch_norm")), "")
        name = f"model.{side}.pooling.{option}" if option else f"the pooling {tower.pooling.name!r}"
        yield (f"{side}.pooling", f"{side}.head"), name


def _judgements(config: Config) -> Iterator[Mistake]:
    files = config.data.source.judgement_files()
    for number, section in enumerate(config.evaluation.judgements):
        key, source = ("evaluation", "judgements", number), section.source
        if source in files:
            # Data may come later; a folder that is there without the file is a mistake.
            if files[source].parent.is_dir() and not files[source].is_file():
                yield key, f"{source!r} comes from {files[source]}, which does not exist"
        elif source not in EXTENDED_COCO:
            if not os.path.isfile(source):
                yield (
                    key,
                    f"{cut(repr(source))} does not exist; it should be a CSV file, or one of "
                    f"{', '.join([*files, *EXTENDED_COCO])}",
                )
        elif config.data.source.name != "coco":
            yield key, f"{source!r} judges COCO, not the source {config.data.source.name!r}"
        elif find_spec("eccv_caption") is None:
            yield key, f"{source!r} needs a package: pip install 'keras-xmr[eccv]'"
    knows_truth = type(config.data.source).truth is not Source.truth
    for number, clash in name_clashes(config.judgements_of("test"), [TRUTH] if knows_truth else ()):
        yield ("evaluation", "judgements", number), clash


def _paper(config: Config) -> Iterator[Mistake]:
    """Unknown names in the figures of a paper."""
    for number, figures in enumerate(config.paper.figures if config.paper else ()):
        for family in ("matcher", "reranker"):
            name = getattr(figures, family)
            if name is not None and name not in components(family):
                yield (
                    ("paper", "figures", number, family),
                    f"unknown {family} {cut(repr(name))}.{nearest(name, components(family))}",
                )


def _is_frozen(side: str, names: tuple[str, ...]) -> bool:
    """Whether a tower is not trained. Its pooling is a part of its head."""
    return side in names or {f"{side}.encoder", f"{side}.head"} <= set(names)


def _phases(config: Config) -> Iterator[Mistake]:
    parts = ["matcher", "image", "text"]
    parts += [f"{side}.{part}" for side in ("image", "text") for part in PARTS]
    unpooled = [f"{side}.pooling" for side, t in config.model.towers.items() if t.pooling is None]
    kinds = zip(("image", "text"), embedding_kinds(config), strict=True)
    without_variance = [f"{side}.log_variance" for side, kind in kinds if kind != "gaussian"]
    for number, phase in enumerate(config.train.phases):
        key = ("train", "phases", number)
        for name in (*phase.freeze, *phase.learning_rates):
            where = "freeze" if name in phase.freeze else "learning_rates"
            if name not in parts:
                yield (
                    (*key, where),
                    f"unknown part {cut(repr(name))}. There are: {', '.join(parts)}",
                )
            if name in unpooled:
                yield (*key, where), f"the tower of {name!r} has no pooling"
            if name in without_variance:
                yield (*key, where), f"the head of {name!r} has no log-variance"
        if all(_is_frozen(side, phase.freeze) for side in ("image", "text")):
            yield (*key, "freeze"), "both towers are frozen: nothing is left to train"
        if phase.warmup_epochs > phase.epochs:
            yield (
                (*key, "warmup_epochs"),
                f"{phase.warmup_epochs} is more than the {phase.epochs} epochs of the phase",
            )
        if phase.schedule == "step" and not phase.decay_epochs:
            yield (*key, "decay_epochs"), "schedule 'step' needs the epochs of its steps"
        if phase.schedule == "cosine" and (phase.cosine_epochs or phase.epochs) < phase.epochs:
            yield (
                (*key, "cosine_epochs"),
                f"{phase.cosine_epochs} is less than the {phase.epochs} epochs of the phase, the "
                "last of which would have a learning rate of 0",
            )
        for name, schedule in (("cosine_epochs", "cosine"), ("decay_epochs", "step")):
            if getattr(phase, name) and phase.schedule != schedule:
                yield (
                    (*key, name),
                    f"has no effect with schedule {phase.schedule!r}; write schedule: {schedule}",
                )


LARGEST = 2**31 - 1
"""The largest whole number of a config."""


def _numbers(value: Any, key: tuple[str | int, ...]) -> Iterator[Mistake]:
    """Integers that overflow the int32 of TensorFlow."""
    if isinstance(value, BaseModel | dict):
        for name, inner in dict(value).items():
            yield from _numbers(inner, (*key, name))
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from _numbers(inner, (*key, number))
    elif isinstance(value, int) and not isinstance(value, ByteSize) and abs(value) > LARGEST:
        yield key, f"got {cut(str(value))}; whole numbers go to {LARGEST:,}"
