"""Searches the photos of an index by texts and photos.

Several texts and photos are one query: a photo should match all of them (docs/how_to/search.md).

examples:
  keras-xmr search "two dogs in the snow"   # by the only index in saved_models
  keras-xmr search --index=INDEX "a dog" --not "a beach" --since=2021-06-01 --html=dogs.html
  keras-xmr search --index=INDEX --image=photo.jpg --json
  keras-xmr search --index=INDEX --queries=queries.txt
  keras-xmr search --server=http://127.0.0.1:8000 "a dog"   # at once, while `serve` runs
"""

from __future__ import annotations

import argparse
import json
import logging
import shlex
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from data_pipelines.photo_files import UnreadableError
from keras_xmr.commands._options import (
    add_index,
    add_list,
    add_path,
    add_value,
    find_index,
    integer_from,
    known_indexes,
)
from keras_xmr.utils.errors import ConfigError, UserError
from keras_xmr.utils.files import check_folder, lines_of, user_path
from keras_xmr.utils.program import program

if TYPE_CHECKING:
    from keras_xmr.search import Query, SearchResult

_LOGGER = logging.getLogger(__name__)

_FEW = 4
"""Maximum number of queries for which the model is loaded as it is."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("texts", nargs="*", metavar="TEXT", help="description of the photos")
    text = "instead of --index: http://HOST:PORT of `serve`, which has loaded the model"
    add_value(add_index(parser), "--server", "ADDRESS", text)
    add_list(
        parser, "--image", "FILE", "query photo, which results should resemble", type=user_path
    )
    add_list(parser, "--not", "TEXT", "description of what results should not show", dest="unlike")
    add_path(parser, "--queries", "FILE", "file with one query per line (instead of TEXT)")
    text = "number of results; default 10"
    add_value(parser, "--results", "N", text, type=integer_from(1), default=10)
    add_value(parser, "--folder", "NAME", "only photos below this subfolder")
    add_value(parser, "--since", "DAY", "taken on or after YYYY-MM-DD", type=_day)
    add_value(parser, "--until", "DAY", "taken on or before YYYY-MM-DD", type=_day)
    add_list(parser, "--tag", "TAG", "only photos with this tag")
    add_path(parser, "--html", "FILE", "also write a page with the photos")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


def run(arguments: argparse.Namespace) -> None:
    """Answers the queries."""
    if arguments.since and arguments.until and arguments.since > arguments.until:
        raise ConfigError(f"--since={arguments.since} is later than --until={arguments.until}")
    address = arguments.server or _running_server(arguments)
    if address:
        _print(_answers_of_server(arguments, address), arguments.json)
        return

    from keras_xmr.commands._results_page import write_page
    from keras_xmr.search import Filters, PhotoIndex, Searcher

    if arguments.html and arguments.html.is_dir():
        raise ConfigError(f"--html={arguments.html} is a folder; name a file, such as page.html")
    if arguments.html:
        check_folder(arguments.html.parent)
    queries = list(_queries(arguments))
    filters = Filters(arguments.folder, arguments.since, arguments.until, tuple(arguments.tag))
    path = find_index(arguments)
    index = PhotoIndex.open(path)
    searcher = Searcher(index, few_texts=len(queries) <= _FEW)
    with ThreadPoolExecutor(1) as pool:
        changes = pool.submit(index.changes)
        answers = [
            (title, searcher.search(query, arguments.results, filters)) for title, query in queries
        ]
    _print(answers, arguments.json)
    if arguments.html:
        write_page(arguments.html, index, answers)
    if changed := changes.result():
        command = shlex.join(["index", f"--index={path}"])
        _LOGGER.warning("%s To update the index: `%s %s`", changed, program(), command)


def _running_server(arguments: argparse.Namespace) -> str:
    """Returns the address of the only server that runs for an index in saved_models; may be empty.

    A server answers at once, since it has loaded the model.
    """
    from keras_xmr.search.server.running import server_address

    named = (arguments.index, arguments.image, arguments.html)
    if any(named):
        return ""
    servers = [server_address(index) for index in known_indexes()]
    running = [address for address in servers if address]
    return running[0] if len(running) == 1 else ""


def _answers_of_server(
    arguments: argparse.Namespace, address: str
) -> list[tuple[str, SearchResult]]:
    """Returns the results of a running server for the queries."""
    from pydantic import TypeAdapter, ValidationError

    from keras_xmr.search import SearchResult
    from keras_xmr.search.server.running import send_search

    address = address.rstrip("/")
    if not address.startswith(("http://", "https://")):
        raise ConfigError(f"--server={address}: use an address such as http://127.0.0.1:8000")
    needing_index = {"--image": arguments.image, "--html": arguments.html}
    for option, value in needing_index.items():
        if value:
            raise ConfigError(f"{option} excludes --server; use --index")
    body = {
        "count": arguments.results,
        "folder": arguments.folder or "",
        "since": arguments.since and arguments.since.isoformat(),
        "until": arguments.until and arguments.until.isoformat(),
        "tags": arguments.tag,
    }
    results, answers = TypeAdapter(SearchResult), []
    for title, query in _queries(arguments):
        query.check()
        texts = {"texts": query.texts, "unlike": query.unlike}
        answer = send_search(address, body | texts)
        try:
            answers.append((title, results.validate_python(answer)))
        except ValidationError:
            raise UserError(f"{address} is not a server of this version of keras_xmr") from None
    return answers


def _print(answers: Sequence[tuple[str, SearchResult]], as_json: bool) -> None:
    from keras_xmr.commands._results_page import results_table

    if as_json:
        results = [{"query": title, **asdict(result)} for title, result in answers]
        print(json.dumps(results, indent=1, ensure_ascii=False), flush=True)
    else:
        print("\n\n".join(results_table(*answer) for answer in answers), flush=True)


def _queries(arguments: argparse.Namespace) -> Iterator[tuple[str, Query]]:
    """Yields each query with its title."""
    from keras_xmr.search import Query

    unlike = tuple(arguments.unlike)
    if arguments.queries is None:
        images = tuple(_image(path) for path in arguments.image)
        positive = [*arguments.texts, *(str(path) for path in arguments.image)]
        title = " + ".join(positive) + "".join(f", not {text}" for text in unlike)
        yield title, Query(texts=tuple(arguments.texts), images=images, unlike=unlike)
        return
    if arguments.texts or arguments.image:
        raise ConfigError("--queries excludes TEXT and --image; use one of them")
    for text in _texts(arguments.queries):
        yield text, Query(texts=(text,), unlike=unlike)


def _texts(path: Path) -> list[str]:
    """Returns the queries of a file; invalid ones are skipped with a warning."""
    from keras_xmr.search import Query, QueryError

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
            f"--queries: {bad[0] if bad else f'{path} is empty; write one query per line'}"
        )
    for message in bad:
        _LOGGER.warning("%s", message)
    if bad:
        _LOGGER.warning("%d of %d queries skipped", len(bad), len(bad) + len(texts))
    return texts


def _image(path: Path) -> bytes:
    """Returns the bytes of an image file, which can be decoded."""
    from data_pipelines.pixels import read_pixels

    data = _bytes(path)
    try:
        read_pixels(data, str(path))
    except UnreadableError as error:
        raise UserError(f"--image: {error}") from None
    return data


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"invalid date {text!r}: use YYYY-MM-DD") from None
