"""The page at `/`, and its style and script."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources
from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader

from keras_xmr.index import MAX_PARTS, MAX_TEXT
from keras_xmr.server.errors import NotFoundError
from keras_xmr.server.routes import TheService
from keras_xmr.server.service import Service

router = APIRouter(include_in_schema=False)

_TEMPLATES = Environment(loader=PackageLoader("keras_xmr.server"), autoescape=True)
_KINDS = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}


@router.get("/")
def page(service: TheService) -> HTMLResponse:
    """The page, with facts of the index."""
    return HTMLResponse(_TEMPLATES.get_template("page.html").render(**_facts(service)))


@router.get("/static/{name}")
def static(name: str) -> Response:
    """A file of the page."""
    if name not in _KINDS:
        raise NotFoundError("unknown page")
    # The page requests `?v=`, which changes with the file.
    return Response(
        _content(name), media_type=_KINDS[name], headers={"Cache-Control": "max-age=86400"}
    )


def _facts(service: Service) -> dict[str, Any]:
    index = service.index
    first_day, last_day = service.days()
    return {
        "photos": len(index),
        "name": index.run.name,
        "folders": [folder for folder in index.folders() if folder],
        "tags": index.tags(),
        "broken": len(index.broken()),
        "first_day": first_day,
        "last_day": last_day,
        "originals": service.settings.originals,
        "marks": service.settings.marks is not None,
        "attends": service.attends,
        "matcher": index.matcher,
        "matchers": service.matchers,
        "reranking": index.reranking,
        "max_text": MAX_TEXT,
        "max_parts": MAX_PARTS,
        "max_images": service.settings.max_images,
        "version": _version,
    }


@cache
def _content(name: str) -> bytes:
    return resources.files(__package__).joinpath("static", name).read_bytes()


def _version(name: str) -> str:
    """The address of a file of the page, which changes with the file."""
    return f"/static/{name}?v={hashlib.sha256(_content(name)).hexdigest()[:12]}"
