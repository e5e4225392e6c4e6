"""Lists unlabelled pairs that models rank highly, for you to label as right or wrong.

Writes a page of pairs to label, and reads the labels that the page saves. The section `audit` of
the config selects the pairs (`keras-xmr explain audit`).

examples:
  keras-xmr audit --run=saved_models/scenes_pcme
  keras-xmr audit --runs=saved_models/a,saved_models/b --set audit.pairs=500
  keras-xmr audit --run=saved_models/scenes_pcme --labels=labels.csv
"""

from __future__ import annotations

import argparse

from keras_xmr.commands._options import add_path, add_runs, read_runs
from keras_xmr.utils.files import check_folder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add_runs(parser)
    add_path(parser, "--labels", "FILE", "labels saved by the page; writes judgements")


def run(arguments: argparse.Namespace) -> None:
    """Finds candidates for missing labels, or reads labels."""
    config, runs = read_runs(arguments)
    check_folder(config.folder)

    from keras_xmr.audit.audit import audit, merge_labels

    if arguments.labels is None:
        audit(config, runs)
    else:
        merge_labels(config, arguments.labels)
