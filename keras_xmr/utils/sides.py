"""The two sides of a pair, by the names that all of the code has for them."""

from __future__ import annotations

from typing import Literal

from keras_xmr.utils.errors import ArgumentError

Side = Literal["image", "text"]

SIDES: tuple[Side, ...] = ("image", "text")

ITEMS: dict[str, str] = {"image": "image", "text": "caption"}
"""The name of an item of each side, in messages and as an input of a model."""


def check_side(side: object, name: str) -> None:
    """Checks that an argument is the name of a side.

    Raises:
        ArgumentError: If it is not.
    """
    if side not in SIDES:
        raise ArgumentError(f'{name} is "image" or "text", not {side!r}')
