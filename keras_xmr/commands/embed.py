"""Writes the embeddings of a folder of photos to a file, for a search engine of your own.

An .npz file has `paths`, the fingerprint of the model, and an array for each tensor of the
embedding, such as `mean` and `log_variance`; a .parquet file (which needs pyarrow) has them as
columns.

examples:
  keras-xmr embed my_photos --run=saved_models/csv_pretrained --output=embeddings.npz
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from data_pipelines.errors import UserError
from data_pipelines.folders import check_folder
from keras_xmr.commands._options import add_run_or_model, run_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what the command takes."""
    parser.add_argument("images", type=Path, metavar="FOLDER", help="the photos")
    add_run_or_model(parser)
    parser.add_argument(
        "--output", type=Path, required=True, metavar="FILE", help="something.npz or .parquet"
    )


def run(arguments: argparse.Namespace) -> None:
    """Embeds the photos."""
    from keras_xmr.index.photos import check_root

    # What is wrong with these is said before TensorFlow is imported.
    run = None if arguments.run is None else run_of(arguments)
    check_root(arguments.images)
    if arguments.output.suffix not in (".npz", ".parquet"):
        raise UserError(f"--output: {arguments.output} must end in .npz or .parquet")
    check_folder(arguments.output.parent)

    from keras_xmr.index.embed_folder import embed_folder

    found = embed_folder(run or run_of(arguments), arguments.images, arguments.output)
    for why in found.broken.values():
        print(f"passed over: {why}", file=sys.stderr)
    shapes = ", ".join(f"{name} {v.shape}" for name, v in found.arrays.items())
    print(f"{arguments.output}: {shapes} of {len(found.paths):,} photos", flush=True)
