"""The keys in which two configs differ."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from keras_xmr.utils.messages import cut


class Difference(NamedTuple):
    """A key with two values.

    Attributes:
        key: The dotted key.
        old: The value in the first config, as a text.
        new: The value in the second.
    """

    key: str
    old: str
    new: str


def differences(
    old: Any, new: Any, free: Collection[str] = (), key: str = ""
) -> Iterator[Difference]:
    """Yields each `Difference` of two configs, or of two values of a key.

    Where they choose different parts, only the names of the parts count: options are of one alone.

    Args:
        old: The first config, as plain data.
        new: The second.
        free: Keys that may differ.
        key: The key of both; empty for whole configs.
    """
    if old == new or key in free:
        return
    if isinstance(old, list) and isinstance(new, list):
        old, new = dict(enumerate(old)), dict(enumerate(new))
    if not isinstance(old, dict) or not isinstance(new, dict):
        yield Difference(key, _shown(old), _shown(new))
        return
    chosen = [value.get("name", _MISSING) for value in (old, new)]
    names = ["name"] if key and chosen[0] != chosen[1] else list({**old, **new})
    for name in names:
        inner = f"{key}.{name}".lstrip(".")
        yield from differences(old.get(name, _MISSING), new.get(name, _MISSING), free, inner)


_MISSING = object()


def _shown(value: Any) -> str:
    if value is _MISSING:
        return "missing"
    if isinstance(value, dict) and "name" in value:
        return str(value["name"])
    return "null" if value is None else cut(str(value))
