"""From YAML files and overrides to a `Config`, with errors that name the place and the remedy."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from data_pipelines.options import DataOptions
from keras_xmr.experiments.config.evaluation_section import EvaluationOptions
from keras_xmr.experiments.config.fidelity_table import fidelity
from keras_xmr.experiments.config.mistake_texts import explain, follows, sections_of
from keras_xmr.experiments.config.rules import mistakes
from keras_xmr.experiments.config.schema import Config, RelevanceOptions
from keras_xmr.experiments.config.yaml_file import (
    Draft,
    Key,
    apply_override,
    assign_yaml,
    key_parts,
    read_yaml,
)
from keras_xmr.judgements.judgement_options import JudgementOptions
from keras_xmr.parts.registry import Choice, import_parts
from keras_xmr.utils.errors import ConfigError
from keras_xmr.utils.messages import cut, first_of
from keras_xmr.utils.plugins import PluginError, add_plugins, remove_plugins

_SHOWN = 20
_Model = TypeVar("_Model", bound=BaseModel)


def override(key: str, value: Any) -> str:
    """Writes a change of a config as `load_config` takes it, such as `seed=3`.

    Args:
        key: The dotted key.
        value: The value: text, number, boolean, path, or lists and mappings of them.
    """
    plain = json.loads(json.dumps(value, default=str))
    (text,) = yaml.safe_dump([plain], default_flow_style=True, width=math.inf).splitlines()
    return f"{key}={text[1:-1]}"


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
        raise _error_of([explain(draft, i, of) for i in items if not follows(i)]) from None


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
