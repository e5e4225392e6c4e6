"""The table of all items of the papers, `docs/tables/fidelity.csv`, and what configs change."""

from __future__ import annotations

import csv
import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

VERDICTS = ("exact", "option", "deviates", "left out", "not applicable", "no paper")

_DEFAULT = "default"
_SECTIONS = ("model", "objective")
"""Sections whose parts have no values where they are not chosen."""

_KEY = re.compile(r"\{([\w.]+)\}")


@dataclass(frozen=True)
class Row:
    """An item of a paper.

    Attributes:
        paper: The paper.
        item: Section, formula, table or figure.
        config: Patterns of names of configs; a pattern after `!` excludes. A config has its own
            name and of all files that it includes. Empty for what no config chooses.
        when: Conditions on keys of a config, all of which must hold: `key=value|value`,
            `key!=value`, `key` (the section is there) or `!key`. The value `default` is the value
            of a missing key. Parts of a list, such as losses, are named in keys.
        code: Names of classes and functions.
        verdict: One of `VERDICTS`; `option` is an option of a config.
        words: What deviates, or why; `{key}` stands for the value of a key.
    """

    paper: str
    item: str
    config: tuple[str, ...]
    when: tuple[str, ...]
    code: tuple[str, ...]
    verdict: str
    words: str

    def names(self, names: Sequence[str]) -> bool:
        """Returns whether the row is about a config with these names."""
        excluded = [pattern[1:] for pattern in self.config if pattern.startswith("!")]
        wanted = [pattern for pattern in self.config if not pattern.startswith("!")]
        return _any(names, wanted) and not _any(names, excluded)

    def holds(self, data: Mapping[str, Any]) -> bool:
        """Returns whether all its conditions hold for the content of a config."""
        return all(_holds(condition, data) for condition in self.when)

    def text(self, data: Mapping[str, Any]) -> str:
        """Returns the words for a config."""
        return _KEY.sub(lambda match: str(_at(data, match[1])), self.words)


@functools.cache
def rows() -> tuple[Row, ...]:
    """Reads the table."""
    with _path().open(encoding="utf-8", newline="") as file:
        return tuple(
            Row(
                paper=line["paper"],
                item=line["item"],
                config=tuple(line["config"].split()),
                when=tuple(line["when"].split()),
                code=tuple(line["code"].split()),
                verdict=line["verdict"],
                words=line["words"],
            )
            for line in csv.DictReader(file)
        )


def fidelity(names: Sequence[str], data: Mapping[str, Any]) -> str | dict[str, str] | None:
    """Describes what a config changes of its papers, as the key `fidelity` has it.

    Args:
        names: Name of the config, and names of the files that it includes.
        data: The content, as YAML.

    Returns:
        `as published`; the changes by the items of the papers; `no paper: ` and a description; or
        None for a config that the table does not know.
    """
    about = [row for row in rows() if row.names(names)]
    changes: dict[str, str] = {}
    for row in about:
        if row.verdict in ("deviates", "no paper") and row.holds(data):
            if row.verdict == "no paper":
                return f"no paper: {row.text(data)}"
            text = row.text(data)
            if text not in changes.values():
                changes[_free(row.item, changes)] = text
    if changes:
        return changes
    return "as published" if about else None


def _free(item: str, taken: Mapping[str, str]) -> str:
    """Returns a key for an item that no other change has."""
    numbered = (f"{item} ({number})" for number in range(2, len(taken) + 3))
    return item if item not in taken else next(key for key in numbered if key not in taken)


def _path() -> Path:
    package = Path(__file__).parents[2]
    docs = package / "docs"
    return (docs if docs.is_dir() else package.parent / "docs") / "tables" / "fidelity.csv"


def _any(names: Sequence[str], patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


def _holds(condition: str, data: Mapping[str, Any]) -> bool:
    if condition.startswith("!"):
        return _at(data, condition[1:]) is None
    if "=" not in condition:
        return _at(data, condition) is not None
    key, _, value = condition.partition("=")
    wanted, key = not key.endswith("!"), key.rstrip("!")
    section, _, last = key.rpartition(".")
    holder = _at(data, section) if section else data
    if holder is None and section.partition(".")[0] not in _SECTIONS:
        holder = {}
    if not isinstance(holder, Mapping):
        return False
    found = holder.get(last, _DEFAULT)
    if isinstance(found, Mapping):
        found = found.get("name", found)
    is_one = any(found == yaml.safe_load(text) for text in value.split("|"))
    return is_one is wanted


def _at(data: Any, key: str) -> Any:
    """Returns the value of a dotted key; None if there is none. A part that is only named is a
    section.
    """
    for word in key.split("."):
        if isinstance(data, list):
            sections = [{"name": one} if isinstance(one, str) else one for one in data]
            named = (
                one for one in sections if isinstance(one, Mapping) and one.get("name") == word
            )
            data = next(named, None)
        elif isinstance(data, Mapping):
            data = data.get(word)
        else:
            return None
    return data
