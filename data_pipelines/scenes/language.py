"""Meaning of captions: one object gives both the text of a caption and its truth.

For instance::

    meaning = Together((Description(shape="circle", colour="red"),))
    statement = say(meaning, np.random.default_rng(0))
    statement.text           # "a red circle", or "there is a red circle"
    meaning.true_of(scenes)  # bool (N,)

How the language is to be read, so that every text has exactly one meaning:

- "a red circle": at least one thing fits. "Something", "shape", "object" and "thing" fit all.
- "a red circle and a circle": two *different* things, of which one fits each description.
- "two red circles", "exactly two red circles": exactly two things fit, other things aside.
- "just a red circle": this, and no other thing in the picture.
- "a circle left of a star": the centre of some circle lies at least `RELATION_MARGIN` farther
  left than the centre of some *other* thing, a star.
- "on the left", "in the top left corner": where the centre lies (`PLACES`) of the thing
  named last; in "a circle and a star on the left", of the star.
- "everything is red": of all things in the picture, of which there may be one.
- "at least two things of the same colour": some pair shares it. "Several things, all of the same
  colour" and "several things, all of different colours": of two or more things, every pair.
- "no circles", "nothing red": not a single thing fits.
"""

from __future__ import annotations

import abc
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.sparse

from data_pipelines.scenes.world import (
    BACKGROUNDS,
    MOST_THINGS,
    VALUES,
    Attribute,
    Background,
    Colour,
    Scenes,
    Shape,
    Size,
    pick,
)

Extent = Literal["some", "all", "none"]

_LOW, _CENTRAL, _HIGH, _ALL = (0.0, 0.35), (0.35, 0.65), (0.65, 1.0), (0.0, 1.0)

PLACES = {
    "in the middle": (_CENTRAL, _CENTRAL, "in the centre"),
    "on the left": (_LOW, _ALL, "on the left side"),
    "on the right": (_HIGH, _ALL, "on the right side"),
    "at the top": (_ALL, _LOW, "near the top"),
    "at the bottom": (_ALL, _HIGH, "near the bottom"),
    "in the top left corner": (_LOW, _LOW, "in the top left"),
    "in the top right corner": (_HIGH, _LOW, "in the top right"),
    "in the bottom left corner": (_LOW, _HIGH, "in the bottom left"),
    "in the bottom right corner": (_HIGH, _HIGH, "in the bottom right"),
}
"""The ranges of x and of y, both ends included, where the centre of a thing at a place lies, and
other words for the place. Those that say more come later: a thing in a corner is also at two
sides."""

RELATIONS = {
    "left of": (1, 0, "to the left of"),
    "right of": (-1, 0, "to the right of"),
    "above": (0, 1, "higher than"),
    "below": (0, -1, "lower than"),
}
"""The way from the first thing to the second, to the right and down, and other words for the
relation."""

RELATION_MARGIN = 0.12
"""How far apart two centres are along the axis of a relation, as a fraction of the picture.

Small enough that any two things of a sampled scene, which do not touch, have some relation.
"""


def is_at(place: str, x: Any, y: Any) -> Any:
    """Returns whether centres are at a place.

    Args:
        place: One of `PLACES`.
        x: Horizontal positions, a number or an array; NaN is nowhere.
        y: Vertical positions, of the same shape.

    Returns:
        A bool, or a bool array of the same shape.
    """
    (left, right), (top, bottom), _ = PLACES[place]
    return (left <= x) & (x <= right) & (top <= y) & (y <= bottom)


def is_related(relation: str, dx: Any, dy: Any) -> Any:
    """Returns whether first things have a relation to second things, by `RELATION_MARGIN` at least.

    Args:
        relation: One of `RELATIONS`, of the first thing to the second.
        dx: How far the second lies to the right of the first, a number or an array.
        dy: How far the second lies below the first, of the same shape.

    Returns:
        A bool, or a bool array of the same shape.
    """
    right, down, _ = RELATIONS[relation]
    return right * dx + down * dy >= RELATION_MARGIN


GENERIC_NOUNS = ("shape", "object", "thing")
"""Nouns for a thing of any shape."""
SIZE_WORDS: dict[Size, tuple[str, ...]] = {"small": ("small", "little"), "big": ("big", "large")}
NUMBER_WORDS = ("zero", "one", "two", "three", "four")
_PLURALS = {"cross": "crosses"}


