"""Writes a trained model as model.keras, and as a SavedModel for TF Serving.

examples:
  keras-xmr export --run=saved_models/scenes_pcme
  keras-xmr export --run=saved_models/scenes_pcme --onnx
"""

from __future__ import annotations

import argparse

from keras_xmr.commands._options import add_run, read_experiment


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add_run(parser)
    parser.add_argument("--onnx", action="store_true", help="write the towers as ONNX instead")


def run(arguments: argparse.Namespace) -> None:
    """Exports the model."""
    experiment = read_experiment(arguments)
    if arguments.onnx:
        experiment.export_onnx()
    else:
        experiment.export()
