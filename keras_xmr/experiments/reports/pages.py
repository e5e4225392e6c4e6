"""Pages of HTML that hold everything in one file, rendered from `templates/`."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

from jinja2 import Environment, PackageLoader

from keras_xmr.utils.tables import Table

TEMPLATES = Environment(loader=PackageLoader("keras_xmr.experiments.reports"), autoescape=True)
"""The templates; texts are escaped."""


def percent(fraction: float, digits: int = 1) -> str:
    """Returns a fraction in percent."""
    return f"{100 * fraction:.{digits}f} %"


TEMPLATES.filters["percent"] = percent


def explain(picture: str, *values: Any) -> str:
    """Returns the explanation below a kind of picture: a macro of `explanations.html`, with its
    values.
    """
    macros = TEMPLATES.get_template("explanations.html").module
    explanation: str = getattr(macros, picture)(*values)
    return explanation


def render(template: str, **values: Any) -> bytes:
    """Returns the page of a template, in UTF-8."""
    return TEMPLATES.get_template(template).render(values).encode("utf-8")


def joined(table: Table) -> Table:
    """Returns a table in which rows with the same figures are one, named by all of them."""
    names: dict[tuple[str, ...], list[str]] = {}
    for name, *cells in table.rows:
        names.setdefault(tuple(cells), []).append(name)
    rows = [[", ".join(equal), *cells] for cells, equal in names.items()]
    return replace(table, rows=rows)


def data_url(content: bytes, media_type: str) -> str:
    """Returns a data URL of a file; `media_type` is its MIME type."""
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"
