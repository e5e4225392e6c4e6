"""What to say where a name is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, names: Iterable[str]) -> str:
    """The most similar of the names, as a question, and all of them."""
    names = list(names)
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"{hint} There are: {', '.join(names)}."
