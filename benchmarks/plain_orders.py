"""What orders reach on the test scenes that look at no query: rows beside those of models.

The shortest captions first takes no model; for captions as queries it leaves a random order. The
vaguest captions first, and the images first that most captions are true of, know the truth, which
no model does. What a model has learned of queries it has above these.

    python benchmarks/plain_orders.py data/scenes
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import scipy.sparse

from data_pipelines.records import Records
from keras_xmr.evaluation.uncertainty.assessment import few_words
from keras_xmr.metrics import retrieval

COLUMNS = ("i2t_recall_1", "i2t_r_precision", "t2i_recall_1", "t2i_r_precision", "rsum")


def shortest_first(texts: Sequence[str], images: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores (images, captions) of each direction: the shortest captions first, whatever the image.

    Ties, and images as answers, are in a random order.
    """
    ties = np.random.default_rng(0).random((images, len(texts))) / 2
    return few_words(texts)[None, :] + ties, ties


def reached(texts: Sequence[str], truth: scipy.sparse.csr_array) -> dict[str, dict[str, float]]:
    """Metrics of each order by the truth; ties are broken at random.

    Args:
        texts: The captions.
        truth: What is true, (images, captions).
    """
    shortest = shortest_first(texts, truth.shape[0])
    ties = shortest[1]
    true_of, true_captions = (np.asarray(truth.sum(axis=axis)) for axis in (0, 1))
    vaguest = true_of[None, :] + ties, true_captions[:, None] + ties
    return {
        "the shortest first": retrieval(shortest, truth),
        "the vaguest first": retrieval(vaguest, truth),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints rows in Markdown."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("records", type=Path, help="the records of the scenes")
    records = Records.open(parser.parse_args(arguments).records)
    path = records.truth("test")
    if path is None:
        parser.error(f"{records} does not know all that is true")
    truth = scipy.sparse.csr_array(scipy.sparse.load_npz(path))
    for name, found in reached(records.split("test").texts, truth).items():
        cells = " | ".join(f"{100 * found[column]:.1f}" for column in COLUMNS)
        print(f"| {name} | {cells} |")


if __name__ == "__main__":
    main()
