"""Finds captions by id or text."""

from __future__ import annotations

from collections.abc import Container, Sequence


class CaptionNames:
    """Finds captions by their id, or by their text, which several may share.

    Args:
        captions: Ids and texts.
    """

    def __init__(self, captions: Sequence[tuple[str, str]]) -> None:
        self._by_id = {id_: number for number, (id_, _) in enumerate(captions)}
        self._by_text: dict[str, list[int]] = {}
        for number, (_, text) in enumerate(captions):
            self._by_text.setdefault(one_line(text), []).append(number)

    def numbers(self, name: str) -> list[int]:
        """The captions of a name; empty for an unknown one. Ids take precedence over texts."""
        id_ = known_name(name, self._by_id)
        if id_ in self._by_id:
            return [self._by_id[id_]]
        return self._by_text.get(one_line(name), [])

    def __contains__(self, name: str) -> bool:
        return bool(self.numbers(name))


def known_name(name: str, known: Container[str]) -> str:
    """A name as in the file if it is known, and otherwise without blanks around it."""
    return name if name in known else name.strip()


def one_line(text: str) -> str:
    """A text in one line, without invisible characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
