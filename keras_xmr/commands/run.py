"""Prepares the records if they are missing, trains, evaluates and exports.

`run` is the default command. All output is in saved_models/<name>/. The same command resumes
a run that was interrupted. Several machines train together if TF_CONFIG names them
(docs/how_to/many_machines.md).

examples:
  keras-xmr run --config=coco_pcme --set data.source.root=/data/coco
  keras-xmr --config=coco_pcme --set name=small_batches --set train.batch_size=64
"""

from __future__ import annotations

import argparse

from keras_xmr.commands._options import add_config, add_yes, read_experiment

SEVERAL_WORKERS = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add_config(parser)
    add_yes(parser)


def run(arguments: argparse.Namespace) -> None:
    """Runs all steps."""
    read_experiment(arguments, records=True, trains=True).run()
