"""Trains and evaluates several configs, and tests which differences are significant.

Every config is run with every seed, as <config>-seed<seed>. Finished trainings and evaluations are
not repeated. Finished runs are compared without changes.

examples:
  keras-xmr compare --configs=scenes_vsepp,scenes_pcme --seeds=0,1,2
  keras-xmr compare --runs=saved_models/first,saved_models/second
"""

from __future__ import annotations

import argparse

from keras_xmr.commands._options import (
    add_list,
    add_path,
    add_run_folders,
    add_set,
    add_value,
    integer_from,
    words,
)
from keras_xmr.utils.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    text = "files or names of configs, separated by commas, or patterns such as 'scenes_*'"
    add_list(parser, "--configs", "NAMES", text, action="extend", type=words)
    text = "seeds of each config, separated by commas; default 0"
    add_value(parser, "--seeds", "NUMBERS", text, type=_seeds)
    add_set(parser, "change a key of all configs")
    add_run_folders(parser, "folder of a finished run")
    text = "folder of tables, plots and statistics; default comparison/ next to the first run"
    add_path(parser, "--output", "FOLDER", text)


def run(arguments: argparse.Namespace) -> None:
    """Compares methods; each training is a process."""
    for option in ("seeds", "set"):
        if getattr(arguments, option) and not arguments.configs:
            raise ConfigError(f"--{option} needs --configs: finished runs are not changed")

    from keras_xmr.commands._comparison import compare, plan_runs

    planned = plan_runs(arguments.configs, arguments.seeds or [0], arguments.set)
    compare(planned, arguments.runs, arguments.output)


def _seeds(text: str) -> list[int]:
    return [integer_from(0)(word) for word in words(text)]
