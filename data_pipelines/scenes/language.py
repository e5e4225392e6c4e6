"""Meaning of captions: one object gives both the text of a caption and its truth.

For instance, with one of the kinds of meaning that `meanings` defines::

    meaning = Together((Description(shape="circle", colour="red"),))
    statement = say(meaning, np.random.default_rng(0))
    statement.text             # "a red circle", or "there is a red circle"
    statement.true_of(scenes)  # bool (N,)

How the language is to be read, so that every text has exactly one meaning:

- "a red circle": at least one thing fits. "Something", "shape", "object" and "thing" fit all.
- "a red circle and a circle": two *different* things, of which one fits each description.
- "two red circles", "exactly two red circles": exactly two things fit, other things aside.
- "just a red circle": this, and no other thing in the picture.
- "a circle left of a star": the centre of some circle lies at least `RELATION_MARGIN` farther
  left than the centre of some *other* thing, a star.
- "on the left", "in the top left corner": where the centre lies (`PLACE_BOXES`) of the thing
  named last; in "a circle and a star on the left", of the star.
- "everything is red": of all things in the picture, of which there may be one.
- "at least two things of the same colour": some pair shares it. "Several things, all of the same
  colour" and "several things, all of different colours": of two or more things, every pair.
- "no circles", "nothing red": not a single thing fits.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import scipy.sparse

from data_pipelines.scenes.world import VALUES, Colour, Scenes, Shape, Size, pick

Place = Literal[
    "in the middle",
    "on the left",
    "on the right",
    "at the top",
    "at the bottom",
    "in the top left corner",
    "in the top right corner",
    "in the bottom left corner",
    "in the bottom right corner",
]
Relation = Literal["left of", "right of", "above", "below"]

PLACES: tuple[Place, ...] = get_args(Place)
"""All places. Those that say more come later: a thing in a corner is also at two sides."""
RELATIONS: tuple[Relation, ...] = get_args(Relation)

RELATION_MARGIN = 0.12
"""How far apart two centres are along the axis of a relation, as a fraction of the picture.

