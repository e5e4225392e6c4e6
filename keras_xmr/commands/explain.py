"""Prints every key of a config, or of a part of it, with its meaning.

examples:
  python main.py explain
  python main.py explain train.phases
  python main.py explain model.matcher.match_probability
  python main.py explain objective.squared_hinge --plugin=my_methods
"""

from __future__ import annotations

import argparse

SEVERAL_WORKERS = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what the command takes."""
    parser.add_argument("key", nargs="?", default="", help="the part, such as train.phases")
    parser.add_argument(
        "--plugin",
        action="append",
        default=[],
        metavar="NAME",
        help="a package of your own, as `plugins` of a config names it; may be given again",
    )


def run(arguments: argparse.Namespace) -> None:
    """Prints the keys."""
    from keras_xmr.config.explain import explain

    print(explain(arguments.key, arguments.plugin))
