"""Results of a search, for the terminal and as a page.

Templates are imported for a page alone, since most searches print.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from keras_xmr.search.photo_index import PhotoIndex
from keras_xmr.search.query import Hit, SearchResult
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.files import atomic_write
from keras_xmr.utils.tables import table

Titled = tuple[str, SearchResult]
"""The title of a query and its result."""


def results_table(title: str, result: SearchResult) -> str:
    """Formats a result as a table for the terminal."""
    hits = result.hits
    columns = {
        "photo": [hit.path for hit in hits],
        "score": [f"{hit.score:.3f}" for hit in hits],
        "match": [cell for hit in hits for cell in _percent(hit)],
        "taken": [hit.taken[:10] for hit in hits] if any(hit.taken for hit in hits) else [],
        "": [_like(hit) for hit in hits],
    }
    shown = {name: cells for name, cells in columns.items() if cells}
    rows = list(map(list, zip(*shown.values(), strict=True)))
    return "\n".join([title, "", *([table(list(shown), rows), ""] if hits else []), *lines(result)])


def lines(result: SearchResult) -> list[str]:
    """Returns all sentences on a result."""
    notes = []
    if result.unknown_words:
        notes.append(f"Words that the model does not know: {', '.join(result.unknown_words)}.")
    if untrained := [w for w in result.untrained_words if w.lower() not in result.unknown_words]:
        notes.append(f"No training caption has {', '.join(untrained)}.")
    return [*notes, *result.notes]


def write_page(path: Path, index: PhotoIndex, answers: Sequence[Titled]) -> None:
    """Writes a page with small versions of the photos, which loads nothing.

    Args:
        path: The file.
        index: The index of the photos.
        answers: The results on the page.
    """
    shown = [
        (title, lines(result), [_figure(index, hit) for hit in result.hits])
        for title, result in answers
    ]
    from keras_xmr.experiments.reports.pages import TEMPLATES

    page = TEMPLATES.get_template("search_results.html").render(title="Search", answers=shown)
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, page.encode("utf-8", "surrogateescape"))


def _figure(index: PhotoIndex, hit: Hit) -> dict[str, str]:
    """Returns the values of a photo on the page."""
    from keras_xmr.experiments.reports.pages import data_url

    image = problem = ""
    try:
        image = data_url(index.thumbnail(hit.id, 200), "image/jpeg")
    except UserError as error:
        problem = str(error)
    match = [f"match {cell}" for cell in _percent(hit)]
    facts = [f"score {hit.score:.3f}", *match, hit.taken[:10], _like(hit), *hit.tags]
    return {
        "path": hit.path,
        "image": image,
        "problem": problem,
        "facts": ", ".join(filter(None, facts)),
    }


def _percent(hit: Hit) -> list[str]:
    return [] if hit.probability is None else [f"{100 * hit.probability:.1f} %"]


def _like(hit: Hit) -> str:
    return "" if hit.duplicate_of is None else "near-duplicate"
