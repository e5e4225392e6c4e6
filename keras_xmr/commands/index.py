"""Builds or updates the index of a folder of photos.

Only new and changed photos are embedded; an interrupted build is resumed. Broken photos are
reported and skipped. Prediction sets are calibrated on the validation split of the run
(docs/how_to/search.md).

examples:
  keras-xmr index --run=saved_models/csv_pretrained --images=my_photos/images
  keras-xmr index --run=saved_models/csv_pretrained --images=my_photos/images --tags=tags.csv
  keras-xmr index --model=clip_vit_base_patch32 --images=my_photos
  keras-xmr index --model=Xenova/clip-vit-base-patch32 --images=my_photos   # without TensorFlow
  keras-xmr index --index=saved_models/csv_pretrained/index   # by the model in the index
"""

from __future__ import annotations

import argparse
import logging
import shlex
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from keras_xmr.commands._options import (
    add_path,
    add_run_or_model,
    add_value,
    find_run,
    published,
)
from keras_xmr.commands._quiet import import_tensorflow
from keras_xmr.utils.errors import ConfigError
from keras_xmr.utils.files import check_folder
from keras_xmr.utils.messages import first_of
from keras_xmr.utils.program import next_commands, update_hint
from keras_xmr.utils.tables import on_one_line

if TYPE_CHECKING:
    from keras_xmr.search.embedder import Embedder
    from keras_xmr.search.index_build import BuildSummary, Calibrate
    from keras_xmr.search.photo_embedding import Store

_LOGGER = logging.getLogger(__name__)
_SHOWN = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add_run_or_model(parser, required=False)
    text = "folder of photos, searched recursively; default: the folder of the index to update"
    add_path(parser, "--images", "FOLDER", text)
    add_path(parser, "--index", "FOLDER", "folder of the index; default RUN/index")
    text = "exact (by default), or faiss_hnsw, faiss_ivf_pq and milvus, which are approximate"
    add_value(parser, "--backend", "NAME", text)
    text = "address of a Milvus server, such as http://localhost:19530; by default Milvus Lite"
    add_value(parser, "--uri", "URI", text, default="")
    text = "CSV with image,tag: tags to filter by; by default the tags of an earlier call stay"
    add_path(parser, "--tags", "FILE", text)
    text = "skip the calibration of prediction sets"
    parser.add_argument("--no-prediction-sets", action="store_true", help=text)


def run(arguments: argparse.Namespace) -> None:
    """Builds the index, and prints a summary."""
    from keras_xmr.search.backends import backend_class
    from keras_xmr.search.photo_table import check_root, read_tags

    # Errors in these are reported before a model is loaded.
    if arguments.run is None and arguments.model is None:
        _update(arguments)
        return
    if arguments.images is None:
        raise ConfigError("--images=FOLDER is missing: the folder of your photos")
    root = check_root(arguments.images)
    run = None if arguments.run is None else find_run(arguments)
    check_folder(arguments.index or run or Path("saved_models"))
    backend_class(arguments.backend or "exact")
    tags = None if arguments.tags is None else read_tags(arguments.tags)

    if (embedder := published(arguments)) is not None:
        path = arguments.index or Path("saved_models") / embedder.name / "index"
        _build(arguments, embedder, root, path, tags)
        return

    import_tensorflow()
    from data_pipelines.source_changes import data_change
    from keras_xmr.experiments.export.calibration import calibration_of
    from keras_xmr.experiments.export.run_embedder import run_embedder
    from keras_xmr.experiments.runs.configs import load_run
    from keras_xmr.search.photo_embedding import Store

    run = run or find_run(arguments)
    embedder, path = run_embedder(run, arguments.precision), arguments.index or run / "index"
    if change := data_change(load_run(run).data):
        _LOGGER.warning("%s. %s trains again", change, update_hint(run))
    calibrate = None if arguments.no_prediction_sets else calibration_of(run)
    _build(arguments, embedder, root, path, tags, calibrate, Store.of_embedder(embedder))


def _build(
    arguments: argparse.Namespace,
    embedder: Embedder,
    root: Path,
    path: Path,
    tags: dict[str, list[str]] | None,
    calibrate: Calibrate | None = None,
    store: Store | None = None,
) -> None:
    """Builds an index, and prints a summary."""
    from keras_xmr.search.index_build import build_index

    backend, uri = arguments.backend or "exact", arguments.uri
    summary = build_index(embedder, root, path, backend, tags, calibrate, uri, store=store)
    print("\n".join(summary_lines(summary, embedder.example)), flush=True)


def _update(arguments: argparse.Namespace) -> None:
    """Updates an index by its own embedder."""
    from keras_xmr.search import PhotoIndex
    from keras_xmr.search.embedder import Embedder
    from keras_xmr.search.photo_table import check_root, read_tags

    if arguments.index is None:
        raise ConfigError("one of --run, --model, or --index of an index to update is missing")
    with closing(PhotoIndex.open(arguments.index)) as index:
        root, backend, embedder = index.root, index.backend, Embedder.open(index.embedder_path)
    arguments.backend = arguments.backend or backend
    root = check_root(arguments.images or root)
    tags = None if arguments.tags is None else read_tags(arguments.tags)
    _build(arguments, embedder, root, arguments.index, tags)


def summary_lines(summary: BuildSummary, example: str = "") -> list[str]:
    """Returns the summary of a build; `example` is a query to try."""
    done = {"new": summary.added, "changed": summary.changed, "removed": summary.removed}
    counts = ", ".join(f"{count:,} {name}" for name, count in done.items() if count)
    photos = "photo" if summary.photos == 1 else "photos"
    lines = [f"{summary.photos:,} {photos} ({counts or 'nothing new'}) in {summary.path}"]
    if summary.duplicates:
        lines.append(f"near-duplicates of an earlier one: {summary.duplicates:,}")
    for text, names in (
        ("skipped, since they cannot be read", list(summary.broken.values())),
        ("damaged files of the index, replaced or removed", summary.damaged),
        ("in the tags, but not in the index", summary.tagged),
    ):
        lines += [f"{text}: {len(names):,}"] if names else []
        lines += [f"  {on_one_line(name)}" for name in first_of(list(map(str, names)), _SHOWN)]
    if not summary.photos:
        return lines
    index, query = shlex.quote(str(summary.path)), shlex.quote(example or "your query")
    return [*lines, *next_commands([f"search --index={index} {query}", f"serve --index={index}"])]
