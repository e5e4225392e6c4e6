"""Scenes: one to four things on a plain background, and how they are sampled.

Coordinates are fractions of the picture: x grows to the right from 0 to 1, y grows downwards.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeVar, get_args

import numpy as np

Shape = Literal["circle", "square", "triangle", "star", "cross", "diamond", "ring"]
Colour = Literal["red", "orange", "yellow", "green", "cyan", "blue", "purple"]
Size = Literal["small", "big"]
Background = Literal["white", "grey", "black"]
Attribute = Literal["shape", "colour", "size"]

SHAPES: tuple[Shape, ...] = get_args(Shape)
COLOURS: tuple[Colour, ...] = get_args(Colour)
SIZES: tuple[Size, ...] = get_args(Size)
BACKGROUNDS: tuple[Background, ...] = get_args(Background)
VALUES: dict[Attribute, tuple[str, ...]] = {"shape": SHAPES, "colour": COLOURS, "size": SIZES}

MOST_THINGS = 4
REACH: dict[Size, float] = {"small": 0.09, "big": 0.17}
"""Radius of the circle that a thing fits in, as a fraction of the picture."""
GAP = 0.03
"""Least distance between the circles of two things, and between a circle and the edge."""

_COUNT_ODDS = (0.2, 0.3, 0.3, 0.2)
_SHARED_ODDS = 0.25
_PLACEMENT_TRIES = 30

T = TypeVar("T")


def pick(rng: np.random.Generator, options: Sequence[T]) -> T:
    """One of the options, each as likely as the others."""
    return options[int(rng.integers(len(options)))]


@dataclass(frozen=True, slots=True)
class Thing:
    """One object of a scene; `x` and `y` are its centre, as fractions of the picture."""

    shape: Shape
    colour: Colour
    size: Size
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Scene:
    """A plain background and one to four things that do not touch."""

    background: Background
    things: tuple[Thing, ...]


@dataclass(frozen=True, eq=False)
class Scenes:
    """N scenes as arrays, each padded to four things.

    Attributes:
        background: Index into `BACKGROUNDS`, int (N,).
        shape: Index into `SHAPES`, int (N, 4), -1 for absent things.
        colour: Index into `COLOURS`, int (N, 4), -1 for absent things.
        size: Index into `SIZES`, int (N, 4), -1 for absent things.
        x: Centres, float (N, 4), NaN for absent things.
        y: Centres, float (N, 4), NaN for absent things.
    """

    background: np.ndarray
    shape: np.ndarray
    colour: np.ndarray
    size: np.ndarray
    x: np.ndarray
    y: np.ndarray

    @classmethod
    def from_scenes(cls, scenes: Sequence[Scene]) -> Scenes:
        """Packs scenes into arrays, in order."""
        codes = {name: np.full((len(scenes), MOST_THINGS), -1, np.int8) for name in VALUES}
        x, y = np.full((2, len(scenes), MOST_THINGS), np.nan)
        for row, scene in enumerate(scenes):
            for column, thing in enumerate(scene.things):
                for name, values in VALUES.items():
                    codes[name][row, column] = values.index(getattr(thing, name))
                x[row, column], y[row, column] = thing.x, thing.y
        background = [BACKGROUNDS.index(scene.background) for scene in scenes]
        return cls(np.array(background, np.int8), **codes, x=x, y=y)

    def __len__(self) -> int:
        """How many scenes these are."""
        return len(self.background)

    @property
    def present(self) -> np.ndarray:
        """Where there is a thing: bool (N, 4)."""
        return self.shape >= 0

    @property
    def count(self) -> np.ndarray:
        """How many things each scene holds: int (N,)."""
        return self.present.sum(axis=1)

    @cached_property
    def ways(self) -> tuple[np.ndarray, np.ndarray]:
        """How far each thing lies to the right of, and below, each other: two of (4, 4, N).

        Axis 0 is where the way begins. Scenes are last: they are many, and things are few.
        """
        right, down = (at.T[None] - at.T[:, None] for at in (self.x, self.y))
        return right, down

    def having(self, attribute: Attribute, value: str) -> np.ndarray:
        """Which things have this value of an attribute: bool (N, 4).

        Raises:
            ValueError: If the attribute has no such value.
        """
        return getattr(self, attribute) == VALUES[attribute].index(value)


def sample_scene(rng: np.random.Generator) -> Scene:
    """Draws a scene. In some, all things share a shape or a colour, so that sharing is common."""
    count = 1 + int(rng.choice(MOST_THINGS, p=_COUNT_ODDS))
    shapes = _draw(rng, SHAPES, count, _SHARED_ODDS)
    colours = _draw(rng, COLOURS, count, _SHARED_ODDS)
    sizes = _draw(rng, SIZES, count, 0.0)
    centres = _place(rng, [REACH[size] for size in sizes])
    things = tuple(
        Thing(shape, colour, size, x, y)
        for shape, colour, size, (x, y) in zip(shapes, colours, sizes, centres, strict=True)
    )
    return Scene(pick(rng, BACKGROUNDS), things)


def _draw(
    rng: np.random.Generator, options: Sequence[T], count: int, shared_odds: float
) -> list[T]:
    if rng.random() < shared_odds:
        return [pick(rng, options)] * count
    return [options[index] for index in rng.integers(len(options), size=count)]


def _place(rng: np.random.Generator, reaches: Sequence[float]) -> list[tuple[float, float]]:
    """Centres at which circles of these radii neither touch each other nor the edge."""
    while True:
        centres: list[tuple[float, float]] = []
        for reach in reaches:
            centre = _free_centre(rng, reach, list(zip(centres, reaches, strict=False)))
            if centre is None:
                break
            centres.append(centre)
        else:
            return centres


def _free_centre(
    rng: np.random.Generator, reach: float, taken: Sequence[tuple[tuple[float, float], float]]
) -> tuple[float, float] | None:
    """A centre clear of the taken circles, or None if several tries failed."""
    border = reach + GAP
    for x, y in rng.uniform(border, 1 - border, size=(_PLACEMENT_TRIES, 2)).tolist():
        if all(math.dist((x, y), centre) >= border + other for centre, other in taken):
            return x, y
    return None
