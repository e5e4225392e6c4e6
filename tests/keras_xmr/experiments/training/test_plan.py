"""The plan of a training: spans of phases, epochs between validations, and the end."""

from __future__ import annotations

from keras_xmr.experiments.config.train_section import CCAOptions, PhaseOptions, TrainOptions
from keras_xmr.experiments.runs.summary import Choices
from keras_xmr.experiments.training.plan import Plan

PHASES = tuple(PhaseOptions(epochs=count, learning_rate=0.1) for count in (3, 4))


def plan(choices: Choices | None = None, **options) -> Plan:
    # Without an optimizer, which would import TensorFlow.
    return Plan(TrainOptions.model_construct(phases=PHASES, **options), 5, choices)


def test_phases_are_spans_of_steps():
    assert [(span.number, span.start, span.end) for span in plan().spans] == [
        (0, 0, 15),
        (1, 15, 35),
    ]
    assert plan().steps == 35


def test_epochs_go_to_the_end_of_an_epoch_of_a_phase_or_to_a_validation():
    _, second = plan().spans
    assert plan().epochs_at_once(15, second, one=False) == (3, 7, 5)
    assert plan().epochs_at_once(17, second, one=False) == (3, 4, 3), "what is left of an epoch"
    assert plan().epochs_at_once(15, second, one=True) == (3, 4, 5)
    patient = plan(patience=1, validate_every=2)
    assert patient.epochs_at_once(15, second, one=False) == (3, 4, 5)
    assert patient.epochs_at_once(20, second, one=False) == (4, 6, 5)


def test_it_ends_where_validation_has_not_gained_for_as_long_as_patience_says():
    patient = plan(patience=2, validate_every=1)
    assert [patient.is_over(step, 10, validates=True) for step in (15, 19, 20)] == [
        False,
        False,
        True,
    ]
    assert not patient.is_over(20, 10, validates=False)
    assert not plan().is_over(35, 0, validates=True)


def test_one_that_repeats_a_former_one_has_as_many_epochs_and_no_other_validation():
    options = CCAOptions()
    known = {"cca": options, "local_scaling": False, "weight": 0.5}
    again = plan(Choices(**known, is_trained=True, epochs=4), patience=1)
    assert (again.epochs, again.validate_every, again.steps) == (4, 4, 20)
    assert [again.is_over(step, 0, validates=True) for step in (19, 20)] == [False, True]
    assert plan(Choices(**known, is_trained=False)).spans == []
