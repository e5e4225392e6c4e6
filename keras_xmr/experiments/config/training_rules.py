"""What does not fit in the training of a config: its phases, its start, and features it stores."""

from __future__ import annotations

from collections.abc import Iterator

from keras_xmr.experiments.config.schema import Config
from keras_xmr.experiments.config.train_section import PhaseOptions
from keras_xmr.parts.contracts import Contract, Mistake, names_of
from keras_xmr.utils.messages import cut
from keras_xmr.utils.sides import SIDES

TOWER_PARTS = ("encoder", "pooling", "head", "log_variance")
"""The parts of a tower, which can be frozen or have other learning rates."""

_SCHEDULES = Contract(
    only_with={"cosine_epochs": {"schedule": "cosine"}, "decay_epochs": {"schedule": "step"}}
)
"""Options of a phase that belong to a schedule."""


def training_mistakes(config: Config) -> Iterator[Mistake]:
    """Yields combinations of options of the training that cannot work, with an explanation."""
    for rule in (_phases, _sampler, _compiled, _precomputed, _precomputed_captions, _start):
        yield from rule(config)


def _phases(config: Config) -> Iterator[Mistake]:
    for number, phase in enumerate(config.train.phases):
        key = f"train.phases.{number}"
        yield from _named_parts(config, phase, key)
        # The pooling of a tower is a part of its head.
        frozen = set(phase.freeze)
        if all(side in frozen or {f"{side}.encoder", f"{side}.head"} <= frozen for side in SIDES):
            yield f"{key}.freeze: both towers are frozen: nothing is left to train"
        yield from _schedule(phase, key)


def _named_parts(config: Config, phase: PhaseOptions, key: str) -> Iterator[Mistake]:
    """Yields parts that a phase freezes, or gives another learning rate, and that do not exist."""
    towers = config.model.towers
    parts = ["matcher", *towers, *(f"{side}.{part}" for side in towers for part in TOWER_PARTS)]
    for name in (*phase.freeze, *phase.learning_rates):
        where = f"{key}.{'freeze' if name in phase.freeze else 'learning_rates'}"
        if name not in parts:
            yield f"{where}: unknown part {cut(repr(name))}. There are: {', '.join(parts)}"
            continue
        side, _, part = name.partition(".")
        if part == "pooling" and towers[side].pooling is None:
            yield f"{where}: the tower of {name!r} has no pooling"
        if part == "log_variance" and towers[side].head.contract.kind != "gaussian":
            yield f"{where}: the head of {name!r} has no log-variance"


def _schedule(phase: PhaseOptions, key: str) -> Iterator[Mistake]:
    """Yields options of the schedule of a phase that do not fit its epochs, or one another."""
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


def _sampler(config: Config) -> Iterator[Mistake]:
    """Yields options of one sampler alone, with another."""
    for name, of in (("offline_candidates", "offline_negatives"), ("captions_per_image", "images")):
        default = type(config.train).model_fields[name].default
        if getattr(config.train, name) != default and config.train.sampler != of:
            yield (
                f"train.{name} has no effect with train.sampler {config.train.sampler!r}; set that "
                f"to {of}, or leave this out"
            )


def _compiled(config: Config) -> Iterator[Mistake]:
    if config.train.jit_compile and config.train.gradient_caching is not None:
        yield (
            "train.jit_compile: XLA cannot compile train.gradient_caching; leave out one of the two"
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
