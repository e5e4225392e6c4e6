"""From YAML files and overrides to a `Config`, with errors that name the place and the remedy."""

from __future__ import annotations

import csv
import fnmatch
import glob
import inspect
import json
import math
import os
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from data_pipelines.options import DataOptions
from keras_xmr.experiments.config.evaluation_section import EvaluationOptions
from keras_xmr.experiments.config.fidelity_table import fidelity
from keras_xmr.experiments.config.rules import mistakes
from keras_xmr.experiments.config.schema import Config, RelevanceOptions
from keras_xmr.experiments.config.yaml_file import (
    Draft,
    Key,
    apply_override,
    assign_yaml,
    dotted,
    grid_rows,
    key_parts,
    read_yaml,
    row_title,
    split_row,
)
from keras_xmr.judgements.judgement_options import JudgementOptions
from keras_xmr.parts.registry import Choice, import_parts
from keras_xmr.utils.errors import ConfigError
from keras_xmr.utils.messages import cut, first_of, most_similar, nearest
from keras_xmr.utils.plugins import PluginError, add_plugins, remove_plugins
from keras_xmr.utils.program import program

_SHOWN = 20
_Model = TypeVar("_Model", bound=BaseModel)
_ABLATIONS = "ablations"
_PATH = "a path is a text; put it in quotes"


def override(key: str, value: Any) -> str:
    """Writes a change of a config as `load_config` takes it, such as `seed=3`.

    Args:
        key: The dotted key.
        value: The value: text, number, boolean, path, or lists and mappings of them.
    """
    plain = json.loads(json.dumps(value, default=str))
    (text,) = yaml.safe_dump([plain], default_flow_style=True, width=math.inf).splitlines()
    return f"{key}={text[1:-1]}"


def find_config(name: str, option: str = "--config") -> Path:
    """Finds the file of a config by its path, or by the name of a packaged config.

    An ablation is a row of a grid: `configs/ablations/wei2023.yaml#cub_dvse_k1`.

    Args:
        name: The path, or the name.
        option: The option of the command line that gave it, for the error message.

    Raises:
        ConfigError: If neither exists.
    """
    path = Path(name)
    if os.path.isfile(split_row(path)[0]):
        return path
    known = packaged_configs()
    if config_name(path) not in known:
        known |= packaged_ablations()
    if config_name(path) in known and path.parent.name in ("", "configs", _ABLATIONS):
        return known[config_name(path)]
    if os.path.isdir(path):
        raise ConfigError(f"{option}: {path} is a folder, not a YAML file")
    raise ConfigError(
        f"{option}: {cut(name)} is neither a file nor the name of a config."
        f"{most_similar(config_name(path), known)} `{program()} list` prints the packaged configs"
    )


def find_configs(pattern: str, option: str = "list") -> list[Path]:
    """Returns the files of configs that a pattern such as `scenes_*` or `mine/*.yaml` names, in
    order.

    Ablations are named by `ablations/*`, or by a pattern that no other config fits.

    Args:
        pattern: The pattern, or a path or name as of `find_config`.
        option: The option, or command, that it was given to; for the error message.

    Raises:
        ConfigError: If none matches.
    """
    if not set("*?[") & set(pattern):
        return [find_config(pattern, option)]
    paths: list[Path] = []
    groups = [packaged_configs(), packaged_ablations()]
    for known in groups[1:] if pattern.startswith(f"{_ABLATIONS}/") else groups:
        names = fnmatch.filter(known, pattern.removeprefix(f"{_ABLATIONS}/"))
        paths = paths or [known[name] for name in names]
    paths = paths or [Path(name) for name in sorted(glob.glob(pattern))]
    if not paths:
        raise ConfigError(
            f"{option}: no config matches {pattern!r}; `{program()} list` prints "
            "the packaged configs"
        )
    return paths


def packaged_configs() -> dict[str, Path]:
    """Returns the configs that come with the project, by name; ablations are apart."""
    folder = _configs()
    return {name[:-5]: folder / name for name in sorted(glob.glob("*.yaml", root_dir=folder))}


def packaged_ablations() -> dict[str, Path]:
    """Returns the ablations of the papers, and their twins on the scenes, by name: rows of
    grids.
    """
    grids = (_configs() / _ABLATIONS).glob("*.yaml")
    rows = {row: Path(f"{path}#{row}") for path in grids for row in grid_rows(path)}
    return dict(sorted(rows.items()))


def config_name(path: Path) -> str:
    """Returns the name of a config by its path, or of a row of a grid."""
    return split_row(path)[1] or path.stem


def config_title(path: Path) -> str:
    """Returns the title of a config: its first line, or the first line of a row of a grid."""
    file, row = split_row(path)
    if row:
        return row_title(file, row)
    with file.open(encoding="utf-8", errors="replace") as lines:
        return lines.readline().lstrip("# ").rstrip()


