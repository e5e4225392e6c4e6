"""Writes the embeddings of a folder of photos to a file, for other search engines.

An .npz file has `paths`, the fingerprint of the model, and an array for each tensor of the
embedding, such as `mean` and `log_variance`; a .parquet file (which needs pyarrow) has them as
columns.

examples:
  keras-xmr embed my_photos --run=saved_models/csv_pretrained --output=embeddings.npz
"""

from __future__ import annotations

import argparse
import sys

from keras_xmr.commands._options import add_path, add_run_or_model, find_run, published
from keras_xmr.commands._quiet import import_tensorflow
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.files import check_folder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add_path(parser, "images", "FOLDER", "folder of photos, searched recursively")
    add_run_or_model(parser)
    add_path(parser, "--output", "FILE", "output file, .npz or .parquet", required=True)


def run(arguments: argparse.Namespace) -> None:
    """Embeds the photos."""
    from keras_xmr.search.photo_table import check_root

    # Errors in these are reported before a model is loaded.
    run = None if arguments.run is None else find_run(arguments)
    check_root(arguments.images)
    if arguments.output.suffix not in (".npz", ".parquet"):
        raise UserError(f"--output: {arguments.output} must end in .npz or .parquet")
    check_folder(arguments.output.parent)

    from keras_xmr.search.photo_embedding import embed_folder

    if (embedder := published(arguments)) is None:
        import_tensorflow()
        from keras_xmr.experiments.export.run_embedder import run_embedder

        embedder = run_embedder(run or find_run(arguments), arguments.precision)
    embedded = embed_folder(embedder, arguments.images, arguments.output)
    for reason in embedded.broken.values():
        print(f"skipped: {reason}", file=sys.stderr)
    shapes = ", ".join(f"{name} {v.shape}" for name, v in embedded.arrays.items())
    print(f"{arguments.output}: {shapes} of {len(embedded.paths):,} photos", flush=True)
