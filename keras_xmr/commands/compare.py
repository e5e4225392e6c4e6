"""Trains and evaluates several configs, and tests which differences are real.

Every config is run with every seed, as <config>-seed<seed>. What has been trained or evaluated
before is not done again. Finished runs are compared as they are.

examples:
  keras-xmr compare --configs=scenes_vsepp,scenes_pcme --seeds=0,1,2
  keras-xmr compare --runs=saved_models/first,saved_models/second
"""

from __future__ import annotations

import argparse
from pathlib import Path

from keras_xmr.commands._options import add_run_folders, whole, words
from keras_xmr.config.loader import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what the command takes."""
    parser.add_argument(
        "--configs",
        action="extend",
        default=[],
        type=words,
        metavar="NAMES",
        help="files or names of configs, with commas between, or patterns such as 'scenes_*'; "
        "may be given several times",
    )
    parser.add_argument(
        "--seeds",
        type=_seeds,
        metavar="NUMBERS",
        help="the seeds of each config, with commas between; 0 by default",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="changes a key of all configs; may be given several times",
    )
    add_run_folders(parser, "the folder of a finished run; may be given several times")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FOLDER",
        help="where tables, plots and statistics go; comparison/ beside the first run by default",
    )


def run(arguments: argparse.Namespace) -> None:
    """Compares methods; those that are trained for it run TensorFlow in their own processes."""
    for option in ("seeds", "set"):
        if getattr(arguments, option) and not arguments.configs:
            raise ConfigError(f"--{option} needs --configs: finished runs stay as they are")

    from keras_xmr.comparison.plan import plan_runs
    from keras_xmr.comparison.runs import compare

    planned = plan_runs(arguments.configs, arguments.seeds or [0], arguments.set)
    compare(planned, arguments.runs, arguments.output)


def _seeds(text: str) -> list[int]:
    return [whole(0)(word) for word in words(text)]
