"""Finds the photos of an index that fit a text, or are like a photo.

Several texts and photos are one query: a photo should fit them all. Each answer says how many of
the photos are to be believed, or that there is probably nothing (docs/how_to/search.md).

examples:
  keras-xmr search --index=saved_models/csv_pretrained/index "two dogs in the snow"
  keras-xmr search --index=INDEX "a dog" --not "a beach" --since=2021-06-01 --html=dogs.html
  keras-xmr search --index=INDEX --image=photo.jpg --json
  keras-xmr search --index=INDEX --queries=queries.txt
"""

from __future__ import annotations

import argparse
import json
import logging
import shlex
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from data_pipelines.errors import UserError
from data_pipelines.folders import check_folder
from data_pipelines.sources.text_files import lines_of
from keras_xmr.commands._options import add_index, one_of, whole
from keras_xmr.config.loader import ConfigError
from keras_xmr.program import program
from keras_xmr.run_folder import load_run

if TYPE_CHECKING:
    from keras_xmr.index import Query

_LOGGER = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what the command takes."""
    parser.add_argument("texts", nargs="*", metavar="TEXT", help="what the photos show")
    add_index(parser)
    parser.add_argument(
        "--image",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="a photo that they should be like; may be given several times",
    )
    parser.add_argument(
        "--not",
        action="append",
        default=[],
        dest="unlike",
        metavar="TEXT",
        help="what they should not show; may be given several times",
    )
    parser.add_argument(
        "--queries", type=Path, metavar="FILE", help="in place of TEXT: a file with one a line"
    )
    parser.add_argument(
        "--results",
        type=whole(1),
        default=10,
        metavar="N",
        help="how many are shown; 10 by default",
    )
    parser.add_argument("--folder", metavar="NAME", help="only photos in this folder of theirs")
    parser.add_argument("--since", type=_day, metavar="DAY", help="taken on or after YYYY-MM-DD")
    parser.add_argument("--until", type=_day, metavar="DAY", help="taken on or before YYYY-MM-DD")
    parser.add_argument(
        "--tag",
        action="append",
        default=[],
        metavar="TAG",
        help="only photos with this tag; may be given several times",
    )
    parser.add_argument(
        "--rerank",
        type=one_of("fast_reranking"),
        metavar="NAME",
        help="orders the first photos of a text anew: fast_reranking",
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="writes a page with the photos")
    parser.add_argument("--json", action="store_true", help="prints JSON in place of tables")


def run(arguments: argparse.Namespace) -> None:
    """Answers the queries."""
    from keras_xmr.index import Filters, PhotoIndex, Searcher
    from keras_xmr.index.pages import results_table, write_page

    if arguments.since and arguments.until and arguments.since > arguments.until:
        raise ConfigError(f"--since={arguments.since} is later than --until={arguments.until}")
    if arguments.html and arguments.html.is_dir():
        raise ConfigError(f"--html={arguments.html} is a folder; name a file, such as page.html")
    if arguments.html:
        check_folder(arguments.html.parent)
    if arguments.run:
        load_run(arguments.run)
    asked = list(_queries(arguments))
    filters = Filters(arguments.folder, arguments.since, arguments.until, tuple(arguments.tag))
    index = PhotoIndex.open(arguments.index)
    searcher = Searcher(index, arguments.run, compiled=len(asked) > 1)
    answers = [
        (title, searcher.search(query, arguments.results, filters, arguments.rerank))
        for title, query in asked
    ]
    if arguments.json:
        told = [{"query": title, **result.as_dict()} for title, result in answers]
        print(json.dumps(told, indent=1, ensure_ascii=False), flush=True)
    else:
        print("\n\n".join(results_table(*answer) for answer in answers), flush=True)
    if arguments.html:
        write_page(arguments.html, index, answers)
    if changes := index.changes():
        run = arguments.run or index.run
        command = ["index", f"--run={run}", f"--images={index.root}"]
        if arguments.index.resolve() != (run / "index").resolve():
            command.append(f"--index={arguments.index}")
        if index.backend != "exact":
            command.append(f"--backend={index.backend}")
        _LOGGER.warning("%s `%s %s` takes them over", changes, program(), shlex.join(command))


def _queries(arguments: argparse.Namespace) -> Iterator[tuple[str, Query]]:
    """Each query, and what it is called."""
    from keras_xmr.index import Query

    unlike = tuple(arguments.unlike)
    if arguments.queries is None:
        images = tuple(_bytes(path) for path in arguments.image)
        parts = [*arguments.texts, *(str(path) for path in arguments.image)]
        title = " + ".join(parts) + "".join(f", not {text}" for text in unlike)
        yield title, Query(texts=tuple(arguments.texts), images=images, unlike=unlike)
        return
    if arguments.texts or arguments.image:
        raise ConfigError("--queries takes the place of TEXT and --image")
    for text in _texts(arguments.queries):
        yield text, Query(texts=(text,), unlike=unlike)


def _texts(path: Path) -> list[str]:
    """The queries of a file, without those that cannot be searched for, which are named."""
    from keras_xmr.index import Query, QueryError

    texts, bad = [], []
    for number, line in enumerate(lines_of(_bytes(path).decode("utf-8-sig", "surrogateescape")), 1):
        if not (text := line.strip()):
            continue
        try:
            Query(texts=(text,)).check()
            texts.append(text)
        except QueryError as error:
            bad.append(f"{path}:{number}: {error}")
    if not texts:
        raise UserError(
            f"--queries: {bad[0] if bad else f'{path} is empty; write one query a line'}"
        )
    for message in bad:
        _LOGGER.warning("%s", message)
    if bad:
        _LOGGER.warning("%d of %d queries passed over", len(bad), len(bad) + len(texts))
    return texts


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no day; write 2021-06-30") from None
