"""The two directions of retrieval, by the names that all of the code has for them."""

from __future__ import annotations

DIRECTIONS = ("image_to_text", "text_to_image")
"""Images as queries, and captions."""

SHORT = dict(zip(DIRECTIONS, ("i2t", "t2i"), strict=True))
"""How names of metrics, columns of tables and names of files begin: `i2t_recall_1`."""

_LONG = {short: direction for direction, short in SHORT.items()}


def full_name(direction: str, metric: str) -> str:
    """Returns the name of a metric with its direction, such as `i2t_recall_1`.

    Args:
        direction: `image_to_text` or `text_to_image`; empty for a metric of both.
        metric: The metric.
    """
    return f"{SHORT[direction]}_{metric}" if direction else metric


def split_name(name: str) -> tuple[str, str]:
    """Returns direction and metric of a name such as `i2t_recall_1`; `rsum` has no direction."""
    short, _, metric = name.partition("_")
    return (_LONG[short], metric) if short in _LONG else ("", name)
