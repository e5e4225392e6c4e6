"""Prints every key of a config, or of a part of it, with its meaning.

examples:
  python main.py explain
  python main.py explain train.phases
  python main.py explain model.matcher.match_probability
"""

from __future__ import annotations

import argparse

SEVERAL_WORKERS = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what the command takes."""
    parser.add_argument("key", nargs="?", default="", help="the part, such as train.phases")


def run(arguments: argparse.Namespace) -> None:
    """Prints the keys."""
    from keras_xmr.config.explain import explain

    print(explain(arguments.key))
