"""Writes the images of a split as files, to view or search them.

examples:
  keras-xmr images --run=saved_models/scenes_pcme --output=pictures
  keras-xmr index --run=saved_models/scenes_pcme --images=pictures
"""

from __future__ import annotations

import argparse

from keras_xmr.commands._options import add_path, add_run, add_value, one_of, read_config
from keras_xmr.utils.files import check_folder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add_run(parser)
    splits = ("train", "val", "test")
    add_value(
        parser, "--split", "|".join(splits), "default test", type=one_of(*splits), default="test"
    )
    add_path(parser, "--output", "FOLDER", "folder of the files", required=True)


def run(arguments: argparse.Namespace) -> None:
    """Writes the images."""
    config = read_config(arguments)
    check_folder(arguments.output)

    from data_pipelines.image_files import write_images
    from keras_xmr.experiments.experiment import Experiment

    count = write_images(Experiment(config).records.split(arguments.split), arguments.output)
    print(f"{arguments.output}: {count:,} images", flush=True)
