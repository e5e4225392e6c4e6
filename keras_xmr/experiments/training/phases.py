"""Phases of a training: learning rates, and frozen parts of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import ops

from keras_xmr.experiments.config.train_section import PhaseOptions
from keras_xmr.model.retriever import Retriever
from keras_xmr.model.towers import parts_of
from keras_xmr.utils.sides import SIDES


@keras.saving.register_keras_serializable(package="keras_xmr")
class WarmUp(keras.optimizers.schedules.LearningRateSchedule):
    """Grows linearly to the start of another schedule, then follows it.

    Args:
        steps: Steps of the warm-up.
        schedule: The schedule after the warm-up; its step 0 is the first after the warm-up.
    """

    def __init__(
        self, steps: int, schedule: keras.optimizers.schedules.LearningRateSchedule
    ) -> None:
        super().__init__()
        self.steps = steps
        self.schedule = schedule

    def __call__(self, step: Any) -> Any:
        step = ops.cast(step, "float32")
        rate = self.schedule(ops.maximum(step - self.steps, 0.0))
        return rate * ops.minimum((step + 1.0) / (self.steps + 1.0), 1.0)

    def get_config(self) -> dict[str, Any]:
        return {
            "steps": self.steps,
            "schedule": keras.saving.serialize_keras_object(self.schedule),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> WarmUp:
        schedule = keras.saving.deserialize_keras_object(config["schedule"])
        return cls(config["steps"], schedule)


def phase_schedule(
    phase: PhaseOptions, steps_per_epoch: int
) -> keras.optimizers.schedules.LearningRateSchedule:
    """Returns the schedule of a phase, over the steps of the phase.

    Args:
        phase: The phase.
        steps_per_epoch: Steps per epoch.
    """
    schedules = keras.optimizers.schedules
    warmup = round(phase.warmup_epochs * steps_per_epoch)
    steps = round((phase.cosine_epochs or phase.epochs) * steps_per_epoch) - warmup
    rate = phase.learning_rate
    if phase.schedule == "cosine":
        schedule = schedules.CosineDecay(rate, max(steps, 1))
    elif phase.schedule == "constant":
        schedule = schedules.ExponentialDecay(rate, decay_steps=1, decay_rate=1.0)
    else:
        ends = [round(e * steps_per_epoch) - warmup for e in sorted(phase.decay_epochs)]
        rates = [rate * phase.decay_factor**n for n in range(len(ends) + 1)]
        # A boundary belongs to the rate before it, so the fall comes with the step after it.
        schedule = schedules.PiecewiseConstantDecay([end - 1 for end in ends], rates)
    return WarmUp(warmup, schedule)


def model_parts(model: Retriever) -> Mapping[str, list[keras.Layer]]:
    """Returns the parts that a config can name: `matcher`, `image`, `image.encoder`, and so on."""
    parts = {"matcher": [model.matcher]}
    for side, tower in (("image", model.image_tower), ("text", model.text_tower)):
        parts[side] = [tower]
        parts |= {f"{side}.{part}": layers for part, layers in parts_of(tower).items()}
    return parts


def freeze(model: Retriever, names: tuple[str, ...]) -> None:
    """Makes everything trainable but the named parts."""
    for part in (model.image_tower, model.text_tower, model.matcher):
        # Setting True where it is True already does not reach the layers inside.
        part.trainable = False
        part.trainable = True
    parts = model_parts(model)
    for name in names:
        for layer in parts[name]:
            layer.trainable = False


def never_trained(model: Retriever, phases: Sequence[PhaseOptions]) -> list[keras.Variable]:
    """Returns the weights of encoders that all phases freeze.

    The states of their random generators are not among them: these change.
    """
    towers = {"image": model.image_tower, "text": model.text_tower}
    return [
        weight
        for side in SIDES
        if all(phase.freezes_encoder(side) for phase in phases)
        for layer in parts_of(towers[side])["encoder"]
        for weight in layer.weights
    ]


def learning_rate_factors(
    model: Retriever, phase: PhaseOptions
) -> list[tuple[keras.Variable, float]]:
    """Variables with another learning rate than the phase, and its factor.

    Where a part is within another, the inner one comes later, and takes precedence.
    """
    parts = model_parts(model)
    depth = {"image": 0, "text": 0, "image.head": 1, "text.head": 1}
    depth |= {"image.log_variance": 3, "text.log_variance": 3}
    return [
        (variable, phase.learning_rates[name] / phase.learning_rate)
        for name in sorted(phase.learning_rates, key=lambda name: depth.get(name, 2))
        for layer in parts[name]
        for variable in layer.trainable_variables
    ]
