"""Scenes as pixels."""

from __future__ import annotations

import math

from PIL import Image, ImageDraw

from data_pipelines.pixels import encode
from data_pipelines.scenes.world import REACH, Background, Colour, Scene, Shape, Thing

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
    """The picture of a scene as a JPEG file; the same scene always gives the same bytes."""
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
