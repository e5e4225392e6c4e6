"""Makes an index of a folder of photos, or brings it up to date.

Only new and changed photos are looked at by the model; what was finished before a kill is kept.
Broken photos are named and passed over. On the validation split of the run it is calibrated how
many of the photos that a search finds are to be believed (docs/how_to/search.md).

examples:
  keras-xmr index --run=saved_models/csv_pretrained --images=my_photos
  keras-xmr index --run=saved_models/csv_pretrained --images=my_photos --tags=tags.csv
  keras-xmr index --model=clip_vit_base_patch32 --images=my_photos
"""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from data_pipelines.folders import check_folder
from data_pipelines.tables import on_one_line
from keras_xmr.commands._options import add_run_or_model, run_of
from keras_xmr.program import program

if TYPE_CHECKING:
    from keras_xmr.index.build import Report

_SHOWN = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what the command takes."""
    add_run_or_model(parser)
    parser.add_argument(
        "--images",
        type=Path,
        required=True,
        metavar="FOLDER",
        help="the photos, with all folders in it",
    )
    parser.add_argument(
        "--index", type=Path, metavar="FOLDER", help="where it goes; <run>/index by default"
    )
    parser.add_argument(
        "--backend",
        default="exact",
        metavar="NAME",
        help="exact (the default), or faiss_hnsw, faiss_ivf_pq and milvus, which are approximate",
    )
    parser.add_argument(
        "--uri",
        default="",
        metavar="URI",
        help="a server of Milvus, such as http://localhost:19530; without it Milvus Lite",
    )
    parser.add_argument(
        "--tags",
        type=Path,
        metavar="FILE",
        help="CSV with image,tag: tags to filter by; those of an earlier call stay without it",
    )
    parser.add_argument(
        "--no-answer-sets", action="store_true", help="does not calibrate how many are right"
    )


def run(arguments: argparse.Namespace) -> None:
    """Builds the index, and says what is in it."""
    from keras_xmr.index.backends import backend_class
    from keras_xmr.index.photos import check_root
    from keras_xmr.index.tags import read_tags

    # What is wrong with these is said before TensorFlow is imported.
    check_root(arguments.images)
    run = None if arguments.run is None else run_of(arguments)
    check_folder(arguments.index or run or Path("saved_models"))
    backend_class(arguments.backend)
    if arguments.tags is not None:
        read_tags(arguments.tags)

    from keras_xmr.index.build import build_index

    report = build_index(
        run or run_of(arguments),
        arguments.images,
        arguments.index,
        backend=arguments.backend,
        tags=arguments.tags,
        calibrate=not arguments.no_answer_sets,
        uri=arguments.uri,
    )
    print("\n".join(report_lines(report)), flush=True)


def report_lines(report: Report) -> list[str]:
    """What was done to an index, for people."""
    done = {"new": report.added, "changed": report.changed, "removed": report.removed}
    counts = ", ".join(f"{count:,} {name}" for name, count in done.items() if count)
    photos = "photo" if report.photos == 1 else "photos"
    lines = [f"{report.photos:,} {photos} ({counts or 'nothing new'}) in {report.path}"]
    if report.duplicates:
        lines.append(f"near-duplicates of an earlier one: {report.duplicates:,}")
    if report.broken:
        lines.append(f"passed over, since they cannot be read: {len(report.broken):,}")
        lines += _some(list(report.broken.values()))
    if report.damaged:
        lines.append(f"damaged files of the index, replaced or taken out: {len(report.damaged):,}")
        lines += _some([str(path) for path in report.damaged])
    if report.tagged:
        lines.append(f"named in the tags, but no photos of the index: {len(report.tagged):,}")
        lines += _some(report.tagged)
    index, query = shlex.quote(str(report.path)), shlex.quote(report.example or "what you look for")
    lines.append(f"try next: {program()} search --index={index} {query}")
    return lines


def _some(told: list[str]) -> list[str]:
    more = [f"  and {len(told) - _SHOWN:,} more"] if len(told) > _SHOWN else []
    return [*(f"  {on_one_line(each)}" for each in told[:_SHOWN]), *more]
