"""Parts of messages: long texts and lists cut short, and suggestions for unknown names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

_LONGEST = 100


def cut(text: str) -> str:
    """Shortens a long text for a message."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def first_of(items: Sequence[str], most: int) -> list[str]:
    """Returns the first items of a long list, and how many more there are."""
    more = [f"and {len(items) - most:,} more"] if len(items) > most else []
    return [*items[:most], *more]


def nearest(word: str, names: Iterable[str], least: float = 0.5) -> str:
    """Suggests the most similar of the names, and lists all of them.

    Args:
        word: The unknown name.
        names: The known names.
        least: Minimum similarity of a suggestion, from 0 to 1.
    """
    names = list(names)
    if not names:
        return " None is known."
    return f"{most_similar(word, names, least)} There are: {', '.join(names)}."


def most_similar(word: str, names: Iterable[str], least: float = 0.6) -> str:
    """Asks whether the most similar of the names was meant; empty if none is similar."""
    known = {name.lower(): name for name in names}
    near = difflib.get_close_matches(cut(word).lower(), known, n=1, cutoff=least)
    return f" Did you mean {known[near[0]]!r}?" if near else ""


def no_attribute(module: str, name: str, names: Iterable[str]) -> AttributeError:
    """Makes the error of a name that a module lacks: with the most similar name, or with all."""
    names = list(names)
    help_ = most_similar(name, names) or f" There are: {', '.join(names)}."
    return AttributeError(f"module {module!r} has no attribute {name!r}.{help_}")
