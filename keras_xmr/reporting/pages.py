"""Pages of HTML that hold everything in one file."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Mapping
from dataclasses import replace

from keras_xmr.reporting.table import Table

WIDE = """
.wide { overflow-x: auto; background:
  linear-gradient(to left, var(--paper, #fff) 30px, #fff0 60px) right local,
  linear-gradient(to left, #888, #fff0 14px) right scroll; }
"""
"""CSS of what may be wider than a page: it is scrolled, and has a shadow where it goes on."""

ANSWERS = """
.answers .right img, li.right { border-color: var(--edge); color: var(--right); }
li.right { font-weight: 600; }
.answers .true img, li.true { border-color: var(--edge); color: var(--right); }
.answers .true img { border-style: dashed; }
"""
"""CSS of answers that were annotated, and of others that are true; not by colour alone."""

LEGEND = "Green: an annotated answer, in bold if it is a caption."
LEGEND_TRUE = "Green with dashes, or not bold: true, though nobody annotated it."
"""What the colours mean."""

_STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1b1f24; --quiet: #59616c; --line: #d8dce2;
  --edge: #2a2; --right: #171; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #15181c; --ink: #e8ebef; --quiet: #a3acb8; --line: #363d46; --edge: #3b3;
    --right: #7d7; }
  figure img { filter: brightness(0.88); border-radius: 6px; }
}
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 2em auto; padding: 0 1em;
  background: var(--paper); color: var(--ink); overflow-wrap: anywhere; }
table { border-collapse: collapse; margin: 0.5em 0; font-size: 13px; overflow-wrap: normal; }
td, th { padding: 0.25em 0.6em; border-bottom: 1px solid var(--line); text-align: right; }
td:first-child, th:first-child { text-align: left; position: sticky; left: 0;
  background: var(--paper); }
h2 { font-size: 19px; }
.verdict { font-size: 17px; margin: 0.4em 0; }
th, td:nth-child(2) { white-space: nowrap; }
figure { display: inline-block; margin: 0 1em 1em 0; max-width: 100%; }
figure img { max-width: 100%; }
.gallery { display: flex; flex-wrap: wrap; gap: 1.5em; margin: 1em 0; }
.gallery figure { margin: 0; display: grid; align-content: start; }
figcaption { color: var(--quiet); font-size: 13px; width: 0; min-width: 100%; }
dl { display: grid; grid-template-columns: fit-content(40%) 1fr; gap: 0.2em 1em; font-size: 13px; }
dt { font-weight: 600; }
dd { margin: 0; }
.note { color: var(--quiet); font-size: 13px; }
details { margin: 0 0 1.5em; }
summary { cursor: pointer; color: var(--quiet); font-size: 13px; }
summary h2 { display: inline; color: var(--ink); }
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
        f"<!doctype html><html lang='en'><meta charset='utf-8'>"
        f'<meta name="viewport" content="width=device-width">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f"<title>{html.escape(title)}</title>"
        f"<style>{WIDE}{_STYLE}{style}</style><main>{''.join(parts)}</main>"
    )


def html_table(table: Table) -> str:
    """A table with its title as a heading, and the best of each column bold."""

    def row(cells: Iterable[str], tag: str) -> str:
        # An empty cell is the heading of nothing.
        tags = ((tag if cell else "td", cell) for cell in cells)
        return "<tr>" + "".join(f"<{own}>{cell}</{own}>" for own, cell in tags) + "</tr>"

    def shown(place: int, cell: str) -> str:
        text = html.escape(cell)
        return f"<b>{text}</b>" if table.best.get(place) == cell else text

    body = "".join(row((shown(*c) for c in enumerate(cells)), "td") for cells in table.rows)
    head = row((html.escape(title).replace("\n", "<br>") for title in table.header), "th")
    title = html.escape(table.title)
    region = f'class="wide" role="region" tabindex="0" aria-label="{title}"'
    return f"<h2>{title}</h2><div {region}><table>{head}{body}</table></div>"


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


def folded(summary: str, content: str, is_open: bool | None = None) -> str:
    """Something that is shown once its summary is pressed.

    Args:
        summary: As plain text.
        content: As HTML.
        is_open: None if it explains something; else the summary is a heading, and it says whether
            the content is shown from the beginning.
    """
    title = html.escape(summary)
    heading = title if is_open is None else f"<h2>{title}</h2>"
    return f"<details{' open' * bool(is_open)}><summary>{heading}</summary>{content}</details>"


def data_url(content: bytes, kind: str) -> str:
    """A file as an address that holds it; `kind` is its MIME type."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
