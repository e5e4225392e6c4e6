"""The help of the command line as a whole."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from data_pipelines.errors import UserError
from keras_xmr.commands import command_names, load_command
from keras_xmr.config.loader import packaged_configs
from keras_xmr.config.program import adapt_help

_OVERVIEW = """\
Image-text retrieval with many relevant items per query.

usage: keras-xmr COMMAND [--config=FILE] [--set key=value ...] ...
       keras-xmr --version

The default command is `run`. All output of a run is in saved_models/<name>/. The environment
variable TQDM_DISABLE=1 hides progress bars.

commands (details: keras-xmr COMMAND --help):
{commands}

examples:
  keras-xmr demo
  keras-xmr --config configs/coco_pcme.yaml --set data.source.root=/data/coco
  keras-xmr evaluate --run=saved_models/coco_pcme --set evaluation.folds=5
  keras-xmr evaluate --scores=clip.npy --ground-truth=captions_val2014.json
  keras-xmr compare --configs=scenes_vsepp,scenes_pcme --seeds=0,1,2

packaged configs (coco_pcme and so on; `list` has their titles):
{configs}
"""

_DATA_SETS = {
    "scenes": "the built-in synthetic data set",
    "csv": "your own photos, or their precomputed features",
    "flickr8k": "Flickr8K, judged by people",
    "coco": "COCO Captions: rows of the papers",
    "f30k": "Flickr30K: rows of the papers",
    "cub": "CUB Captions: rows of the papers",
}
"""Data sets of the configs, by the first part of their names."""


def overview() -> str:
    """The help of the command line."""
    return adapt_help(
        _OVERVIEW.format(
            commands="\n".join(f"  {name:<11}{summary(name)}" for name in command_names()),
            configs="\n".join(_configs_by_data_set()),
        )
    )


def summary(name: str) -> str:
    """The first line of the docstring of a command, or the reason if it cannot be loaded."""
    try:
        return (load_command(name).__doc__ or "").partition("\n")[0]
    except UserError as error:
        return str(error)


def _configs_by_data_set() -> Iterator[str]:
    """The names of all configs, with a paragraph per data set."""
    names = [name.partition("_") for name in packaged_configs()]
    for data_set, text in _DATA_SETS.items():
        yield f"  {data_set}_...  {text}"
        variants = ", ".join(variant for prefix, _, variant in names if prefix == data_set)
        yield from textwrap.wrap(variants, 96, initial_indent="    ", subsequent_indent="    ")
