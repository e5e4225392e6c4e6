"""What the sigma of a caption says beyond its score, its hubness and its density.

Models of studies/hub_doses.py, trained on Flickr8K, rank photos for the test captions that the
crowd judged. For each such caption this writes how many photos the crowd calls right, with and
without the annotated one, and how many other ones the experts call right; sigma by model
and seed; and controls: few words, density among the training captions, a ridge regression of the
number on the features of the caption alone, and, by model and seed, the score of the first photo
and the mean and the ten highest scores with training photos. `--results` has a line per quantity.

    python studies/sigma.py --flickr8k data/raw/flickr8k --work data/hubs    # after hub_doses.py
    python studies/result_pages.py sigma_page                                # the tables
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parent))

from birds_tables import add_paths
from hub_doses import Truths, people

from keras_xmr.utils.vectors import unit_rows

RESULTS = Path(__file__).parent / "results/sigma.csv"
MODELS = {"pcmepp": "PCME++", "msrm": "MSRM"}
SEEDS = (1, 2)
OUTCOMES = {
    "right": "photos that the crowd calls right",
    "experts": "other photos that experts call right",
}
CONTROLS = {
    "words": "few words",
    "density": "density among training captions",
    "text": "regression on the caption alone",
}
"""Of a caption, whatever the model."""
MODEL_CONTROLS = {
    "first": "score of the first photo",
    "bank": "mean score with training photos",
    "bank_ten": "ten highest scores with training photos",
}
NEIGHBOURS = 10
UNKNOWN = -1
"""The number of experts' photos of a caption that they did not see."""


def density(captions: np.ndarray, train: np.ndarray) -> np.ndarray:
    """The mean cosine of each caption with its nearest training captions."""
    found = []
    for block in np.array_split(unit_rows(captions), 10):
        cosines = block @ unit_rows(train).T
        found.append(np.partition(cosines, -NEIGHBOURS, axis=1)[:, -NEIGHBOURS:].mean(axis=1))
    return np.concatenate(found)


def regress(features: np.ndarray, target: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Predicts a target for each group from all others, by the ridge that predicts best.

    That the ridge is chosen on what is predicted favours this control a little.
    """
    folds = groups % 20
    best: tuple[float, np.ndarray] = (-np.inf, target)
    for ridge in (0.3, 1.0, 3.0, 10.0, 30.0):
        predicted = np.empty(len(target))
        for fold in range(20):
            train, test = folds != fold, folds == fold
            mean = features[train].mean(axis=0)
            own = features[train] - mean
            kernel = own @ own.T
            kernel[np.diag_indices(len(own))] += ridge * np.trace(kernel) / own.shape[1]
            weights = np.linalg.solve(kernel, target[train] - target[train].mean())
            predicted[test] = (features[test] - mean) @ (own.T @ weights) + target[train].mean()
        error = -float(np.mean((predicted - target) ** 2))
        best = max(best, (error, predicted), key=lambda each: each[0])
    return best[1]


def measure(options: argparse.Namespace) -> Iterator[tuple[str, int, np.ndarray]]:
    """Yields the name and seed of each quantity, and its values for the judged captions."""
    from data_pipelines.records import Records  # It imports TensorFlow, which tables do not need.

    test = Records.open(options.work / "records").split("test")
    captions = [(c.key, int(i)) for c, i in zip(test.captions, test.caption_image, strict=True)]
    truths = people(options.flickr8k, test.image_keys, captions)
    chosen = truths.right.captions
    photos = truths.owner[chosen]
    right = truths.right.relevant
    yield "photo", 0, photos
    yield "right", 0, right
    yield "experts", 0, _experts(truths, chosen)
    yield "words", 0, np.array([-len(test.captions[c].text.split()) for c in chosen])
    with np.load(options.work / "vectors.npz") as arrays:
        own, train = arrays["test_captions"][chosen], arrays["train_captions"]
        yield "density", 0, density(own, train)
        yield "text", 0, regress(own.astype(np.float64), np.log(right), photos)
    for name in MODELS:
        for seed in SEEDS:
            with np.load(options.work / "scores" / f"{name}-{seed}.npz") as arrays:
                bank = arrays["test_i2t"][:, chosen]
                yield f"{name} sigma", seed, arrays["test_sigma"][chosen]
                yield f"{name} first", seed, arrays["test_scores"][:, chosen].max(axis=0)
                yield f"{name} bank", seed, bank.mean(axis=0)
                highest = np.partition(bank, -NEIGHBOURS, axis=0)[-NEIGHBOURS:]
                yield f"{name} bank_ten", seed, highest.mean(axis=0)


def _experts(truths: Truths, chosen: np.ndarray) -> np.ndarray:
    """The number of photos but the annotated one that experts call right, of some captions."""
    found = np.full(len(truths.owner), UNKNOWN)
    for (caption, photo), good in (truths.judged_experts or {}).items():
        found[caption] = max(found[caption], 0)
        found[caption] += bool(good) and photo != truths.owner[caption]
    return found[chosen]


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes all quantities."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--flickr8k", type=Path, required=True, help="folder of Flickr8K")
    options = add_paths(parser, RESULTS).parse_args(arguments)
    with options.results.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("name", "seed", "values"))
        for name, seed, values in measure(options):
            writer.writerow((name, seed, " ".join(f"{value:.6g}" for value in values)))


if __name__ == "__main__":
    main()
