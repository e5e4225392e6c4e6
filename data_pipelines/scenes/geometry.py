"""Geometry of places and relations, shared by sampled captions and their truth."""

from __future__ import annotations

from typing import Any, Literal, get_args

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
