"""Trains a model, or resumes an interrupted training.

The records must have been prepared. Several machines train together if TF_CONFIG names them
(docs/how_to/many_machines.md).

examples:
  keras-xmr train --config coco_pcme --set data.source.root=/data/coco
"""

from __future__ import annotations

import argparse

from keras_xmr.commands._options import add_config, read_experiment

SEVERAL_WORKERS = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add_config(parser)


def run(arguments: argparse.Namespace) -> None:
    """Trains the model."""
    read_experiment(arguments, trains=True).train()
