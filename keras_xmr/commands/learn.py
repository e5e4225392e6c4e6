"""Improves the ranking of an index by relevance judgements ("marks") of users of its search page.

The marks are read from judgements.csv in the folder of the index. Photos are not
embedded again: learned.npz in the folder of the index, which search and serve read, changes the
queries. Cross-validation over the marked queries chooses the strength of the change. Without marks,
or without a clear improvement, searches are those of the model.

examples:
  keras-xmr learn --index=saved_models/csv_pretrained/index
  keras-xmr learn --index=saved_models/csv_pretrained/index --undo
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from keras_xmr.commands._options import add_index, add_path
from keras_xmr.config.loader import ConfigError
from keras_xmr.config.messages import first_of
from keras_xmr.config.program import program
from keras_xmr.runs.folder import load_run
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.tables import on_one_line

if TYPE_CHECKING:
    from keras_xmr.search.marked import Report

_SHOWN = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    add_index(parser)
    add_path(
        parser, "--marks", "FILE", "CSV with image,caption,grade (default INDEX/judgements.csv)"
    )
    text = "remove the learned change; the marks are kept"
    parser.add_argument("--undo", action="store_true", help=text)


def run(arguments: argparse.Namespace) -> None:
    """Learns a change, or removes it."""
    from keras_xmr.search import PhotoIndex, Searcher
    from keras_xmr.search.learning import MARKS, forget
    from keras_xmr.search.marked import learn

    if arguments.undo and arguments.marks:
        raise ConfigError("--undo reads no marks; remove --marks")
    if arguments.run:
        load_run(arguments.run)
    index = PhotoIndex.open(arguments.index)
    if arguments.undo:
        was_there = forget(index.path)
        done = "removed; searches are those of the unchanged model"
        print(done if was_there else "nothing was learned", flush=True)
        return
    marks = arguments.marks or arguments.index / MARKS
    if not marks.is_file():
        raise UserError(
            f"{marks} does not exist: mark photos as right and wrong on the page of "
            f"`{program()} serve`, or name a file with --marks"
        )
    report = learn(index, Searcher(index, arguments.run).model, marks)
    print("\n".join(_lines(report)), flush=True)
    if report.is_learned:
        if index.verdict is not None:
            print("estimated counts of relevant photos do not use marks", flush=True)
        undo = shlex.join(["learn", f"--index={arguments.index}", "--undo"])
        print(f"`{program()} {undo}` removes the change", flush=True)


def _lines(report: Report) -> Iterator[str]:
    if report.unknown:
        names = ", ".join(map(on_one_line, first_of(report.unknown, _SHOWN)))
        yield f"ignored, photos that are not in the index: {names}"
    choice = report.choice
    if choice is None:
        yield "no marks of photos of the index: searches are those of the unchanged model"
        return
    yield (
        f"{report.marks:,} marks ({report.right:,} right) of {report.queries:,} "
        f"{'query' if report.queries == 1 else 'queries'}"
    )
    if choice.queries < 2:
        yield (
            "too few to learn from: mark right and wrong photos of two queries or more; searches "
            "are those of the unchanged model"
        )
        return
    if report.is_learned:
        yield (
            "learned; pairs of a right and a wrong photo in order, of held-out queries: "
            f"{100 * choice.before:.1f} -> {100 * choice.after:.1f} %"
        )
    else:
        yield (
            "nothing learned: on held-out queries no change is significantly better than the model,"
            f" which has {100 * choice.before:.1f} % of pairs of a right and a wrong photo in order"
        )