def packaged_runs() -> dict[str, str]:
    """Configs that were run for the tables of the docs, with their sizes, by name."""
    with (_configs() / "runs.csv").open(encoding="utf-8", newline="") as file:
        return {
            row["config"]: f"{row['size']}, seeds: {row['seeds']} ({row['page']})"
            for row in csv.DictReader(file)
        }


def _configs() -> Path:
    here = Path(__file__).parents[2]
    return here / "configs" if (here / "configs").is_dir() else here.parent / "configs"


def load_config(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Reads a config.

    Args:
        path: The YAML file, or the row of a grid.
        overrides: Texts `key=value`, where key is dotted (`train.batch_size`,
            `objective.0.weight`) and value is YAML.

    Raises:
        ConfigError: If anything is wrong with it. All mistakes are reported at once.
    """
    draft = _changed(path, overrides)
    _use_plugins(draft)
    draft.data["fidelity"] = draft_fidelity(draft)
    config = _validated(Config, draft, draft.data)
    found = [(draft.place(key_parts(text.partition(":")[0])), text) for text in mistakes(config)]
    if found:
        raise _error_of([": ".join(mistake) for mistake in found])
    return config


def draft_fidelity(draft: Draft) -> Any:
    """Returns the `fidelity` of a config: its own, added to what `docs/tables/fidelity.csv` says.

    A config that includes no file, such as the record of a run, has its own alone.
    """
    own = draft.data.get("fidelity")
    if own is not None and len(draft.files) < 2:
        return own
    known = fidelity(draft.names, draft.data)
    if isinstance(own, dict) and isinstance(known, dict):
        return known | own
    return known if own is None else own


def load_relevance(
    path: Path, overrides: Sequence[str]
) -> tuple[tuple[str, ...], RelevanceOptions]:
    """Reads the splits and the section `relevance` of a config, and checks nothing else.

    Raises:
        ConfigError: If one of them is wrong.
    """
    draft = _changed(path, overrides)
    splits = {k: v for k, v in draft.data.get("evaluation", {}).items() if k == "splits"}
    evaluation = _validated(EvaluationOptions, draft, splits, ("evaluation",))
    relevance = draft.data.get("relevance", {})
    return evaluation.splits, _validated(RelevanceOptions, draft, relevance, ("relevance",))


def load_rerankers(texts: Sequence[str]) -> tuple[Choice, ...]:
    """Returns re-rankers that are given without a config, by the option `--rerank`.

    Args:
        texts: The name of each, or its section as YAML: `{name: fast_reranking, preset: cub}`.

    Raises:
        ConfigError: If one is not known, or has a wrong option.
    """
    return _load_options("rerankers", texts, "--rerank").rerankers


def load_metrics(texts: Sequence[str]) -> tuple[Choice, ...]:
    """Returns further metrics that are given without a config, by the option `--metric`.

    Args:
        texts: The name of each, or its section as YAML: `{name: discounted_gain, k: 20}`.

    Raises:
        ConfigError: If one is not known, or has a wrong option.
    """
    return _load_options("metrics", texts, "--metric").metrics


def load_judgements(texts: Sequence[str]) -> tuple[JudgementOptions, ...]:
    """Returns judgements that are given without a config, by the option `--judgements`.

    Args:
        texts: The source of each, or its section as YAML: `{source: judged.csv, name: mine}`.

    Raises:
        ConfigError: If one has a wrong option.
    """
    sections = [text if text.lstrip().startswith("{") else json.dumps(text) for text in texts]
    options = _load_options("judgements", sections, "--judgements")
    return options.judgements


def _load_options(name: str, texts: Sequence[str], flag: str) -> EvaluationOptions:
    """Returns the options of an evaluation, with a list of sections that are written as YAML."""
    draft = Draft({"evaluation": {name: []}})
    for number, text in enumerate(texts):
        assign_yaml(draft, ("evaluation", name, number), text, f"{flag} {cut(text)}")
    return _validated(EvaluationOptions, draft, draft.data["evaluation"], ("evaluation",), of=3)


def _changed(path: Path, overrides: Sequence[str]) -> Draft:
    """Returns a YAML file with overrides."""
    draft = read_yaml(path)
    for override in overrides:
        apply_override(draft, override)
    return draft


def _validated(model: type[_Model], draft: Draft, data: Any, key: Key = (), of: int = 0) -> _Model:
    """Returns a section from its data, which is at a key of a draft; messages omit `of` parts
    of keys.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        items = [{**item, "loc": (*key, *item["loc"])} for item in error.errors(include_url=False)]
        raise _error_of([_explain(draft, i, of) for i in items if not _follows(i)]) from None


def use_plugins(names: Sequence[str]) -> None:
    """Imports the plugins that a config names, and checks their parts.

    Raises:
        PluginError: If one cannot be imported, or has a part that cannot be used.
    """
    import_parts()  # First the project's, with which the command line loads TensorFlow.
    new = add_plugins(names)
    try:
        import_parts()
        sections_of(DataOptions.model_fields["source"])
    except PluginError:
        remove_plugins(new)
        raise


def _use_plugins(draft: Draft) -> None:
    """Imports the plugins of a config before it is validated."""
    names = draft.data.get("plugins")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return
    try:
        use_plugins(names)
    except PluginError as error:
        raise ConfigError(f"{draft.place(('plugins',))}: plugins: {error}") from None


def _error_of(mistakes: Sequence[str]) -> ConfigError:
    """Returns the error with the first of these lines; a file that is not a config may have
    thousands.
    """
    return ConfigError("\n".join(first_of(mistakes, _SHOWN)))


def dump_config(config: Config) -> str:
    """Returns the config as YAML, with every default written out."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def _follows(error: Mapping[str, Any]) -> bool:
    """Returns whether a mistake only follows from others, which are reported."""
    if error["type"] == "too_short":
        # Entries that are wrong were taken out before they were counted.
        return bool(len(error["input"]) >= error["ctx"]["min_length"])
    return bool(error["type"] == "default_factory_not_called")


def _explain(draft: Draft, error: Mapping[str, Any], of: int = 0) -> str:
    """Returns one mistake of pydantic as a line for the user, without `of` parts of the key."""
    key, error_type, context = error["loc"], error["type"], error.get("ctx", {})
    value = error["input"]
    if error_type == "extra_forbidden":
        text = _unknown_key(draft.data, key)
    elif error_type == "missing":
        text = "this key is needed"
    elif error_type == "literal_error":
        names = [n.strip(" '") for n in context["expected"].replace(" or ", ", ").split(",")]
        text = f"got {cut(repr(value))}.{nearest(str(value), names)}"
    elif error_type == "too_short":
        least = context["min_length"]
        text = f"got {cut(repr(value))}: it needs at least {least} item{'s' * (least > 1)}"
    elif error_type == "value_error":
        text = str(context["error"])
    else:
        message = _PATH if error["type"] == "path_type" else error["msg"]
        text = f"got {cut(repr(value))}: {message[:1].lower()}{message[1:]}"
    return ": ".join(filter(None, (draft.place(key), dotted(key[of:]), text)))


def _unknown_key(data: Any, key: Key) -> str:
    """Returns what is wrong with a key that its section does not have."""
    sections: list[type[BaseModel]] = [Config]
    for step in key[:-1]:
        data = data[step]
        if isinstance(step, str):
            sections = sections_at(step, sections)
        if isinstance(data, dict):
            name = data.get("name")
            sections = [one for one in sections if section_name(one) in (None, name)]
    names = sorted({name for section in sections for name in section.model_fields})
    for section in sections:
        cls = getattr(section, "part", None)
        if cls is not None and key[-1] in inspect.signature(cls).parameters:
            return (
                f"the constructor of {cls.__module__}.{cls.__name__} takes it, but not as a "
                f"keyword-only parameter, as options are; write `*, {key[-1]}`"
            )
    return f"unknown key.{nearest(str(key[-1]), names)}"


def sections_at(name: str, sections: Sequence[type[BaseModel]]) -> list[type[BaseModel]]:
    """Selects sections by a name, or all that a key of this name in some sections can hold."""
    fields = [s.model_fields[name] for s in sections if name in s.model_fields]
    named = [section for section in sections if section_name(section) == name]
    return named or [inner for field in fields for inner in sections_of(field)]


def sections_of(annotated: Any) -> list[type[BaseModel]]:
    """Returns all config sections that a field, or a type, can hold."""
    if isinstance(annotated, type) and issubclass(annotated, BaseModel):
        return [annotated]
    if hasattr(annotated, "metadata") and hasattr(annotated, "annotation"):
        inner, marks = annotated.annotation, annotated.metadata
    elif typing.get_origin(annotated) is typing.Annotated:
        inner, marks = typing.get_args(annotated)[0], typing.get_args(annotated)[1:]
    else:
        is_several = typing.get_origin(annotated) in (tuple, typing.Union, types.UnionType, list)
        items = typing.get_args(annotated) if is_several else ()
        return [model for item in items for model in sections_of(item)]
    choosing = next((mark for mark in marks if hasattr(mark, "choices")), None)
    return list(choosing.choices().values()) if choosing else sections_of(inner)


def section_name(model: type[BaseModel]) -> str | None:
    """Returns the `name` by which a section is chosen."""
    field_info = model.model_fields.get("name")
    names = typing.get_args(field_info.annotation) if field_info else ()
    return names[0] if names and isinstance(names[0], str) else None
