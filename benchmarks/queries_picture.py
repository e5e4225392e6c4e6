"""Draws docs/queries.png: a precise and a vague query with the pictures that a model finds.

The queries are captions of the test split: the one that the model is surest of among those of at
most 55 letters, and the one that it is least sure of among those that are true of a tenth of the
pictures. Pictures that a caption is true of have a green frame.

    python benchmarks/queries_picture.py --run saved_models/scenes_pcme --output docs/queries.png
"""

from __future__ import annotations

import argparse
import io
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import matplotlib as mpl
import numpy as np

mpl.use("agg")

from matplotlib import pyplot as plt
from PIL import Image

_SHOWN = 8
_LONGEST = 55
_RIGHT, _WRONG = "#2a9d3c", "#c8c8c8"


def main() -> None:
    """Embeds the test split, and draws two of its captions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, required=True, help="a finished run on the scenes")
    parser.add_argument("--output", type=Path, default=Path("docs/queries.png"))
    options = parser.parse_args()

    from keras_xmr.commands._steps import Run
    from keras_xmr.evaluation.embed import embed_split
    from keras_xmr.evaluation.evaluate import split_truth
    from keras_xmr.evaluation.scoring import MatcherScores
    from keras_xmr.evaluation.uncertainty.assessment import log_sigma
    from keras_xmr.runs.folder import load_run

    run = Run(load_run(options.run))
    part = run.records.split("test")
    embedded = embed_split(run.model, part, run.tokenizer, run.config)
    scores = np.asarray(
        MatcherScores(
            run.model.matcher, embedded.images, embedded.captions, run.config.evaluation.tile
        )
    )
    truth = split_truth(run.records, part)
    sigma = log_sigma(embedded.captions)
    if truth is None or sigma is None:
        raise SystemExit("the run needs Gaussian embeddings and the scenes")
    right = truth.transpose().counts()
    place = 100 * np.argsort(np.argsort(sigma)) / len(sigma)
    short = np.array([len(caption.text) <= _LONGEST for caption in part.captions])
    precise = int(np.where(short, sigma, np.inf).argmin())
    vague = int(np.where(right >= len(part) / 10, sigma, -np.inf).argmax())
    figure, axes = plt.subplots(2, _SHOWN, figsize=(1.15 * _SHOWN, 3))
    for row, query in enumerate((precise, vague)):
        text = part.captions[query].text
        title = (
            f"“{text}”  (true of {right[query]} of {len(part)} pictures; vaguer than "
            f"{place[query]:.0f} % of the captions, says the model)"
        )
        heading = axes[row][0].set_title(title, loc="left", fontsize=9, pad=6)
        heading.set_in_layout(False)
        found = np.argsort(-scores[:, query], kind="stable")[:_SHOWN]
        for axis, image in zip(axes[row], found, strict=True):
            _show(axis, _pixels(part, int(image)), truth.grades[int(image), query] > 0)
    figure.subplots_adjust(0.01, 0.02, 0.99, 0.9, wspace=0.08, hspace=0.35)
    figure.savefig(options.output, dpi=110)


def _pixels(part: Any, image: int) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(part.encoded(image))))


def _show(axis: plt.Axes, pixels: np.ndarray, is_right: bool) -> None:
    axis.imshow(pixels)
    axis.set_xticks([])
    axis.set_yticks([])
    for spine in axis.spines.values():
        spine.set(color=_RIGHT if is_right else _WRONG, linewidth=3)


if __name__ == "__main__":
    main()
