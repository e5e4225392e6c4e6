"""Scenes: one to four things on a plain background, and how they are sampled and drawn.

Coordinates are fractions of the picture: x grows to the right from 0 to 1, y grows downwards.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeVar, get_args

import numpy as np
from PIL import Image, ImageDraw

from data_pipelines.pixels import encode

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
    """Returns one of the options, each as likely as the others."""
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
        """Returns how many scenes these are."""
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
        """Returns which things have this value of an attribute: bool (N, 4).

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
    """Returns a centre clear of the taken circles, or None if several tries failed."""
    border = reach + GAP
    for x, y in rng.uniform(border, 1 - border, size=(_PLACEMENT_TRIES, 2)).tolist():
        if all(math.dist((x, y), centre) >= border + other for centre, other in taken):
            return x, y
    return None


RGB: dict[Colour | Background, tuple[int, int, int]] = {
    "red": (214, 30, 36),
    "orange": (255, 140, 0),
    "yellow": (255, 226, 40),
    "green": (22, 140, 50),
    "cyan": (50, 214, 224),
    "blue": (36, 66, 220),
    "purple": (146, 40, 176),
    "white": (250, 250, 250),
    "grey": (128, 128, 128),
    "black": (10, 10, 10),
}

_OVERSAMPLING = 4
_JPEG_QUALITY = 92

Point = tuple[float, float]


def _regular(corners: int, radius: float, turn: float) -> list[Point]:
    """Corners of a regular polygon around the origin; `turn` is the angle of the first."""
    angles = [turn + 2 * math.pi * corner / corners for corner in range(corners)]
    return [(radius * math.cos(angle), radius * math.sin(angle)) for angle in angles]


def _star() -> list[Point]:
    tips = _regular(5, 1.0, -math.pi / 2)
    notches = _regular(5, 0.42, -math.pi / 2 + math.pi / 5)
    return [point for pair in zip(tips, notches, strict=True) for point in pair]


def _cross() -> list[Point]:
    # Long and short side of an arm; the outer corners lie at a distance of about 1.
    far, near = 0.94, 0.3
    quarter = [(near, -far), (near, -near), (far, -near)]
    turns = [(1, 0), (0, 1), (-1, 0), (0, -1)]
    return [(x * c - y * s, x * s + y * c) for c, s in turns for x, y in quarter]


_OUTLINES: dict[Shape, list[Point]] = {
    "square": _regular(4, 1.0, math.pi / 4),
    "triangle": _regular(3, 1.0, -math.pi / 2),
    "star": _star(),
    "cross": _cross(),
    "diamond": [(0.0, -1.0), (0.66, 0.0), (0.0, 1.0), (-0.66, 0.0)],
}
"""Corners in units of the thing's reach, none farther than 1 from its centre."""

_ROUND = 0.88
"""Radius of circles and rings in units of their reach, which evens out areas of the shapes."""
_RING_HOLE = 0.48
"""Radius of the hole of a ring, in units of its reach."""


def draw(scene: Scene, image_size: int) -> Image.Image:
    """Draws a scene as an RGB picture of `image_size` pixels a side, with smooth edges."""
    canvas_size = image_size * _OVERSAMPLING
    canvas = Image.new("RGB", (canvas_size, canvas_size), RGB[scene.background])
    pen = ImageDraw.Draw(canvas)
    for thing in scene.things:
        _draw_thing(pen, thing, canvas_size, RGB[scene.background])
    return canvas.reduce(_OVERSAMPLING)


def jpeg(scene: Scene, image_size: int) -> bytes:
    """Returns the picture of a scene as a JPEG file; the same scene always gives the same bytes."""
    # Full chroma resolution: the usual halving smears the colours of things ten pixels wide.
    return encode(draw(scene, image_size), quality=_JPEG_QUALITY, subsampling=0)


def _draw_thing(
    pen: ImageDraw.ImageDraw, thing: Thing, canvas_size: int, behind: tuple[int, int, int]
) -> None:
    x, y, reach = (canvas_size * value for value in (thing.x, thing.y, REACH[thing.size]))
    if thing.shape in _OUTLINES:
        corners = [(x + reach * dx, y + reach * dy) for dx, dy in _OUTLINES[thing.shape]]
        pen.polygon(corners, fill=RGB[thing.colour])
        return
    _draw_disc(pen, x, y, _ROUND * reach, RGB[thing.colour])
    if thing.shape == "ring":
        _draw_disc(pen, x, y, _RING_HOLE * reach, behind)


def _draw_disc(
    pen: ImageDraw.ImageDraw, x: float, y: float, radius: float, fill: tuple[int, int, int]
) -> None:
    pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=fill)
