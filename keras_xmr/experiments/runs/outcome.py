"""What became of a training, in sentences."""

from __future__ import annotations

from keras_xmr.experiments.runs.summary import Summary


def outcome_of_training(summary: Summary) -> str | None:
    """Says whether the trained part of a model with a closed form is used, and labels were.

    Args:
        summary: The summary of the training.
    """
    choices = summary.choices
    if choices is None:
        return None
    if not summary.is_complete:
        return "This is the model in closed form (linear maps); its training goes on."
    uses_training = choices.is_trained and choices.weight < 1
    if choices.is_trained and uses_training:
        said = (
            f"Training gained on the validation photos: the model is {100 * choices.weight:.0f} % "
            f"closed form and {100 * (1 - choices.weight):.0f} % trained."
        )
    else:
        said = (
            "Nothing that was trained is used: training gained nothing on the validation photos, "
            "so the model is the closed form (linear maps) alone."
        )
    if summary.labels is not None:
        said += f" {_use_of_labels(*summary.labels, uses_training)}"
    return said


def _use_of_labels(changed: int, wrong: int, uses_training: bool) -> str:
    """Says how the labels of people changed a model.

    Args:
        changed: Pairs that the closed form weighs as they were judged.
        wrong: Further wrong pairs, which only losses know.
        uses_training: Whether the trained part is used.
    """
    said = f"Of your labels {changed:,} changed the closed form"
    if not wrong:
        return f"{said}."
    if uses_training:
        return f"{said}, and {wrong:,} of wrong pairs the trained part."
    return f"{said}; {wrong:,} of wrong pairs did not change the model."
