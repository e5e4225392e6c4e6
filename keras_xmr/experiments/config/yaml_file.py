"""YAML files and overrides as plain data with the place of each key.

Reads words, numbers, truth values and null, and no other type. What comes later wins: the files
that a file includes, its keys, its keys with dots, and overrides. How deep and how much a file, or
all of them, can grow is bounded.

A file may also be a grid: under the name of each config, in the same folder or the one above,
rows that change few keys of it, each with a `title`. `grid.yaml#row` is a config that includes it.
"""

from __future__ import annotations

import copy
import functools
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from keras_xmr.utils.errors import ConfigError
from keras_xmr.utils.messages import cut, nearest

Key = tuple[str | int, ...]

# Far above the needs of a config; larger files are mistakes, or grow by anchors.
_BYTES = 200_000
_DEPTH = 32
_VALUES = 10_000
_FILES = 50

_TAG = "tag:yaml.org,2002:"
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
_SCALARS = {_TAG + name for name in ("str", "int", "float", "bool", "null")}


@dataclass
class Draft:
    """Plain data of a config, and the place of each key.

    Attributes:
        data: The mapping that the YAML files and the overrides make together.
        places: For each key, as a tuple of its parts, `file:line` or the override.
        files: The file, and those that it includes.
    """

    data: dict[str, Any] = field(default_factory=dict)
    places: dict[Key, str] = field(default_factory=dict)
    files: list[Path] = field(default_factory=list)

    @property
    def names(self) -> tuple[str, ...]:
        """The name of the config, and the names of its files."""
        name = self.data.get("name")
        named = [name] if isinstance(name, str) else []
        return *named, *(path.stem for path in self.files)

    def place(self, key: Key) -> str:
        """Returns the place of `key`, or of the nearest section around it."""
        while key and key not in self.places:
            key = key[:-1]
        return self.places.get(key, "config")

    def forget(self, key: Key) -> None:
        """Removes the places of `key` and of everything below it."""
        for known in [place for place in self.places if place[: len(key)] == key]:
            del self.places[known]


