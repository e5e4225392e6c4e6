"""The kinds of meaning: descriptions of one or several things, counts, relations, negation."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from data_pipelines.scenes.language import (
    NUMBER_WORDS,
    RELATION_WORDS,
    Description,
    Meaning,
    Relation,
    is_related,
    plural,
    with_article,
)
from data_pipelines.scenes.world import (
    BACKGROUNDS,
    MOST_THINGS,
    VALUES,
    Attribute,
    Background,
    Scenes,
    pick,
)

Extent = Literal["some", "all", "none"]


@dataclass(frozen=True, slots=True)
class Together(Meaning):
    """Different things in the picture, one for each of one to four descriptions."""

    descriptions: tuple[Description, ...]

    def true_of(self, scenes: Scenes) -> np.ndarray:
        """Whether the descriptions can be matched to as many things of the scene: bool (N,)."""
        fits = [description.fits(scenes) for description in self.descriptions]
        matched = np.zeros(len(scenes), bool)
        for slots in itertools.permutations(range(MOST_THINGS), len(fits)):
            columns = [fit[:, slot] for fit, slot in zip(fits, slots, strict=True)]
            matched |= np.logical_and.reduce(columns)
        return matched

    def phrase(self, rng: np.random.Generator) -> str:
        """As in "a red circle and a blue square"."""
        if len(self.descriptions) > 1:
            return _list_of(self.descriptions, rng)
        phrase = self.descriptions[0].indefinite(rng)
        return pick(rng, (phrase, phrase, f"there is {phrase}"))


@dataclass(frozen=True, slots=True)
class Only(Meaning):
    """`Together`, and no other thing in the picture."""

    descriptions: tuple[Description, ...]

    def true_of(self, scenes: Scenes) -> np.ndarray:
        """Whether things and descriptions match one to one: bool (N,)."""
        alone = scenes.count == len(self.descriptions)
        return alone & Together(self.descriptions).true_of(scenes)

    def phrase(self, rng: np.random.Generator) -> str:
        """As in "just a red circle and a blue square"."""
        listed = _list_of(self.descriptions, rng)
        return f"{pick(rng, ('just', 'only', 'nothing but'))} {listed}"


@dataclass(frozen=True, slots=True)
class Count(Meaning):
    """Exactly this many things, from none to four, fit a description."""

    number: int
    description: Description

    def true_of(self, scenes: Scenes) -> np.ndarray:
        """Whether the number of things that fit is the number: bool (N,)."""
        return np.equal(self.description.fits(scenes).sum(axis=1), self.number)

    def phrase(self, rng: np.random.Generator) -> str:
        """As in "two red circles"."""
        if self.number == 1:
            return self.description.singular(rng, pick(rng, ("exactly one", "a single")))
        lead = pick(rng, ("", "", "exactly ", "there are "))
        return self.description.plural(rng, lead + NUMBER_WORDS[self.number])


@dataclass(frozen=True, slots=True)
class Related(Meaning):
    """Two different things, of which the first lies on the named side of the second."""

    first: Description
    relation: Relation
    second: Description

    def true_of(self, scenes: Scenes) -> np.ndarray:
        """Whether some two things stand in the relation, by a clear margin: bool (N,)."""
        # Axis 0 is the first thing, axis 1 the second; nothing is left of itself or of NaN.
        fit = self.first.fits(scenes).T[:, None] & self.second.fits(scenes).T[None]
        return np.any(fit & is_related(self.relation, *scenes.ways), axis=(0, 1))

    def phrase(self, rng: np.random.Generator) -> str:
        """As in "a red circle left of a blue square"."""
        relation = pick(rng, RELATION_WORDS[self.relation])
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
        """Whether not a single thing fits: bool (N,)."""
        return ~np.any(self.description.fits(scenes), axis=1)

    def phrase(self, rng: np.random.Generator) -> str:
        """As in "no circles" or "nothing red"."""
        phrases = (self.description.plural(rng, "no"), self.description.pronominal(rng, "nothing"))
        return pick(rng, [phrase for phrase in phrases if phrase])


@dataclass(frozen=True, slots=True)
class Every(Meaning):
    """All things in the picture, be it one or several, have this value of an attribute."""

    attribute: Attribute
    value: str

    def true_of(self, scenes: Scenes) -> np.ndarray:
        """Whether there is no thing without the value: bool (N,)."""
        others = scenes.present & ~scenes.having(self.attribute, self.value)
        return ~np.any(others, axis=1)

    def phrase(self, rng: np.random.Generator) -> str:
        """As in "everything is red"."""
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
        """Whether the things share values to this extent: bool (N,)."""
        having = [scenes.having(self.attribute, value) for value in VALUES[self.attribute]]
        sharers = np.stack(having).sum(axis=2).max(axis=0)
        several = scenes.count >= 2
        if self.extent == "some":
            return sharers >= 2
        return several & (sharers == (scenes.count if self.extent == "all" else 1))

    def phrase(self, rng: np.random.Generator) -> str:
        """As in "several objects, all of the same colour"."""
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
        """Whether the background, and the content on it, are as said: bool (N,)."""
        here = scenes.background == BACKGROUNDS.index(self.background)
        return here if self.content is None else here & self.content.true_of(scenes)

    def phrase(self, rng: np.random.Generator) -> str:
        """As in "a grey background" or "a red circle on a grey background"."""
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
        """Whether both parts hold: bool (N,)."""
        return self.content.true_of(scenes) & self.absent.true_of(scenes)

    def phrase(self, rng: np.random.Generator) -> str:
        """As in "a red circle but no squares"."""
        return f"{self.content.phrase(rng)} but {self.absent.phrase(rng)}"


def _list_of(descriptions: Sequence[Description], rng: np.random.Generator) -> str:
    """The descriptions as a list, in which "another" tells a repeated one from the first."""
    *most, last = (
        description.singular(rng, "another" if description in descriptions[:position] else None)
        for position, description in enumerate(descriptions)
    )
    return f"{', '.join(most)} and {last}" if most else last
