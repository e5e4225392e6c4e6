"""From YAML files and overrides to a `Config`, with errors that say where and what instead.

Reads with `yaml.SafeLoader`. A file may `include` others, which it then changes.
"""

from __future__ import annotations

import copy
import difflib
import fnmatch
import glob
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from data_pipelines.errors import UserError
from keras_xmr.checks import check
from keras_xmr.config import Config, OneOf
from keras_xmr.names import nearest

Key = tuple[str | int, ...]

_MISSING = object()


class ConfigError(UserError):
    """A config cannot be used; the message names each key, its value, and what to write."""


@dataclass
class Draft:
    """Plain data of a config, and where each key of it was written.

    Attributes:
        data: The mapping that the YAML files and the overrides make together.
        places: For each key, as a tuple of its parts, `file:line` or the override.
    """

    data: dict[str, Any] = field(default_factory=dict)
    places: dict[Key, str] = field(default_factory=dict)

    def place(self, key: Key) -> str:
        """Where `key`, or the nearest section around it, was written."""
        while key and key not in self.places:
            key = key[:-1]
        return self.places.get(key, "config")

    def forget(self, key: Key) -> None:
        """Forgets where `key`, and everything below it, was written."""
        for known in [place for place in self.places if place[: len(key)] == key]:
            del self.places[known]


