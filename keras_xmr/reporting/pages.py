"""Pages of HTML that hold everything in one file."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Mapping
from dataclasses import replace

from keras_xmr.metrics.tables import Table

WIDE = """
.wide { overflow-x: auto; background: linear-gradient(to left, #fff 30px, #fff0 60px) right local,
  linear-gradient(to left, #bbb, #fff0 14px) right scroll; }
"""
"""CSS of what may be wider than a page: it is scrolled, and has a shadow where it goes on."""

ANSWERS = """
.answers .right img, li.right { border-color: #2a2; color: #171; }
li.right { font-weight: 600; }
.answers .true img, li.true { border-color: #2a2; color: #171; }
.answers .true img { border-style: dashed; }
"""
"""CSS of answers that were annotated, and of others that are true; not by colour alone."""

LEGEND = "Green: an annotated answer, in bold if it is a caption."
LEGEND_TRUE = "Green with dashes, or not bold: true, though nobody annotated it."
"""What the colours mean."""

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; margin: 0.5em 0 1.5em; font-size: 13px; }
td, th { padding: 0.25em 0.6em; border-bottom: 1px solid #ddd; text-align: right; }
td:first-child, th:first-child { text-align: left; position: sticky; left: 0; background: #fff; }
h2 { font-size: 19px; }
.verdict { font-size: 17px; }
th, td:nth-child(2) { white-space: nowrap; }
figure { display: inline-block; margin: 0 1em 1em 0; max-width: 100%; }
figure img { max-width: 100%; }
.gallery { display: flex; flex-wrap: wrap; gap: 1.5em; margin: 1em 0; }
.gallery figure { margin: 0; display: grid; align-content: start; }
figcaption { color: #444; font-size: 13px; width: 0; min-width: 100%; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.2em 1em; font-size: 13px; }
dt { font-weight: 600; }
dd { margin: 0; }
.note { color: #666; font-size: 13px; }
"""


POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
"""What a page may load: nothing but what is in it, whatever stands in a caption."""


def page(title: str, parts: Iterable[str], style: str = "") -> str:
    """A page.

    Args:
        title: Its title, as plain text.
        parts: What stands on it, as HTML.
        style: CSS beside that of all pages.
    """
    return (
        f"<!doctype html><meta charset='utf-8'>"
        f'<meta name="viewport" content="width=device-width">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f"<title>{html.escape(title)}</title>"
        f"<style>{WIDE}{_STYLE}{style}</style>{''.join(parts)}"
    )


def html_table(table: Table) -> str:
    """A table with its title as a heading, and the best of each column bold."""

    def row(cells: Iterable[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in cells) + "</tr>"

    def shown(place: int, cell: str) -> str:
        text = html.escape(cell)
        return f"<b>{text}</b>" if table.best.get(place) == cell else text

    body = "".join(row((shown(*c) for c in enumerate(cells)), "td") for cells in table.rows)
    head = row((html.escape(title).replace("\n", "<br>") for title in table.header), "th")
    return f'<h2>{html.escape(table.title)}</h2><div class="wide"><table>{head}{body}</table></div>'


def joined(table: Table) -> Table:
    """A table in which rows with the same figures are one, named by all of them."""
    names: dict[tuple[str, ...], list[str]] = {}
    for name, *cells in table.rows:
        names.setdefault(tuple(cells), []).append(name)
    rows = [[", ".join(own), *cells] for cells, own in names.items()]
    return replace(table, rows=rows)


def figure(png: bytes, name: str, see: str = "") -> str:
    """A picture; `name` says what it shows, and `see` below it what there is to see."""
    line = f"<figcaption>{html.escape(see)}</figcaption>" if see else ""
    image = f'<img src="{data_url(png, "image/png")}" alt="{html.escape(name)}">'
    return f"<figure>{image}{line}</figure>"


def gallery(found: Iterable[str]) -> str:
    """Pictures beside each other, as many as there is room for."""
    return f'<div class="gallery">{"".join(found)}</div>'


def definitions(meanings: Mapping[str, str]) -> str:
    """Words and what they mean, one below the other."""
    lines = (
        f"<dt>{html.escape(word)}</dt><dd>{html.escape(meaning)}</dd>"
        for word, meaning in meanings.items()
    )
    return f"<dl>{''.join(lines)}</dl>"


def data_url(content: bytes, kind: str) -> str:
    """A file as an address that holds it; `kind` is its MIME type."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
