"""Lists unlabelled pairs that models believe in, for you to label as right or wrong.

Writes a page of pairs to label, and takes the labels that it has saved. The section `audit` of the
config says which pairs (`keras-xmr explain audit`).

examples:
  keras-xmr audit --run=saved_models/scenes_pcme
  keras-xmr audit --runs=saved_models/a,saved_models/b --set audit.pairs=500
  keras-xmr audit --run=saved_models/scenes_pcme --labels=labels.csv
"""

from __future__ import annotations

import argparse
from pathlib import Path

from data_pipelines.folders import check_folder
from keras_xmr.commands._options import add_runs, runs_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what the command takes."""
    add_runs(parser)
    parser.add_argument(
        "--labels",
        type=Path,
        metavar="FILE",
        help="the labels that the page has saved; writes judgements",
    )


def run(arguments: argparse.Namespace) -> None:
    """Looks for missing labels, or takes the labels that somebody has made."""
    config, runs = runs_of(arguments)
    check_folder(config.folder)

    from keras_xmr.audit.audit import audit, merge_labels

    if arguments.labels is None:
        audit(config, runs)
    else:
        merge_labels(config, arguments.labels)
