"""Writes the relevance of each caption to each image, computed from the captions alone.

The captions come from a config or a file. The section `relevance` of the config has the measure
(`keras-xmr explain relevance`).

examples:
  keras-xmr relevance --config coco_pcme
  keras-xmr relevance --captions=captions.csv --set relevance.measure=cider_d
"""

from __future__ import annotations

import argparse

from keras_xmr.commands._options import add_config, add_path, read_experiment
from keras_xmr.experiments.config.loader import load_relevance
from keras_xmr.experiments.config.packaged_configs import find_config
from keras_xmr.utils.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add_config(parser)
    text = "captions without a config: CSV with image,caption, or the JSON of COCO or Karpathy"
    add_path(parser, "--captions", "FILE", text)
    text = "with --captions: output file; default CAPTIONS-relevance.npz"
    add_path(parser, "--output", "FILE", text)


def run(arguments: argparse.Namespace) -> None:
    """Writes the relevance; of a captions file, without TensorFlow."""
    if arguments.captions is None:
        if arguments.output:
            raise ConfigError("--output needs --captions; the relevance of a run is in its folder")
        read_experiment(arguments).write_relevance()
        return

    from keras_xmr.experiments.evaluation.relevance_files import write_file_relevance

    options = load_relevance(find_config(arguments.config), arguments.set)
    write_file_relevance(arguments.captions, arguments.output, *options)
