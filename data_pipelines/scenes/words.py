"""Surface text: the words for values, places, relations and numbers, and how they combine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from data_pipelines.scenes.geometry import Place, Relation
from data_pipelines.scenes.world import Size, pick

GENERIC_NOUNS = ("shape", "object", "thing")
SIZE_WORDS: dict[Size, tuple[str, ...]] = {"small": ("small", "little"), "big": ("big", "large")}
RELATION_WORDS: dict[Relation, tuple[str, ...]] = {
    "left of": ("left of", "to the left of"),
    "right of": ("right of", "to the right of"),
    "above": ("above", "higher than"),
    "below": ("below", "lower than"),
}
PLACE_WORDS: dict[Place, tuple[str, ...]] = {
    "in the middle": ("in the middle", "in the centre"),
    "on the left": ("on the left", "on the left side"),
    "on the right": ("on the right", "on the right side"),
    "at the top": ("at the top", "near the top"),
    "at the bottom": ("at the bottom", "near the bottom"),
    "in the top left corner": ("in the top left corner", "in the top left"),
    "in the top right corner": ("in the top right corner", "in the top right"),
    "in the bottom left corner": ("in the bottom left corner", "in the bottom left"),
    "in the bottom right corner": ("in the bottom right corner", "in the bottom right"),
}

_NUMBERS = ("zero", "one", "two", "three", "four")
_PLURALS = {"cross": "crosses"}


def number_word(number: int) -> str:
    """The word for a number from 0 to 4."""
    return _NUMBERS[number]


def plural(noun: str) -> str:
    """The plural of a noun of the language."""
    return _PLURALS.get(noun, f"{noun}s")


def with_article(phrase: str) -> str:
    """The phrase after "a" or "an"."""
    return f"an {phrase}" if phrase[0] in "aeiou" else f"a {phrase}"


def enumeration(phrases: Sequence[str]) -> str:
    """The phrases as a list: "this", "this and that", "this, that and those"."""
    *most, last = phrases
    return f"{', '.join(most)} and {last}" if most else last


def generic_noun(rng: np.random.Generator) -> str:
    """A noun for a thing of any shape."""
    return pick(rng, GENERIC_NOUNS)
