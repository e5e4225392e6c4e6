"""Runs the demo on built-in synthetic scenes, in minutes and without internet.

The command is `run` with the config scenes_pcme: 4,000 scenes of coloured shapes with captions from
exact to vague.

examples:
  keras-xmr demo
"""

from __future__ import annotations

import argparse

from keras_xmr.commands._options import DEMO, add_set, read_experiment

SEVERAL_WORKERS = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.set_defaults(config=DEMO)
    add_set(parser)


def run(arguments: argparse.Namespace) -> None:
    """Runs all steps of the demo."""
    read_experiment(arguments, records=True, trains=True).run()