Small enough that any two things of a sampled scene, which do not touch, stand in some relation.
"""

_LOW, _HIGH = (0.0, 0.35), (0.65, 1.0)
_CENTRAL, _ALL = (0.35, 0.65), (0.0, 1.0)

PLACE_BOXES: dict[Place, tuple[tuple[float, float], tuple[float, float]]] = {
    "in the middle": (_CENTRAL, _CENTRAL),
    "on the left": (_LOW, _ALL),
    "on the right": (_HIGH, _ALL),
    "at the top": (_ALL, _LOW),
    "at the bottom": (_ALL, _HIGH),
    "in the top left corner": (_LOW, _LOW),
    "in the top right corner": (_HIGH, _LOW),
    "in the bottom left corner": (_LOW, _HIGH),
    "in the bottom right corner": (_HIGH, _HIGH),
}
"""The ranges of x and of y, both ends included, where the centre of a thing at a place lies."""

_DIRECTIONS: dict[Relation, tuple[int, int]] = {
    "left of": (1, 0),
    "right of": (-1, 0),
    "above": (0, 1),
    "below": (0, -1),
}
"""The way from the first thing to the second."""


def is_at(place: Place, x: Any, y: Any) -> Any:
    """Whether centres are at a place.

    Args:
        place: The place.
        x: Horizontal positions, a number or an array; NaN is nowhere.
        y: Vertical positions, of the same shape.

    Returns:
        A bool, or a bool array of the same shape.
    """
    (left, right), (top, bottom) = PLACE_BOXES[place]
    return (left <= x) & (x <= right) & (top <= y) & (y <= bottom)


def is_related(relation: Relation, dx: Any, dy: Any) -> Any:
    """Whether first things stand in a relation to second things, by `RELATION_MARGIN` at least.

    Args:
        relation: The relation of the first thing to the second.
        dx: How far the second lies to the right of the first, a number or an array.
        dy: How far the second lies below the first, of the same shape.

    Returns:
        A bool, or a bool array of the same shape.
    """
    right, down = _DIRECTIONS[relation]
    return right * dx + down * dy >= RELATION_MARGIN


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

NUMBER_WORDS = ("zero", "one", "two", "three", "four")
_PLURALS = {"cross": "crosses"}


def plural(noun: str) -> str:
    """The plural of a noun of the language."""
    return _PLURALS.get(noun, f"{noun}s")


def with_article(phrase: str) -> str:
    """The phrase after "a" or "an"."""
    return f"an {phrase}" if phrase[0] in "aeiou" else f"a {phrase}"


def generic_noun(rng: np.random.Generator) -> str:
    """A noun for a thing of any shape."""
    return pick(rng, GENERIC_NOUNS)


@dataclass(frozen=True, slots=True)
class Description:
    """Properties of one thing; None leaves a property open.

    Attributes:
        shape: Its shape.
        colour: Its colour.
        size: Its size.
        place: Where in the picture its centre lies.
    """

    shape: Shape | None = None
    colour: Colour | None = None
    size: Size | None = None
    place: Place | None = None

    def fits(self, scenes: Scenes) -> np.ndarray:
        """Which things fit the description: bool (N, 4)."""
        fits = scenes.present
        for attribute in VALUES:
            value = getattr(self, attribute)
            if value is not None:
                fits = fits & scenes.having(attribute, value)
        return fits if self.place is None else fits & is_at(self.place, scenes.x, scenes.y)

    def singular(self, rng: np.random.Generator, determiner: str | None = None) -> str:
        """The description as "a small red circle on the left", or after another determiner."""
        phrase = " ".join((*self._adjectives(rng), self.shape or generic_noun(rng)))
        return self._placed(rng, f"{determiner} {phrase}" if determiner else with_article(phrase))

    def plural(self, rng: np.random.Generator, determiner: str) -> str:
        """The description as "two small red circles on the left", after a determiner."""
        noun = plural(self.shape or generic_noun(rng))
        return self._placed(rng, " ".join((determiner, *self._adjectives(rng), noun)))

    def pronominal(self, rng: np.random.Generator, pronoun: str) -> str | None:
        """The description as "something red", or None where that would not be idiomatic."""
        if self.shape or (self.size and self.colour):
            return None
        return self._placed(rng, " ".join((pronoun, *self._adjectives(rng))))

    def indefinite(self, rng: np.random.Generator) -> str:
        """The description of some thing, with or without a noun."""
        phrases = (self.singular(rng), self.pronominal(rng, "something"))
        return pick(rng, [phrase for phrase in phrases if phrase])

    def _adjectives(self, rng: np.random.Generator) -> list[str]:
        size = pick(rng, SIZE_WORDS[self.size]) if self.size else None
        return [word for word in (size, self.colour) if word]

    def _placed(self, rng: np.random.Generator, phrase: str) -> str:
        return f"{phrase} {pick(rng, PLACE_WORDS[self.place])}" if self.place else phrase


class Meaning(abc.ABC):
    """A condition that every scene meets or not. Meanings are values: equal if they say the same.

    Subclasses are frozen dataclasses, and therefore values.
    """

    __slots__ = ()

    @abc.abstractmethod
    def true_of(self, scenes: Scenes) -> np.ndarray:
        """Which of the scenes meet the condition: bool (N,)."""

    @abc.abstractmethod
    def phrase(self, rng: np.random.Generator) -> str:
        """One of the texts that say this, in lower case without a full stop."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A caption: a text and its meaning."""

    text: str
    meaning: Meaning

    def true_of(self, scenes: Scenes) -> np.ndarray:
        """Which of the scenes the caption is true of: bool (N,)."""
        return self.meaning.true_of(scenes)


def say(meaning: Meaning, rng: np.random.Generator) -> Statement:
    """Puts a meaning into words, choosing among its paraphrases."""
    return Statement(meaning.phrase(rng), meaning)


def truth_table(statements: Sequence[Statement], scenes: Scenes) -> scipy.sparse.csr_array:
    """Which scenes each statement is true of.

    Args:
        statements: M statements; a meaning of several is evaluated once.
        scenes: N scenes.

    Returns:
        A boolean matrix (N, M).
    """
    rows: dict[Meaning, np.ndarray] = {}
    for statement in statements:
        if statement.meaning not in rows:
            rows[statement.meaning] = np.flatnonzero(statement.true_of(scenes)).astype(np.int32)
    columns = [rows[statement.meaning] for statement in statements]
    indices = np.concatenate([np.empty(0, np.int32), *columns])
    starts = np.cumsum([0, *map(len, columns)])
    if starts[-1] <= np.iinfo(np.int32).max:
        starts = starts.astype(np.int32)  # Else SciPy would make the indices int64, too.
    table = scipy.sparse.csc_array(
        (np.ones(len(indices), bool), indices, starts), shape=(len(scenes), len(statements))
    )
    return table.tocsr()
