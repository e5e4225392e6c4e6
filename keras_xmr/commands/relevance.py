"""Writes how relevant each caption is to each image, by the captions alone.

The captions are those of a config, or of a file. The section `relevance` of the config says how
they are compared (`keras-xmr explain relevance`).

examples:
  keras-xmr relevance --config coco_pcme
  keras-xmr relevance --captions=captions.csv --set relevance.measure=cider_d
"""

from __future__ import annotations

import argparse
from pathlib import Path

from keras_xmr.commands._options import add_config, config_of
from keras_xmr.commands._steps import do
from keras_xmr.config.loader import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what the command takes."""
    add_config(parser)
    parser.add_argument(
        "--captions",
        type=Path,
        metavar="FILE",
        help="captions that need no config: CSV with image,caption, or the JSON of COCO or "
        "Karpathy",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="with --captions: what is written; <captions>-relevance.npz by default",
    )


def run(arguments: argparse.Namespace) -> None:
    """Writes the relevance; that of a captions file needs no TensorFlow."""
    config = config_of(arguments)
    if arguments.captions is None:
        if arguments.output:
            raise ConfigError("--output goes with --captions; a run writes to its own folder")
        do(config, "relevance")
        return

    from keras_xmr.relevance.write import relevance_of_file

    relevance_of_file(
        arguments.captions, arguments.output, config.evaluation.splits, config.relevance
    )
