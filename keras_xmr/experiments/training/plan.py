"""The plan of a training: its phases in steps, its validations, and when it ends."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise

from keras_xmr.experiments.config.train_section import PhaseOptions, TrainOptions
from keras_xmr.experiments.runs.summary import Choices


@dataclass(frozen=True)
class Span:
    """The steps of one phase: from `start` up to, but not including, `end`."""

    number: int
    phase: PhaseOptions
    start: int
    end: int


@dataclass(frozen=True)
class Plan:
    """The plan of a training, by its options or by the former training that it repeats.

    Args:
        options: The options.
        steps_per_epoch: Steps per epoch.
        choices: The choices of a former training, which this one keeps.
    """

    options: TrainOptions
    steps_per_epoch: int
    choices: Choices | None = None

    @property
    def repeated_epochs(self) -> int:
        """Number of epochs that a former training had until its best validation; 0 without one."""
        return 0 if self.choices is None else self.choices.epochs

    @property
    def epochs(self) -> int:
        """The largest number of epochs."""
        return self.repeated_epochs or sum(phase.epochs for phase in self.options.phases)

    @property
    def steps(self) -> int:
        """The largest number of steps."""
        return self.epochs * self.steps_per_epoch

    @property
    def validate_every(self) -> int:
        """Epochs between two validations."""
        return self.repeated_epochs or self.options.validate_every

    @property
    def spans(self) -> list[Span]:
        """The phases, and when they begin and end; none if nothing is to be trained."""
        is_trained = self.choices is None or self.choices.is_trained
        phases = self.options.phases if is_trained else ()
        steps = accumulate((phase.epochs * self.steps_per_epoch for phase in phases), initial=0)
        numbered = zip(enumerate(phases), pairwise(steps), strict=True)
        return [Span(number, phase, *ends) for (number, phase), ends in numbered]

    def is_over(self, step: int, best_step: int, validates: bool) -> bool:
        """Returns whether the training ends at a step.

        With `train.patience` it ends where validation has not gained for as long; one that keeps
        the choices of a former one, after as many epochs.

        Args:
            step: Steps done.
            best_step: The step of the best validation.
            validates: Whether there are validations.
        """
        if self.repeated_epochs:
            return step >= self.repeated_epochs * self.steps_per_epoch
        if self.options.patience is None or not validates:
            return False
        longest = self.options.patience * self.options.validate_every * self.steps_per_epoch
        return step - best_step >= longest

    def epochs_at_once(self, step: int, span: Span, one: bool) -> tuple[int, int, int]:
        """Returns the epochs to train from a step on before anything else is done.

        Epochs go to the end of the phase, or of an epoch that was begun, or to the next validation
        where that may end the training.

        Args:
            step: Steps done.
            span: The phase.
            one: Whether it is never more than one epoch.

        Returns:
            The first epoch, the one after the last, and the steps of an epoch.
        """
        first, last = step // self.steps_per_epoch, span.end // self.steps_per_epoch
        left = -step % self.steps_per_epoch
        if left or one:
            last = first + 1
        elif self.repeated_epochs or self.options.patience is not None:
            last = min(last, (first // self.validate_every + 1) * self.validate_every)
        return first, last, left or self.steps_per_epoch