# The parser in C is several times as fast; PyYAML is also built without it.
class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """A loader with bounded nesting. Dates are strings, as no key of a config holds dates."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - so PyYAML declares it
        first: [(tag, pattern) for tag, pattern in resolvers if tag in _SCALARS]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    _depth = 0

    def descend_resolver(self, parent: yaml.Node | None, index: Any) -> None:
        """Counts how deep a node lies; both parsers call it before they compose one."""
        self._depth += 1
        if parent is not None and self._depth > _DEPTH + 1:
            mark = parent.start_mark
            raise yaml.MarkedYAMLError(problem=f"nested more than {_DEPTH} deep", problem_mark=mark)

    def ascend_resolver(self) -> None:
        self._depth -= 1


_CONSTRUCTOR = _Loader("")
"""Makes the values of scalars; it keeps nothing of them."""


def read_yaml(path: Path) -> Draft:
    """Reads a YAML file and the files that it includes.

    Args:
        path: The file, or `grid.yaml#row`. Its key `include` names files in the same folder, and
            its other keys change changes: mappings are merged, everything else is replaced. After
            that, keys with dots change single keys, as overrides do (`train.phases.0.learning_rate:
            2.0e-3`).

    Raises:
        ConfigError: If a file cannot be read, is not YAML, has a key twice, or includes itself.
    """
    files: list[Path] = []
    draft = _read(path, (), files)
    draft.files = files
    return draft


def _read(path: Path, including: tuple[Path, ...], seen: list[Path], by: str = "") -> Draft:
    """Reads a file that is included by others, `by` the last of them, after those in `seen`."""
    path, row = split_row(path)
    text = _text(path, by)
    if path.resolve() in including:
        raise ConfigError(f"{by}{path}: includes itself")
    seen.append(path)
    if len(seen) > _FILES:
        raise ConfigError(f"{by}{path}: more than {_FILES} files are included")

    def where(node: yaml.Node) -> str:
        return f"{path}:{node.start_mark.line + 1}"

    node = _compose(text, str(path))
    base = None
    if row:
        base, node = _row(node, row, path)
    if not isinstance(node, yaml.MappingNode):
        raise ConfigError(f"{path}: a config is a mapping of keys to values")
    file = Draft()
    file.data = _construct(node, where, (), file.places)
    if base is not None:
        file.data.pop("title", None)
        file.data |= {"name": row, "include": base}
    draft, by = Draft(), f"{file.place(('include',))}: include: "
    for name in _included(file, by):
        _merge(draft, _read(path.parent / name, (*including, path.resolve()), seen, by))
    with_dots = {name: file.data.pop(name) for name in list(file.data) if "." in name}
    _merge(draft, file)
    for name, value in with_dots.items():
        _assign_dotted(draft, file, name, value)
    return draft


def split_row(path: Path) -> tuple[Path, str]:
    """Returns the file of a path, and the row of a grid that it names after a `#`; empty for
    none.
    """
    name, _, row = path.name.partition("#")
    return (path.with_name(name), row) if row and not os.path.isfile(path) else (path, "")


def grid_rows(path: Path) -> list[str]:
    """Returns the names of the rows of a grid."""
    return [row for _, row, _ in _rows(_compose(_text(path), str(path)))]


def row_title(path: Path, row: str) -> str:
    """Returns the title of a row of a grid; empty for none.

    Raises:
        ConfigError: If the grid cannot be read, or has no such row.
    """
    _, changes = _row(_compose(_text(path), str(path)), row, path)
    keys = changes.value if isinstance(changes, yaml.MappingNode) else []
    return next((str(value.value) for key, value in keys if key.value == "title"), "")


def _rows(node: yaml.Node | None) -> Iterator[tuple[str, str, yaml.Node]]:
    """Yields the rows of a grid: the config that each changes, its name, and its keys."""
    for config, group in node.value if isinstance(node, yaml.MappingNode) else []:
        for row, changes in group.value if isinstance(group, yaml.MappingNode) else []:
            yield str(config.value), str(row.value), changes


def _row(node: yaml.Node | None, row: str, path: Path) -> tuple[str, yaml.Node]:
    """Returns the config that a row of a grid changes, as `include` names it, and the row."""
    names = []
    for config, name, changes in _rows(node):
        if name == row:
            is_beside = (path.parent / f"{config}.yaml").is_file()
            is_above = (path.parent / ".." / f"{config}.yaml").is_file()
            folder = ".." if is_above and not is_beside else "."
            return f"{folder}/{config}.yaml", changes
        names.append(name)
    raise ConfigError(f"{path}: unknown row {cut(repr(row))}.{nearest(row, names)}")


def _text(path: Path, by: str = "") -> str:
    """Returns the text of a config file."""
    if os.path.isdir(path):
        raise ConfigError(f"{by}{path} is a folder, not a YAML file")
    if not os.path.isfile(path):
        raise ConfigError(f"{by}{cut(str(path))}: no such file")
    try:
        content = path.read_bytes()
        if len(content) > _BYTES:
            raise ConfigError(
                f"{path}: has {len(content):,} bytes; a config has {_BYTES:,} at most"
            )
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from None
    except OSError as error:
        raise ConfigError(f"{by}{path}: {error.strerror}") from None


def _included(file: Draft, by: str) -> list[str]:
    """Takes the names of the included files out of a file."""
    names = file.data.pop("include", [])
    names = names if isinstance(names, list) else [names]
    for name in names:
        if not isinstance(name, str) or not name:
            raise ConfigError(f"{by}got {cut(repr(name))}; write the name of a file, or several")
    return names


# Many configs include the same files, and a grid is read for each of its rows.
@functools.lru_cache(maxsize=64)
def _compose(text: str, place: str) -> yaml.Node | None:
    """Returns the YAML nodes of a text, only to be read; `place` is where it is from."""
    try:
        return yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        problem = ", ".join(filter(None, (error.context, error.problem)))
        raise ConfigError(f"{place}{line}: not valid YAML: {cut(problem)}") from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise ConfigError(f"{place}: not valid YAML: {cut(str(error))}") from None


def _construct(
    node: yaml.Node, where: Callable[[yaml.Node], str], key: Key, places: dict[Key, str]
) -> Any:
    """Returns the plain value of a YAML node, noting the place of every key."""
    places[key] = where(node)
    # Anchors can repeat themselves without end.
    if len(key) > _DEPTH or len(places) > _VALUES:
        raise ConfigError(
            f"{where(node)}: {dotted(key[:3])}: nested more than {_DEPTH} deep, or more than "
            f"{_VALUES:,} values with those that anchors repeat"
        )
    if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            name = _name(key_node, where)
            inner = (*key, name)
            if name in result:
                raise ConfigError(f"{where(key_node)}: {dotted(inner)}: duplicate key")
            result[name] = _construct(value_node, where, inner, places)
            places[inner] = where(key_node)
        return result
    if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
        return [_construct(n, where, (*key, i), places) for i, n in enumerate(node.value)]
    return _scalar(node, f"{where(node)}: {dotted(key)}")


def _name(node: yaml.Node, where: Callable[[yaml.Node], str]) -> str:
    """Returns the name of a key."""
    name = _scalar(node, f"{where(node)}: a key")
    if not isinstance(name, str):
        raise ConfigError(f"{where(node)}: keys are words; got {cut(repr(name))}")
    if name == "<<":
        raise ConfigError(
            f"{where(node)}: YAML merge keys (`<<`) are not supported; write the keys, or "
            "include a file"
        )
    return name


def _scalar(node: yaml.Node, about: str) -> Any:
    """Returns a word, a number, a truth value or null; unlike YAML 1.1, `1e-5` is a number.

    Raises:
        ConfigError: If it is not one of them; the message begins with `about`.
    """
    tag = node.tag.removeprefix(_TAG)
    if not isinstance(node, yaml.ScalarNode) or node.tag not in _SCALARS:
        raise ConfigError(f"{about}: values of the type {cut(repr(tag))} are not supported")
    try:
        value: Any = _Loader.yaml_constructors[node.tag](_CONSTRUCTOR, node)
    except (ValueError, LookupError):
        raise ConfigError(f"{about}: {cut(repr(node.value))} is not a valid {tag}") from None
    if isinstance(value, str):
        if _NO_TEXT.search(value):
            shown = cut(repr(value))
            raise ConfigError(f"{about}: got {shown}, which has control or surrogate characters")
        if not node.style and "e" in value.lower():
            with suppress(ValueError):
                return float(value)
    return value


def _merge(base: Draft, other: Draft) -> None:
    """Changes a draft by another: sections are merged, everything else is replaced."""

    def merge(into: dict[str, Any], changes: Mapping[str, Any], key: Key) -> None:
        for name, value in changes.items():
            here = (*key, name)
            old: Any = into.get(name)
            are_sections = isinstance(old, dict) and isinstance(value, dict)
            # A section that chooses another component drops the options of the old one.
            if are_sections and old.get("name") == value.get("name", old.get("name")):
                merge(old, value, here)
            else:
                base.forget(here)
                into[name] = copy.deepcopy(value)

    merge(base.data, other.data, ())
    base.places.update(other.places)


def _assign_dotted(draft: Draft, file: Draft, name: str, value: Any) -> None:
    """Changes the key that a dotted key of a file names."""
    place, path = file.places[(name,)], key_parts(name)
    if path in file.places:
        raise ConfigError(f"{place}: {name}: duplicate key")
    _assign(draft, path, value, place)
    inner = {key[1:]: where for key, where in file.places.items() if key[0:1] == (name,)}
    draft.places |= {(*path, *rest): where for rest, where in inner.items()}


def apply_override(draft: Draft, override: str) -> None:
    """Changes one key.

    Args:
        draft: The draft to change.
        override: `key=value`, where key is dotted and value is YAML.

    Raises:
        ConfigError: If it is malformed, or the key cannot exist.
    """
    name, equals, text = override.partition("=")
    place = f"--set {cut(override)}"
    if not equals or not name:
        raise ConfigError(f"{place}: write --set key=value, for instance train.batch_size=64")
    assign_yaml(draft, key_parts(name), text, place)


def assign_yaml(draft: Draft, key: Key, text: str, place: str) -> None:
    """Sets a key to the value of a YAML text, of which `place` says where the user wrote it.

    Raises:
        ConfigError: If the text is not YAML, or the key cannot exist.
    """
    node = _compose(text, place)
    value = None if node is None else _construct(node, lambda _: place, key, {})
    _assign(draft, key, value, place)


def key_parts(name: str) -> Key:
    """Returns the parts of a dotted key; digits count the items of a list."""
    words = name.split(".")
    return tuple(int(p) if p.isascii() and p.isdigit() and len(p) < 10 else p for p in words)


def _assign(draft: Draft, key: Key, value: Any, place: str) -> None:
    """Sets the key of these parts, opening the sections on the way to it."""
    if len(key) > _DEPTH:
        raise ConfigError(f"{place}: keys may be nested at most {_DEPTH} levels deep")
    section: Any = draft.data
    for depth, step in enumerate(key[:-1], 1):
        section = _open(section, step)
        if section is None:
            raise ConfigError(f"{place}: {dotted(key[:depth])} does not exist")
        draft.places.setdefault(key[:depth], place)
    last = key[-1]
    if isinstance(section, list):
        if not isinstance(last, int) or last > len(section):
            raise ConfigError(f"{place}: {dotted(key[:-1])} has {len(section)} items")
        section[last : last + 1] = [value]
    else:
        section[str(last)] = value
    draft.forget(key)
    draft.places[key] = place


def _open(section: Any, step: Any) -> Any:
    """Returns the section at a part of a key, created if missing; None if it cannot exist.

    A component that is written as its name alone becomes a section.
    """
    fits = step in range(len(section)) if isinstance(section, list) else isinstance(step, str)
    if not fits:
        return None
    old = section[step] if isinstance(section, list) else section.get(step)
    if not isinstance(old, dict | list):
        section[step] = {"name": old} if isinstance(old, str) else {}
    return section[step]


def dotted(key: Key) -> str:
    """Returns a key as it is written: `train.phases.0`."""
    return ".".join(cut(str(step)) for step in key)
