"""What a search has found, for the terminal and as a page."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from pathlib import Path

from data_pipelines.errors import UserError
from data_pipelines.files import atomic_write
from data_pipelines.tables import table
from keras_xmr.index.gallery import PhotoIndex
from keras_xmr.index.query import Hit, SearchResult
from keras_xmr.reporting.pages import data_url, page

Titled = tuple[str, SearchResult]
"""A query as it was asked, and what it found."""

_STYLE = """
.hits { display: flex; flex-wrap: wrap; gap: 14px; }
.hit { width: 200px; margin: 0; font-size: 12px; overflow-wrap: anywhere; }
.hit img { display: block; max-width: 200px; max-height: 200px; }
.answer { font-weight: 600; }
"""


def results_table(title: str, result: SearchResult) -> str:
    """What was found, as a table for the terminal."""
    has_days = any(hit.taken for hit in result.hits)
    rows = [
        [
            *(hit.path, f"{hit.score:.3f}", *_percent(hit), *_mark(hit)),
            *[hit.taken[:10]] * has_days,
            _like(hit),
        ]
        for hit in result.hits
    ]
    has_chances = any(hit.probability is not None for hit in result.hits)
    is_known = any(hit.right is not None for hit in result.hits)
    header = [
        "photo",
        "score",
        *["match"] * has_chances,
        *["right"] * is_known,
        *["taken"] * has_days,
        "",
    ]
    found = [table(header, rows), ""] if rows else []
    return "\n".join([title, "", *found, *lines(result)])


def lines(result: SearchResult) -> list[str]:
    """All that is said of a result beside its photos, in sentences."""
    found = [result.answer.sentence] if result.answer and result.answer.sentence else []
    if result.unknown_words:
        found.append(f"Words that the model does not know: {', '.join(result.unknown_words)}.")
    if result.uncertainty is not None:
        found.append(
            f"The query is more uncertain than {result.uncertainty:.0f} % of the captions of "
            "training."
        )
    return [*found, *result.notes]


def write_page(path: Path, index: PhotoIndex, answers: Sequence[Titled]) -> None:
    """Writes a page that holds small versions of the photos, and loads nothing.

    Args:
        path: The file.
        index: Where the photos are.
        answers: What is on the page.
    """
    parts = (part for title, result in answers for part in _parts(index, title, result))
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, page("Search", parts, _STYLE).encode("utf-8", "surrogateescape"))


def _parts(index: PhotoIndex, title: str, result: SearchResult) -> Iterable[str]:
    yield f"<h2>{html.escape(title)}</h2>"
    for number, line in enumerate(lines(result)):
        is_answer = number == 0 and result.answer is not None and line == result.answer.sentence
        kind = "answer" if is_answer else "note"
        yield f'<p class="{kind}">{html.escape(line)}</p>'
    yield '<div class="hits">'
    for hit in result.hits:
        yield _figure(index, hit)
    yield "</div>"


def _figure(index: PhotoIndex, hit: Hit) -> str:
    name = html.escape(hit.path)
    try:
        small = f'<img src="{data_url(index.thumbnail(hit.id, 200), "image/jpeg")}" alt="{name}">'
    except UserError as error:
        small = f"<p>{html.escape(str(error))}</p>"
    match = [f"match {part}" for part in _percent(hit)]
    told = [f"score {hit.score:.3f}", *match, hit.taken[:10], _like(hit), *hit.tags]
    text = html.escape(", ".join(part for part in told if part))
    return f'<figure class="hit">{small}<figcaption>{name}<br>{text}</figcaption></figure>'


def _percent(hit: Hit) -> list[str]:
    return [] if hit.probability is None else [f"{100 * hit.probability:.1f} %"]


def _mark(hit: Hit) -> list[str]:
    return [] if hit.right is None else [f"{100 * hit.right:.0f} %"]


def _like(hit: Hit) -> str:
    return "" if hit.duplicate_of is None else "near-duplicate"
