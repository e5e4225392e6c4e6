"""Writes what is true of the training scenes, for `data.training_judgements`.

The annotated pairs of a batch are a few of those that match. A training that knows them all shows
what the others, taken for negatives, cost a loss. The file has a line for each pair that matches.

    python benchmarks/true_judgements.py data/scenes truth.csv
    python main.py train --config=scenes_vsepp --set data.training_judgements=truth.csv \\
        --set name=scenes_vsepp_truth
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import scipy.sparse
from tqdm import tqdm

from data_pipelines.records import Records


def main() -> None:
    """Writes the file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("records", type=Path, help="the records of the scenes")
    parser.add_argument("file", type=Path, help="the CSV file to write")
    options = parser.parse_args()
    records = Records.open(options.records)
    split, path = records.split("train"), records.truth("train")
    if path is None:
        parser.error(f"{options.records} does not know all that is true")
    truth = scipy.sparse.csr_array(scipy.sparse.load_npz(path))
    captions = [caption.key for caption in split.captions]
    with options.file.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("image", "caption", "grade"))
        for row, image in enumerate(tqdm(split.image_keys, unit="images")):
            own = truth.indices[truth.indptr[row] : truth.indptr[row + 1]]
            writer.writerows((image, captions[number], 1) for number in own)


if __name__ == "__main__":
    main()
