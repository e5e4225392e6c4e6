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
from pathlib import Path
from typing import Any

from keras_xmr.experiments.config.differences import differences
from keras_xmr.experiments.config.fidelity import fidelity_text
from keras_xmr.experiments.config.loader import draft_fidelity, load_config
from keras_xmr.experiments.config.packaged_configs import (
    config_name,
    config_title,
    find_config,
    find_configs,
    packaged_ablations,
    packaged_configs,
    packaged_runs,
)
from keras_xmr.experiments.config.paper_section import ReportedResults
from keras_xmr.experiments.config.schema import Config
from keras_xmr.experiments.config.yaml_file import read_yaml
from keras_xmr.utils.errors import ConfigError
from keras_xmr.utils.messages import cut, nearest

SEVERAL_WORKERS = True

_WIDTH, _ALL = 100, "*"

_FIRST = "csv_pretrained"
"""The config that the tutorial begins with."""

# Parts of names for the data and the encoders.
_NOT_ON_SCENES = ("bert", "pretrained", "regions", "seen")

# Methods with another name there. PVSE with K = 2 is not among them.
_ON_SCENES = {
    "vsepp_hardest": "vsepp",
    "vsepp_triplet": "vse0",
    "vsepp_info_nce": "info_nce",
    "vsepp_smooth_ap": "smooth_ap",
    "pvse": "pvse_k2",
    "pvse_k4": "pvse",
    "pcme_no_uniformity": "pcme",
    "dvse_k6": "dvse",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    one = parser.add_mutually_exclusive_group()
    one.add_argument("pattern", nargs="?", default=_ALL, help="such as 'coco_*'")
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
    if arguments.pattern != _ALL:
        print("\n".join(_row(path, width) for path in paths))
        if len(paths) == 1:
            print("\n".join(_indented(fidelity_text(draft_fidelity(read_yaml(paths[0]))))))
        return
    own = sorted(filter(_is_for_own_photos, paths), key=lambda p: (config_name(p) != _FIRST, p))
    others = [path for path in paths if path not in own]
    print("Your own photos and captions:\n")
    print("\n".join(_row(path, width) for path in own))
    print("\nData sets and papers, and further methods:\n")
    print("\n".join(_row(path, width) for path in others))


def _row(path: Path, width: int) -> str:
    return f"{config_name(path):<{width}}  {config_title(path)}"


def _is_for_own_photos(path: Path) -> bool:
    return "your own photos" in config_title(path).lower()


def _list_paper(name: str) -> Iterator[str]:
    """Yields the tables of a paper, with their rows and the figures per row."""
    papers: dict[str, dict[str, list[tuple[str, ReportedResults, str]]]] = defaultdict(dict)
    for config, path in (packaged_configs() | packaged_ablations()).items():
        draft = read_yaml(path)
        if section := draft.data.get("paper"):
            paper = ReportedResults.model_validate(section)
            row = config, paper, fidelity_text(draft_fidelity(draft))
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
    """Returns the first author and the year of a source: `wei2023`."""
    match = re.match(r"(\w+).*?(\d{4})", source)
    return f"{match[1].lower()}{match[2]}" if match else source


def _run_here(config: str, runs: Mapping[str, str]) -> str:
    """Returns whether a config was run; if not, its relative on the scenes, and the differences."""
    if config in runs:
        return f"run here: {runs[config]}"
    method = "_".join(word for word in config.split("_")[1:] if word not in _NOT_ON_SCENES)
    counterpart = f"scenes_{_ON_SCENES.get(method, method)}"
    if counterpart not in runs:
        return "not run here"
    text = f"not run here; a relative was: {counterpart}, {runs[counterpart]}"
    if config.startswith("scenes_"):
        return text
    return f"{text}. It differs: {'; '.join(_describe_differences(config, counterpart))}"


def _aims(paper: ReportedResults) -> Iterator[str]:
    """Yields the figures of a row, with a paragraph per table."""
    for figures in paper.figures:
        notes = ["mean over folds"] if figures.folds else []
        notes += [name for name in (figures.row, figures.matcher, figures.reranker) if name]
        title = f"{', '.join(notes)}: " if notes else ""
        values = ", ".join(f"{name}={value:g}" for name, value in figures.values.items())
        yield from _indented(f"{title}{values}")


def _indented(text: str) -> Sequence[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 8)


def _describe_differences(published: str, other: str) -> list[str]:
    """Returns where a packaged config departs from a published row, as `batch_size 64
    (published: 128)`.

    Data, parts of the model, losses by their names, batches, optimizer and phases are compared.
    """
    theirs, ours = (_compared(load_config(find_config(name))) for name in (published, other))
    changed = differences(theirs, ours)
    return [f"{key} {here} (published: {there})" for key, there, here in changed]


def _compared(config: Config) -> dict[str, Any]:
    """Returns the relevant keys of a config."""
    content = config.model_dump(mode="json")
    train = content["train"]
    return {
        "data.source.name": content["data"]["source"]["name"],
        **content["model"],
        **{loss["name"]: loss for loss in content["objective"]},
        **{key: train[key] for key in ("sampler", "batch_size", "optimizer", "phases")},
    }