def plural(noun: str) -> str:
    """Returns the plural of a noun of the language."""
    return _PLURALS.get(noun, f"{noun}s")


def with_article(phrase: str) -> str:
    """Returns the phrase after "a" or "an"."""
    return f"an {phrase}" if phrase[0] in "aeiou" else f"a {phrase}"


@dataclass(frozen=True, slots=True)
class Description:
    """Properties of one thing; None leaves a property open.

    Attributes:
        shape: The shape.
        colour: The colour.
        size: The size.
        place: Where in the picture its centre lies.
    """

    shape: Shape | None = None
    colour: Colour | None = None
    size: Size | None = None
    place: str | None = None

    def fits(self, scenes: Scenes) -> np.ndarray:
        """Returns which things fit the description: bool (N, 4)."""
        fits = scenes.present
        for attribute in VALUES:
            value = getattr(self, attribute)
            if value is not None:
                fits = fits & scenes.having(attribute, value)
        return fits if self.place is None else fits & is_at(self.place, scenes.x, scenes.y)

    def singular(self, rng: np.random.Generator, determiner: str | None = None) -> str:
        """Returns the description as "a small red circle on the left", or after another
        determiner.
        """
        phrase = " ".join((*self._adjectives(rng), self.shape or pick(rng, GENERIC_NOUNS)))
        return self._placed(rng, f"{determiner} {phrase}" if determiner else with_article(phrase))

    def plural(self, rng: np.random.Generator, determiner: str) -> str:
        """Returns the description as "two small red circles on the left", after a determiner."""
        noun = plural(self.shape or pick(rng, GENERIC_NOUNS))
        return self._placed(rng, " ".join((determiner, *self._adjectives(rng), noun)))

    def pronominal(self, rng: np.random.Generator, pronoun: str) -> str | None:
        """Returns the description as "something red", or None where that would not be idiomatic."""
        if self.shape or (self.size and self.colour):
            return None
        return self._placed(rng, " ".join((pronoun, *self._adjectives(rng))))

    def indefinite(self, rng: np.random.Generator) -> str:
        """Returns the description of some thing, with or without a noun."""
        phrases = (self.singular(rng), self.pronominal(rng, "something"))
        return pick(rng, [phrase for phrase in phrases if phrase])

    def _adjectives(self, rng: np.random.Generator) -> list[str]:
        size = pick(rng, SIZE_WORDS[self.size]) if self.size else None
        return [word for word in (size, self.colour) if word]

    def _placed(self, rng: np.random.Generator, phrase: str) -> str:
        if self.place is None:
            return phrase
        return f"{phrase} {pick(rng, (self.place, PLACES[self.place][2]))}"


class Meaning(abc.ABC):
    """A condition that every scene meets or not. Meanings are values: equal if they say the same.

    Subclasses are frozen dataclasses, and therefore values.
    """

    __slots__ = ()

    @abc.abstractmethod
    def true_of(self, scenes: Scenes) -> np.ndarray:
        """Returns which of the scenes meet the condition: bool (N,)."""

    @abc.abstractmethod
    def phrase(self, rng: np.random.Generator) -> str:
        """Returns one of the texts that say this, in lower case without a full stop."""


@dataclass(frozen=True, slots=True)
class Together(Meaning):
    """Different things in the picture, one for each of one to four descriptions."""

    descriptions: tuple[Description, ...]

    def true_of(self, scenes: Scenes) -> np.ndarray:
        """Returns whether the descriptions can be matched to as many things of the scene:
        bool (N,).
        """
        fits = [description.fits(scenes) for description in self.descriptions]
        matched = np.zeros(len(scenes), bool)
        for slots in itertools.permutations(range(MOST_THINGS), len(fits)):
            columns = [fit[:, slot] for fit, slot in zip(fits, slots, strict=True)]
            matched |= np.logical_and.reduce(columns)
        return matched

    def phrase(self, rng: np.random.Generator) -> str:
        """Returns a phrase such as "a red circle and a blue square"."""
        if len(self.descriptions) > 1:
            return _list_of(self.descriptions, rng)
        phrase = self.descriptions[0].indefinite(rng)
        return pick(rng, (phrase, phrase, f"there is {phrase}"))


