"""Converts the data of a config to TFRecord files (the records), and reports on the data.

examples:
  keras-xmr prepare --config=csv_pcme --set data.source.root=my_photos
"""

from __future__ import annotations

import argparse

from keras_xmr.commands._options import add_config, read_experiment


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add_config(parser)


def run(arguments: argparse.Namespace) -> None:
    """Writes the records."""
    read_experiment(arguments, run=False, records=True).prepare()