def find_config(name: str) -> Path:
    """The file of a config that is given as a path, or as the name of one that comes along.

    Raises:
        ConfigError: If there is neither such a file nor such a config.
    """
    path = Path(name)
    if path.is_file():
        return path
    known = packaged_configs()
    if path.stem in known and path.parent.name in ("", "configs"):
        return known[path.stem]
    if path.is_dir():
        raise ConfigError(f"--config: {path} is a folder, not a YAML file")
    near = difflib.get_close_matches(path.stem, known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ConfigError(
        f"--config: there is no file {path}, nor a config of that name.{hint} "
        "--list prints those that come along"
    )


def find_configs(pattern: str) -> list[Path]:
    """The files of configs that a pattern such as `scenes_*` or `mine/*.yaml` names, in order.

    Raises:
        ConfigError: If there is none.
    """
    if not set("*?[") & set(pattern):
        return [find_config(pattern)]
    known = packaged_configs()
    found = [known[name] for name in fnmatch.filter(known, pattern)]
    found = found or [Path(name) for name in sorted(glob.glob(pattern))]
    if not found:
        raise ConfigError(
            f"there is no config that {pattern!r} names; --list prints those that come along"
        )
    return found


def packaged_configs() -> dict[str, Path]:
    """The configs that come with the project, by name."""
    here = Path(__file__).parent
    folder = here / "configs" if (here / "configs").is_dir() else here.parent / "configs"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def load_config(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Reads a config.

    Args:
        path: The YAML file.
        overrides: Texts `key=value`, where key is dotted (`train.batch_size`,
            `objective.0.weight`) and value is YAML.

    Raises:
        ConfigError: If anything is wrong with it. All mistakes are told at once.
    """
    draft = read_yaml(path)
    for override in overrides:
        _apply_override(draft, override)
    try:
        config = Config.model_validate(draft.data)
    except ValidationError as error:
        messages = [_explain(draft, item) for item in error.errors(include_url=False)]
        raise ConfigError("\n".join(messages)) from None
    mistakes = [f"{draft.place(key)}: {_dotted(key)}: {text}" for key, text in check(config)]
    if mistakes:
        raise ConfigError("\n".join(mistakes))
    return config


def dump_config(config: Config) -> str:
    """The config as YAML, with every default written out."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def read_yaml(path: Path, including: tuple[Path, ...] = ()) -> Draft:
    """Reads a YAML file and the files that it includes.

    Args:
        path: The file. Its key `include` names files beside it, whose keys it changes: mappings
            are merged, everything else is replaced.
        including: The files that include this one.

    Raises:
        ConfigError: If a file is missing, is not YAML, has a key twice, or includes itself.
    """
    if path.resolve() in including:
        raise ConfigError(f"{path}: includes itself")
    try:
        text = path.read_text("utf-8")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file") from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from None
    if not isinstance(node, yaml.MappingNode):
        raise ConfigError(f"{path}: a config is a mapping of keys to values")
    own = Draft()
    own.data = _construct(node, path, (), own.places)
    includes = own.data.pop("include", [])
    if isinstance(includes, str):
        includes = [includes]
    draft = Draft()
    for name in includes:
        _merge(draft, read_yaml(path.parent / str(name), (*including, path.resolve())))
    _merge(draft, own)
    return draft


def _construct(node: yaml.Node, path: Path, key: Key, places: dict[Key, str]) -> Any:
    """The plain value of a YAML node, noting the line of every key."""
    places[key] = f"{path}:{node.start_mark.line + 1}"
    if isinstance(node, yaml.MappingNode):
        result: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            name = yaml.SafeLoader("").construct_object(key_node, deep=True)
            where = f"{path}:{key_node.start_mark.line + 1}"
            if not isinstance(name, str):
                raise ConfigError(f"{where}: keys are words; got {name!r}")
            if name in result:
                raise ConfigError(f"{where}: {_dotted((*key, name))}: the key stands here twice")
            result[name] = _construct(value_node, path, (*key, name), places)
            places[(*key, name)] = where
        return result
    if isinstance(node, yaml.SequenceNode):
        return [_construct(n, path, (*key, i), places) for i, n in enumerate(node.value)]
    try:
        return _scalar(node)
    except yaml.YAMLError as error:
        raise ConfigError(f"{places[key]}: {error}") from None


def _scalar(node: yaml.Node) -> Any:
    """A scalar; unlike YAML 1.1, `1e-5` is a number."""
    value = yaml.SafeLoader("").construct_object(node, deep=True)
    plain = isinstance(node, yaml.ScalarNode) and node.style is None
    if plain and isinstance(value, str) and "e" in value.lower():
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _merge(base: Draft, other: Draft) -> None:
    def merge(mine: dict[str, Any], theirs: Mapping[str, Any], key: Key) -> None:
        for name, value in theirs.items():
            here = (*key, name)
            old = mine.get(name)
            # A section that chooses another component takes none of the old one's options.
            same = not (
                isinstance(old, dict)
                and isinstance(value, dict)
                and "name" in value
                and old.get("name") != value["name"]
            )
            if isinstance(old, dict) and isinstance(value, dict) and same:
                merge(old, value, here)
            else:
                base.forget(here)
                mine[name] = copy.deepcopy(value)

    merge(base.data, other.data, ())
    base.places.update(other.places)


def _apply_override(draft: Draft, override: str) -> None:
    name, equals, text = override.partition("=")
    place = f"--set {override}"
    if not equals or not name:
        raise ConfigError(f"{place}: write --set key=value, for instance train.batch_size=64")
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        value = None if node is None else _construct(node, Path("--set"), (), {})
    except yaml.YAMLError as error:
        raise ConfigError(f"{place}: the value is not valid YAML: {error}") from None
    parts: Key = tuple(int(part) if part.isdigit() else part for part in name.split("."))
    section: Any = draft.data
    for depth, part in enumerate(parts[:-1]):
        if isinstance(section, list) and isinstance(part, int) and part < len(section):
            section = section[part]
        elif isinstance(section, dict) and isinstance(part, str):
            if not isinstance(section.get(part), dict | list):
                old = section.get(part)
                section[part] = {"name": old} if isinstance(old, str) else {}
            section = section[part]
        else:
            raise ConfigError(f"{place}: there is no {_dotted(parts[: depth + 1])}")
    last = parts[-1]
    if isinstance(section, list):
        if not isinstance(last, int) or last > len(section):
            raise ConfigError(f"{place}: {_dotted(parts[:-1])} has {len(section)} items")
        section[last : last + 1] = [value]
    else:
        section[str(last)] = value
    draft.forget(parts)
    draft.places[parts] = place


def _explain(draft: Draft, error: Mapping[str, Any]) -> str:
    """One mistake that pydantic found, as a line for the user."""
    key, value = _key_of(draft.data, error["loc"])
    kind, context = error["type"], error.get("ctx", {})
    if kind == "extra_forbidden":
        names = _known_keys(error["loc"][:-1])
        text = f"unknown key.{nearest(str(key[-1]), names)}"
    elif kind == "missing":
        text = "this key is needed"
    elif kind == "union_tag_invalid":
        names = [n.strip(" '") for n in context["expected_tags"].split(",")]
        key, value = (*key, "name"), context["tag"]
        text = f"got {value!r}, which is not known.{nearest(str(value), names)}"
    elif kind == "union_tag_not_found":
        text = "this section needs a `name` that says what it is"
    elif kind == "literal_error":
        names = [n.strip(" '") for n in context["expected"].replace(" or ", ", ").split(",")]
        text = f"got {value!r}.{nearest(str(value), names)}"
    elif kind == "value_error":
        text = str(context["error"])
    else:
        shown = "" if value is _MISSING else f"got {value!r}: "
        text = shown + error["msg"][0].lower() + error["msg"][1:]
    return f"{draft.place(key)}: {_dotted(key)}: {text}"


def _key_of(data: Any, loc: Sequence[str | int]) -> tuple[Key, Any]:
    """The key that a pydantic location means: without the tags of unions; and its value."""
    key: list[str | int] = []
    for number, part in enumerate(loc):
        last = number == len(loc) - 1
        if isinstance(data, dict) and part in data:
            data = data[part]
        elif isinstance(data, dict) and data.get("name") == part and not last:
            continue
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
        elif isinstance(data, str) and data == part and not last:
            continue
        else:
            data = _MISSING
        key.append(part)
    return tuple(key), data


def _known_keys(loc: Sequence[str | int]) -> list[str]:
    """The keys of the section at a pydantic location."""
    sections: list[Any] = [Config]
    for part in loc:
        if isinstance(part, int):
            continue
        found: list[Any] = []
        for section in sections:
            for model in sections_of(section):
                if part in model.model_fields:
                    found.append(model.model_fields[str(part)])
                elif _tag(model) == part:
                    found.append(model)
        sections = found
    return sorted({name for s in sections for m in sections_of(s) for name in m.model_fields})


def sections_of(part: Any) -> list[type[BaseModel]]:
    """All config sections that a field, or a type, can hold."""
    if isinstance(part, type) and issubclass(part, BaseModel):
        return [part]
    if (metadata := getattr(part, "metadata", None)) is not None and hasattr(part, "annotation"):
        for mark in metadata:
            if isinstance(mark, OneOf):
                return list(mark.choices().values())
        return sections_of(part.annotation)
    if typing.get_origin(part) is typing.Annotated:
        inner, *marks = typing.get_args(part)
        for mark in marks:
            if isinstance(mark, OneOf):
                return list(mark.choices().values())
        return sections_of(inner)
    if typing.get_origin(part) in (tuple, typing.Union, types.UnionType, list):
        return [model for item in typing.get_args(part) for model in sections_of(item)]
    return []


def _tag(model: type[BaseModel]) -> str | None:
    """The `name` by which a section is chosen."""
    field_info = model.model_fields.get("name")
    names = typing.get_args(field_info.annotation) if field_info else ()
    return names[0] if names else None


def _dotted(key: Key) -> str:
    return ".".join(str(part) for part in key)
