"""What to say where a name is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_LONGEST = 100


def cut(text: str) -> str:
    """A text that a message shows, without its end where it is long."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def nearest(word: str, names: Iterable[str]) -> str:
    """The most similar of the names, as a question, and all of them."""
    names = list(names)
    near = difflib.get_close_matches(cut(word), names, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"{hint} There are: {', '.join(names)}."
