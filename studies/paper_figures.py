"""Draws how many pairs have a CIDEr above a threshold (Li et al. 2022, Fig. 1b).

    python studies/paper_figures.py pairs captions-relevance.npz --output pairs.png

The file is one that `keras-xmr relevance --captions=FILE` has written. Figures of runs are drawn by
`keras-xmr figure`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from keras_xmr.experiments.reports.pictures import panel, save_plot


def main(arguments: Sequence[str] | None = None) -> None:
    """Draws one figure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = parser.add_subparsers(dest="kind", required=True)
    pairs = kinds.add_parser("pairs")
    pairs.add_argument("file", type=Path, help="written by the command relevance")
    pairs.add_argument("--output", type=Path, required=True)
    options = parser.parse_args(arguments)
    draw_pairs(options)
    print(options.output)


def draw_pairs(options: argparse.Namespace) -> None:
    """Draws the pairs above each threshold: all, and those that are annotated."""
    with np.load(options.file) as file:
        relevance, owners = file["relevance"], file["image_of_caption"]
    thresholds = np.linspace(0, 1, 51) * float(relevance.max())
    own = relevance[owners, np.arange(len(owners))]
    drawing, axis = panel("", "CIDEr above", "pairs of image and caption")
    for label, values in (("all", relevance.ravel()), ("annotated", own)):
        ordered = np.sort(values)
        above = len(ordered) - np.searchsorted(ordered, thresholds, side="right")
        axis.plot(thresholds, np.maximum(above, 0.5), label=label)
    axis.set_yscale("log")
    axis.legend()
    save_plot(drawing, options.output)


if __name__ == "__main__":
    main()
