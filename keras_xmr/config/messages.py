"""What to say where a name is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_LONGEST = 100


def cut(text: str) -> str:
    """A text that a message shows, without its end where it is long."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def nearest(word: str, names: Iterable[str], least: float = 0.5) -> str:
    """The most similar of the names, as a question, and all of them.

    Args:
        word: The name that is not known.
        names: Those that are.
        least: How similar one must be, from 0 to 1, to be asked about.
    """
    names = list(names)
    if not names:
        return " There are none."
    near = difflib.get_close_matches(cut(word), names, n=1, cutoff=least)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"{hint} There are: {', '.join(names)}."
