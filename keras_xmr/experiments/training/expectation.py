"""An estimate of the duration of a training on stored features, before it begins."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

_FIRST_REPORT, _EPOCH = 100, 2
"""Duration of the closed form with its report, and of an epoch, in products of the features of the
training captions with themselves: measured with `csv_pretrained` on 700 photos."""

_ROWS = 1_000


@dataclass(frozen=True)
class Expected:
    """Features that an encoder has to compute.

    Attributes:
        items: Number of items, and their name: "700 photos".
        seconds: The duration, by the duration of a few.
    """

    items: str
    seconds: float


def expectation(features: Iterable[Expected], captions: int, width: int, epochs: int) -> str:
    """Says how long a training with a part in closed form takes, by trials on this machine.

    Args:
        features: The missing features.
        captions: Number of training captions.
        width: Length of the averaged features of a caption.
        epochs: Maximum number of epochs.
    """
    missing = [one for one in features if one.seconds]
    product = _product_seconds(captions, width)
    reading = sum(one.seconds for one in missing)
    said = f"{_minutes(reading + _FIRST_REPORT * product)} until the first report"
    if missing:
        items = " and ".join(one.items for one in missing)
        said += f", of which the features of {items} take {_minutes(reading)}"
    if not epochs:
        return said
    return f"{said}; then at most {_minutes(epochs * _EPOCH * product)} of training"


def _product_seconds(captions: int, width: int) -> float:
    """Returns the duration of a product of features (captions, width) with themselves."""
    rows = np.random.default_rng(0).normal(size=(min(captions, _ROWS), width))
    begin = time.perf_counter()
    rows.T @ rows
    return (time.perf_counter() - begin) * captions / len(rows)


def _minutes(seconds: float) -> str:
    """Returns a rough duration."""
    if seconds < 45:
        return "less than a minute"
    minutes = round(seconds / 60)
    return "about a minute" if minutes == 1 else f"about {minutes:,} minutes"
