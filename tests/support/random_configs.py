"""Configs of parts that were drawn at random, as far as the checks of configs let them pass."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import models

from keras_xmr.config.loader import ConfigError
from keras_xmr.config.registry import Component, components
from keras_xmr.config.schema import Config

NUMBERS = {"integer": (1, 2, 4, 8), "number": (0.1, 0.5, 1.0, 2.0)}


def random_configs(folder: Path, seed: int) -> Iterator[Config]:
    """Yields configs of random parts without end; those that are refused are left out.

    Args:
        folder: As `models.tiny_config` takes it.
        seed: Of the random numbers.
    """
    chance = random.Random(seed)
    while True:
        try:
            yield models.tiny_config(folder, *_overrides(chance))
        except ConfigError:
            continue


def _overrides(chance: random.Random) -> list[str]:
    matcher = _any("matcher", chance)
    kinds = chance.choice(matcher.constants["ACCEPTS"])
    losses = [_drawn(_any("loss", chance), chance) for _ in range(chance.choice((1, 1, 2)))]
    values: dict[str, Any] = {
        "model.dimension": chance.choice((4, 8, 12)),
        "model.matcher": _drawn(matcher, chance),
        "objective": losses,
        "evaluation.matchers": [],
        "train.optimizer": _any("optimizer", chance).name,
        "data.text.drop_words": chance.choice((0, 0.2)),
    }
    for side, kind in zip(("image", "text"), kinds, strict=True):
        heads = [h for h in components("head").values() if h.constants["KIND"] == kind]
        head = chance.choice(heads)
        pools = head.constants["POOLS"]
        values[f"model.{side}.head"] = _drawn(head, chance)
        values[f"model.{side}.pooling"] = _drawn(_any("pooling", chance), chance) if pools else None
    return [f"{key}={json.dumps(value)}" for key, value in values.items()]


def _any(family: str, chance: random.Random) -> Component:
    return chance.choice(list(components(family).values()))


def _drawn(part: Component, chance: random.Random) -> dict[str, Any]:
    """A section that chooses a part, with some of its options drawn at random."""
    options = part.options.model_json_schema()["properties"]
    drawn = {name: _value(told, chance) for name, told in options.items() if chance.random() < 0.15}
    return {n: v for n, v in drawn.items() if v is not None and n != "weight"} | {"name": part.name}


def _value(told: Mapping[str, Any], chance: random.Random) -> Any:
    """A value of an option, by its JSON schema; None for one that is left as it is."""
    told = chance.choice(told["anyOf"]) if "anyOf" in told else told
    if "enum" in told:
        return chance.choice(told["enum"])
    if told.get("type") == "boolean":
        return chance.random() < 0.5
    return chance.choice(NUMBERS[told["type"]]) if told.get("type") in NUMBERS else None
