"""Whether a run trains a method as its paper does, for titles and reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from keras_xmr.experiments.config.differences import differences
from keras_xmr.experiments.config.loader import load_config
from keras_xmr.experiments.config.packaged_configs import (
    find_config,
    packaged_ablations,
    packaged_configs,
)
from keras_xmr.experiments.config.schema import Config
from keras_xmr.utils.messages import first_of

_COMPARED = ("model", "objective", "train", "relevance")
# Where a step is computed, and what is written meanwhile, changes no result but for rounding.
_FREE = (
    *("train.operation_threads", "train.devices", "train.jit_compile", "train.gradient_caching"),
    *("train.precompute_features", "train.precompute_captions", "train.checkpoint_steps"),
    *("train.log_steps", "train.watchdog", "model.text.encoder.vectors"),
)
_MOST = 8


class Fidelity(NamedTuple):
    """Whether a run follows a paper.

    Attributes:
        label: `as published`, `adapted`, `changed` (from what is published) or `no paper`.
        sentence: The changes.
    """

    label: str
    sentence: str


def fidelity_text(fidelity: str | Mapping[str, str | None]) -> str:
    """Returns the key `fidelity` of a config as one line: `adapted: ` and what is adapted."""
    if isinstance(fidelity, str):
        return fidelity
    changes = [change for change in fidelity.values() if change]
    return f"adapted: {'; '.join(changes)}" if changes else "as published"


def fidelity_of(config: Config) -> Fidelity | None:
    """Returns the `fidelity` of a config, and the keys that differ from the packaged config.

    Args:
        config: The config of a run.

    Returns:
        None if the config says nothing about a paper, or if no deviation is known and there is no
        packaged config of its name with which to compare it.
    """
    if config.fidelity is None:
        return None
    text = fidelity_text(config.fidelity)
    label = text.partition(":")[0]
    source = f" to {config.paper.source}" if config.paper else ""
    sentence = f"Fidelity{source}: {text}."
    # As `compare` names the runs of a config.
    name = config.name.removesuffix(f"-seed{config.seed}")
    if name not in packaged_configs() and name not in packaged_ablations():
        if label == "as published":
            return None
        return Fidelity(label, f"{sentence} No packaged config is called {config.name}.")
    packaged = load_config(find_config(name))
    changed = differences(_compared(packaged), _compared(config), _FREE)
    if not (changes := [f"{key} {ours} (packaged: {theirs})" for key, theirs, ours in changed]):
        return Fidelity(label, sentence)
    listed = "; ".join(first_of(changes, _MOST))
    sentence += f" Changed from the packaged config: {listed}."
    return Fidelity("changed" if label == "as published" else label, sentence)


def _compared(config: Config) -> dict[str, Any]:
    """Returns the sections that decide what is trained."""
    content = config.model_dump(mode="json")
    data = {key: content["data"][key] for key in ("text", "image")}
    return {key: content[key] for key in _COMPARED} | {"data": data}
