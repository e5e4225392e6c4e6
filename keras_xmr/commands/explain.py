"""Prints every key of a config, or of a part of it, with its meaning.

examples:
  keras-xmr explain
  keras-xmr explain train.phases
  keras-xmr explain model.matcher.match_probability
  keras-xmr explain objective.squared_hinge --plugin=my_methods
"""

from __future__ import annotations

import argparse

from keras_xmr.commands._options import add_list
from keras_xmr.config.program import adapt_help

SEVERAL_WORKERS = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("key", nargs="?", default="", help="part, such as train.phases")
    add_list(parser, "--plugin", "NAME", "package with further parts, as in `plugins` of a config")


def run(arguments: argparse.Namespace) -> None:
    """Prints the keys."""
    from keras_xmr.config.explain import explain

    print(adapt_help(explain(arguments.key, arguments.plugin)))
