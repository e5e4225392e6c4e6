"""The configs that come with the project, and the files that names of configs mean."""

from __future__ import annotations

import csv
import fnmatch
import glob
import os
from pathlib import Path

from keras_xmr.experiments.config.yaml_file import grid_rows, row_title, split_row
from keras_xmr.utils.errors import ConfigError
from keras_xmr.utils.messages import cut, most_similar
from keras_xmr.utils.program import program

_ABLATIONS = "ablations"


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
