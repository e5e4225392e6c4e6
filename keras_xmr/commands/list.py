"""Prints the configs that come along, and what each is.

examples:
  python main.py list
  python main.py list 'coco_*'
  python main.py list 'ablations/*'
"""

from __future__ import annotations

import argparse
from pathlib import Path

from keras_xmr.config.loader import find_configs

SEVERAL_WORKERS = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what the command takes."""
    parser.add_argument("pattern", nargs="?", default="*", help="such as 'coco_*'")


def run(arguments: argparse.Namespace) -> None:
    """Prints configs and what they are."""
    found = find_configs(arguments.pattern)
    width = max(len(path.stem) for path in found)
    for path in found:
        print(f"{path.stem:<{width}}  {_title(path)}")


def _title(config: Path) -> str:
    """The first line of a config, which says what it is."""
    with config.open(encoding="utf-8", errors="replace") as file:
        return file.readline().lstrip("# ").rstrip()
