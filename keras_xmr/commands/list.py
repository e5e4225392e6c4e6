"""Prints the packaged configs with their titles.

examples:
  keras-xmr list
  keras-xmr list 'coco_*'
  keras-xmr list 'ablations/*'
  keras-xmr list --paper=wei2023
"""

from __future__ import annotations

import argparse
import re
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from keras_xmr.config.fidelity import fidelity_text
from keras_xmr.config.loader import (
    ConfigError,
    config_name,
    config_title,
    find_config,
    find_configs,
    load_config,
    packaged_ablations,
    packaged_configs,
    packaged_runs,
)
from keras_xmr.config.schema import Config, ReportedResults
from keras_xmr.config.yaml_file import read_yaml
from keras_xmr.utils.messages import cut, nearest

SEVERAL_WORKERS = True

_WIDTH = 100
_NONE = "none"

# Parts of names for the data and the encoders.
_NOT_ON_SCENES = ("bert", "pretrained", "regions", "seen")

# Methods with another name there. PVSE with K = 2 is not among them.
_ON_SCENES = {
    "vsepp_hardest": "vsepp",
    "vsepp_triplet": "vse0",
    "vsepp_nt_xent": "nt_xent",
    "vsepp_smooth_ap": "smooth_ap",
    "pvse": "pvse_k2",
    "pvse_k4": "pvse",
    "pcme_no_uniformity": "pcme",
    "dvse_k6": "dvse",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    one = parser.add_mutually_exclusive_group()
    one.add_argument("pattern", nargs="?", default="*", help="such as 'coco_*'")
    one.add_argument(
        "--paper",
        metavar="NAMEYEAR",
        help="configs of a paper by its tables, with the published numbers and whether the docs "
        "have a run",
    )


def run(arguments: argparse.Namespace) -> None:
    """Prints configs with their titles."""
    if arguments.paper is not None:
        print("\n".join(_list_paper(arguments.paper)))
        return
    paths = find_configs(arguments.pattern)
    width = max(len(config_name(path)) for path in paths)
    for path in paths:
        print(f"{config_name(path):<{width}}  {config_title(path)}")


def _list_paper(name: str) -> Iterator[str]:
    """The tables of a paper, with their rows and the figures per row."""
    papers: dict[str, dict[str, list[tuple[str, ReportedResults, str]]]] = defaultdict(dict)
    for config, path in (packaged_configs() | packaged_ablations()).items():
        data = read_yaml(path).data
        if section := data.get("paper"):
            paper = ReportedResults.model_validate(section)
            row = config, paper, fidelity_text(data["fidelity"])
            papers[_key(paper.source)].setdefault(paper.source, []).append(row)
    if name not in papers:
        known = ", ".join(sorted(papers))
        raise ConfigError(
            f"--paper: unknown paper {cut(repr(name))}.{nearest(name, papers)} Known: {known}"
        )
    runs = packaged_runs()
    for source, rows in sorted(papers[name].items()):
        yield source
        for config, paper, fidelity in rows:
            yield f"  {config}: {paper.row}"
            yield from _indented(fidelity)
            yield from _aims(paper)
            yield from _indented(_run_here(config, runs))


def _key(source: str) -> str:
    """The first author and the year of a source: `wei2023`."""
    match = re.match(r"(\w+).*?(\d{4})", source)
    return f"{match[1].lower()}{match[2]}" if match else source


def _run_here(config: str, runs: Mapping[str, str]) -> str:
    """Whether a config was run; if not, its relative on the scenes, and the differences."""
    if config in runs:
        return f"run here: {runs[config]}"
    method = "_".join(part for part in config.split("_")[1:] if part not in _NOT_ON_SCENES)
    twin = f"scenes_{_ON_SCENES.get(method, method)}"
    if twin not in runs:
        return "not run here"
    text = f"not run here; a relative was: {twin}, {runs[twin]}"
    if config.startswith("scenes_"):
        return text
    return f"{text}. It differs: {'; '.join(differences(config, twin))}"


def _aims(paper: ReportedResults) -> Iterator[str]:
    """The figures of a row, with a paragraph per table."""
    for figures in paper.figures:
        notes = ["mean over folds"] if figures.folds else []
        notes += [name for name in (figures.row, figures.matcher, figures.reranker) if name]
        title = f"{', '.join(notes)}: " if notes else ""
        values = ", ".join(f"{name}={value:g}" for name, value in figures.values.items())
        yield from _indented(f"{title}{values}")


def _indented(text: str) -> Sequence[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 8)


def differences(published: str, other: str) -> list[str]:
    """Where another config departs from that of a published row.

    Data, parts of the model, losses with their options, batch size, optimizer, epochs and rate.
    For different parts only the names are listed, not the options.

    Args:
        published: The packaged config of the row.
        other: The other one.

    Returns:
        Texts such as "batch size 64 (published: 128)".
    """
    theirs, ours = (_described(load_config(find_config(name))) for name in (published, other))
    return [
        f"{name} {ours.get(name, _NONE)} (published: {theirs.get(name, _NONE)})"
        for name in dict.fromkeys([*theirs, *ours])
        if theirs.get(name, _NONE) != ours.get(name, _NONE) and not _is_option(name, theirs, ours)
    ]


def _is_option(name: str, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> bool:
    """Whether it is an option of a part that differs, or is missing, on the other side."""
    part, dot, _ = name.partition(".")
    return bool(dot) and theirs.get(part) != ours.get(part)


def _described(config: Config) -> dict[str, Any]:
    """The relevant keys of a config, by name; options of a part after a dot."""
    content = config.model_dump(mode="json")
    model, train = content["model"], content["train"]
    phases = train["phases"]
    keys = {"data": content["data"]["source"]["name"]}
    for side in ("image", "text"):
        for part in ("encoder", "pooling", "head"):
            keys |= dict(_part(f"{side} {part}", model[side][part]))
    keys |= {"dimension": model["dimension"]} | dict(_part("matcher", model["matcher"]))
    for loss in content["objective"]:
        options = {key: value for key, value in loss.items() if key != "name"}
        keys |= {loss["name"]: "yes"} | {f"{loss['name']}.{k}": v for k, v in options.items()}
    return keys | {
        "sampler": train["sampler"],
        "batch size": train["batch_size"],
        "optimizer": train["optimizer"]["name"],
        "epochs": sum(phase["epochs"] for phase in phases),
        "learning rate": phases[-1]["learning_rate"],
    }


def _part(title: str, part: Mapping[str, Any] | None) -> Iterator[tuple[str, Any]]:
    if part is None:
        return
    yield title, part.get("architecture") or part["name"]
    for key, value in part.items():
        if key != "name":
            yield f"{title}.{key}", _NONE if value is None else value
