"""Finds the best scales of fast re-ranking on the validation split of a run.

examples:
  keras-xmr tune --run=saved_models/scenes_pcme
"""

from __future__ import annotations

import argparse

from keras_xmr.commands._options import add_run, read_experiment


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add_run(parser)


def run(arguments: argparse.Namespace) -> None:
    """Prints the best scales."""
    read_experiment(arguments).tune_reranker()
