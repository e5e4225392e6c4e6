"""Draws a figure of a paper from finished runs.

examples:
  keras-xmr figure list
  keras-xmr figure wei2023:6 --run=saved_models/f30k_dvse_regions
  keras-xmr figure wei2023:9 --runs=saved_models/scenes_dvse_eta_04,saved_models/scenes_dvse
"""

from __future__ import annotations

import argparse
from pathlib import Path

from keras_xmr.commands._options import add_path, add_run_folders, add_value
from keras_xmr.commands._quiet import import_tensorflow
from keras_xmr.experiments.reports.figures import FIGURES, FigureOptions, draw_figure


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("name", help="paper and number, such as wei2023:6; `list` prints all")
    add_run_folders(parser, "folder of a finished run")
    add_path(parser, "--output", "FILE", "the PNG file; default: its name in the current folder")
    add_value(parser, "--split", "NAME", "default test", default="test")
    add_value(parser, "--item", "N", "number of the image, from 0 on", type=int, default=0)
    add_value(parser, "--classes", "N", "number of classes; default 9", type=int, default=9)
    add_path(parser, "--photos", "FOLDER", "photos of a run on regions, by the names of its images")
    add_value(parser, "--grid", "NUMBERS", "values of the axes, separated by commas", type=_grid)


def _grid(text: str) -> tuple[float, ...]:
    return tuple(float(number) for number in text.split(","))


def run(arguments: argparse.Namespace) -> None:
    """Draws the figure, and prints its file."""
    if arguments.name == "list":
        for name, spec in FIGURES.items():
            print(f"{name:12}  {spec.title}")
        return
    runs = []
    if arguments.name in FIGURES and arguments.runs:
        import_tensorflow()
        from keras_xmr.experiments.experiment import Experiment

        runs = [Experiment(folder) for folder in arguments.runs]
    options = FigureOptions(
        split=arguments.split,
        item=arguments.item,
        grid=arguments.grid,
        classes=arguments.classes,
        photos=arguments.photos,
    )
    output = arguments.output or Path(f"{arguments.name.replace(':', '_')}.png")
    print(draw_figure(arguments.name, runs, options, output))