@dataclass(frozen=True, slots=True)
class Only(Meaning):
    """`Together`, and no other thing in the picture."""

    descriptions: tuple[Description, ...]

    def true_of(self, scenes: Scenes) -> np.ndarray:
        """Returns whether things and descriptions match one to one: bool (N,)."""
        alone = scenes.count == len(self.descriptions)
        return alone & Together(self.descriptions).true_of(scenes)

    def phrase(self, rng: np.random.Generator) -> str:
        """Returns a phrase such as "just a red circle and a blue square"."""
        listed = _list_of(self.descriptions, rng)
        return f"{pick(rng, ('just', 'only', 'nothing but'))} {listed}"


@dataclass(frozen=True, slots=True)
class Count(Meaning):
    """Exactly this many things, from none to four, fit a description."""

    number: int
    description: Description

    def true_of(self, scenes: Scenes) -> np.ndarray:
        """Returns whether the number of things that fit is the number: bool (N,)."""
        return np.equal(self.description.fits(scenes).sum(axis=1), self.number)

    def phrase(self, rng: np.random.Generator) -> str:
        """Returns a phrase such as "two red circles"."""
        if self.number == 1:
            return self.description.singular(rng, pick(rng, ("exactly one", "a single")))
        lead = pick(rng, ("", "", "exactly ", "there are "))
        return self.description.plural(rng, lead + NUMBER_WORDS[self.number])


@dataclass(frozen=True, slots=True)
class Related(Meaning):
    """Two different things, of which the first lies on the named side of the second."""

    first: Description
    relation: str
    second: Description

    def true_of(self, scenes: Scenes) -> np.ndarray:
        """Returns whether some two things have the relation, by a clear margin: bool (N,)."""
        # Axis 0 is the first thing, axis 1 the second; nothing is left of itself or of NaN.
        fit = self.first.fits(scenes).T[:, None] & self.second.fits(scenes).T[None]
        return np.any(fit & is_related(self.relation, *scenes.ways), axis=(0, 1))

    def phrase(self, rng: np.random.Generator) -> str:
        """Returns a phrase such as "a red circle left of a blue square"."""
        relation = pick(rng, (self.relation, RELATIONS[self.relation][2]))
        if self.first == self.second:
            second = self.second.singular(rng, "another")
        else:
            second = self.second.indefinite(rng)
        return f"{self.first.indefinite(rng)} {relation} {second}"


@dataclass(frozen=True, slots=True)
class Absent(Meaning):
    """Nothing in the picture fits a description."""

    description: Description

    def true_of(self, scenes: Scenes) -> np.ndarray:
        """Returns whether not a single thing fits: bool (N,)."""
        return ~np.any(self.description.fits(scenes), axis=1)

    def phrase(self, rng: np.random.Generator) -> str:
        """Returns a phrase such as "no circles" or "nothing red"."""
        phrases = (self.description.plural(rng, "no"), self.description.pronominal(rng, "nothing"))
        return pick(rng, [phrase for phrase in phrases if phrase])


@dataclass(frozen=True, slots=True)
class Every(Meaning):
    """All things in the picture, be it one or several, have this value of an attribute."""

    attribute: Attribute
    value: str

    def true_of(self, scenes: Scenes) -> np.ndarray:
        """Returns whether all things have the value: bool (N,)."""
        others = scenes.present & ~scenes.having(self.attribute, self.value)
        return ~np.any(others, axis=1)

    def phrase(self, rng: np.random.Generator) -> str:
        """Returns a phrase such as "everything is red"."""
        subject = pick(rng, ("everything", "every shape", "every object"))
        predicate = with_article(self.value) if self.attribute == "shape" else self.value
        return f"{subject} is {predicate}"


@dataclass(frozen=True, slots=True)
class Alike(Meaning):
    """How far the things of a picture share the values of an attribute.

    Attributes:
        attribute: The attribute to compare.
        extent: "some" if at least two things have the same value; "all" if there are at least
            two things and all have the same value; "none" if there are at least two things and
            no two have the same value.
    """

    attribute: Attribute
    extent: Extent

    def true_of(self, scenes: Scenes) -> np.ndarray:
        """Returns whether the things share values to this extent: bool (N,)."""
        having = [scenes.having(self.attribute, value) for value in VALUES[self.attribute]]
        sharers = np.stack(having).sum(axis=2).max(axis=0)
        several = scenes.count >= 2
        if self.extent == "some":
            return sharers >= 2
        return several & (sharers == (scenes.count if self.extent == "all" else 1))

    def phrase(self, rng: np.random.Generator) -> str:
        """Returns a phrase such as "several objects, all of the same colour"."""
        nouns = pick(rng, ("objects", "things"))
        if self.extent == "some":
            having = pick(rng, ("of", "with"))
            return f"at least two {nouns} {having} the same {self.attribute}"
        several = pick(rng, ("several", "two or more"))
        if self.extent == "all":
            return f"{several} {nouns}, all of the same {self.attribute}"
        return f"{several} {nouns}, all of different {plural(self.attribute)}"


Content = Together | Only | Count | Related
"""Content that can be followed by a background or an exception without ambiguity.

After a negation, for instance, a background could belong to the negated content.
"""


@dataclass(frozen=True, slots=True)
class OnBackground(Meaning):
    """The picture has a background of this colour and, if anything is said of it, that too."""

    background: Background
    content: Content | None = None

    def true_of(self, scenes: Scenes) -> np.ndarray:
        """Returns whether the background, and the content on it, are as said: bool (N,)."""
        here = scenes.background == BACKGROUNDS.index(self.background)
        return here if self.content is None else here & self.content.true_of(scenes)

    def phrase(self, rng: np.random.Generator) -> str:
        """Returns a phrase such as "a grey background" or "a red circle on a grey background"."""
        if self.content is None:
            ways = ("a {} background", "the background is {}", "a picture with a {} background")
            return pick(rng, ways).format(self.background)
        preposition = pick(rng, ("on", "against"))
        return f"{self.content.phrase(rng)} {preposition} a {self.background} background"


@dataclass(frozen=True, slots=True)
class Without(Meaning):
    """Some content, and nothing that fits a description."""

    content: Content
    absent: Absent

    def true_of(self, scenes: Scenes) -> np.ndarray:
        """Returns whether both parts hold: bool (N,)."""
        return self.content.true_of(scenes) & self.absent.true_of(scenes)

    def phrase(self, rng: np.random.Generator) -> str:
        """Returns a phrase such as "a red circle but no squares"."""
        return f"{self.content.phrase(rng)} but {self.absent.phrase(rng)}"


def _list_of(descriptions: Sequence[Description], rng: np.random.Generator) -> str:
    """Returns the descriptions as a list, in which "another" tells a repeated one from the
    first.
    """
    *most, last = (
        description.singular(rng, "another" if description in descriptions[:position] else None)
        for position, description in enumerate(descriptions)
    )
    return f"{', '.join(most)} and {last}" if most else last


@dataclass(frozen=True, slots=True)
class Statement:
    """A caption: a text and its meaning."""

    text: str
    meaning: Meaning


def say(meaning: Meaning, rng: np.random.Generator) -> Statement:
    """Puts a meaning into words, choosing among its paraphrases."""
    return Statement(meaning.phrase(rng), meaning)


def truth_table(statements: Sequence[Statement], scenes: Scenes) -> scipy.sparse.csr_array:
    """Returns which scenes each statement is true of.

    Args:
        statements: M statements; a meaning of several is evaluated once.
        scenes: N scenes.

    Returns:
        A boolean matrix (N, M).
    """
    meanings = [statement.meaning for statement in statements]
    rows = {m: np.flatnonzero(m.true_of(scenes)).astype(np.int32) for m in dict.fromkeys(meanings)}
    columns = [rows[meaning] for meaning in meanings]
    indices = np.concatenate([np.empty(0, np.int32), *columns])
    starts = np.cumsum([0, *map(len, columns)])
    if starts[-1] <= np.iinfo(np.int32).max:
        starts = starts.astype(np.int32)  # Else SciPy would make the indices int64, too.
    table = scipy.sparse.csc_array(
        (np.ones(len(indices), bool), indices, starts), shape=(len(scenes), len(statements))
    )
    return table.tocsr()
