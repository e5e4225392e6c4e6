"""Routes of the server: JSON, and the page at `/`."""

from __future__ import annotations

import asyncio
import hashlib
from functools import cache
from importlib import resources
from mimetypes import guess_type
from typing import Annotated, Any

from fastapi import APIRouter, Depends, File, Form, Path, Query, Request, Response, UploadFile
from fastapi.responses import FileResponse, HTMLResponse
from jinja2 import Environment, PackageLoader
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from keras_xmr.search import MAX_PARTS, MAX_TEXT
from keras_xmr.search.server.requests import (
    NotFoundError,
    PhotosRequest,
    SampleRequest,
    SearchRequest,
    StrictRoute,
    error_response,
    parse_search,
)
from keras_xmr.search.server.service import Service

_LARGE = 1600

router = APIRouter(route_class=StrictRoute)


def get_service(request: Request) -> Service:
    """Returns the service of the application of a request."""
    service: Service = request.app.state.service
    return service


class OriginalFile(FileResponse):
    """A file; errors of the `Range` header are JSON, as all others are."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: dict[str, str] = {}
        status = 0

        async def send_on(message: Message) -> None:
            nonlocal status, headers
            if message["type"] == "http.response.start":
                status, headers = message["status"], dict(Headers(raw=message["headers"]))
            if status < 400:
                await send(message)

        await super().__call__(scope, receive, send_on)
        if status >= 400:
            response = error_response(status, "the Range header names no bytes of this file")
            response.headers.update({n: v for n, v in headers.items() if n == "content-range"})
            await response(scope, receive, send)


TheService = Annotated[Service, Depends(get_service)]
Id = Annotated[int, Path(ge=0, lt=2**63)]


@router.get("/search")
def search_by_address(
    service: TheService, request: Annotated[SearchRequest, Query()]
) -> dict[str, Any]:
    """Searches by texts and photos of the index: /search?texts=two+dogs&count=5."""
    return service.search(request)


@router.post("/search")
def search(service: TheService, request: SearchRequest) -> dict[str, Any]:
    """Searches by texts and photos of the index."""
    return service.search(request)


@router.get("/similar/{id_}")
def similar_to_photo(
    service: TheService, id_: Id, request: Annotated[SampleRequest, Query()]
) -> dict[str, Any]:
    """Returns photos that are similar to a photo of the index."""
    return service.search(SearchRequest(ids=(id_,), **request.model_dump()))


@router.post("/similar")
async def similar_to_images(
    service: TheService,
    images: Annotated[list[UploadFile], File()],
    query: Annotated[str, Form()] = "",
) -> dict[str, Any]:
    """Finds photos that are similar to image files; `query` has the rest as JSON of /search."""
    return await asyncio.wrap_future(service.search_by_uploads(parse_search(query), images))


@router.get("/photos")
def photos(service: TheService, request: Annotated[PhotosRequest, Query()]) -> dict[str, Any]:
    """Returns photos, the newest first: `count` of `total`, and `next` for the others."""
    return service.photos(request)


@router.get("/photos/{id_}")
def photo(service: TheService, id_: Id) -> Response:
    """Returns a photo to look at, as a JPEG of at most 1,600 pixels a side."""
    return _jpeg(service.resized(id_, _LARGE))


@router.get("/originals/{id_}")
def original(service: TheService, id_: Id) -> OriginalFile:
    """Returns the file of a photo with its EXIF data, if the server offers originals."""
    path = service.original(id_)
    kind = guess_type(path.name)[0] or "application/octet-stream"
    return OriginalFile(
        path, media_type=kind, filename=path.name, content_disposition_type="inline"
    )


@router.get("/thumbnails/{id_}")
def thumbnail(service: TheService, id_: Id) -> Response:
    """Returns a photo for the gallery, as a JPEG of at most 512 pixels a side."""
    return _jpeg(service.thumbnail(id_))


@router.get("/healthz")
def health(service: TheService, response: Response) -> dict[str, Any]:
    """Returns whether the server is ready: 200, or 503 while it stops or loads the model."""
    response.status_code = 200 if service.state == "ready" else 503
    counts = {"photos": len(service.index), "unreadable": len(service.index.broken())}
    return {"status": service.state, **counts, "server": service.id}


@router.get("/metrics")
def metrics(service: TheService) -> Response:
    """Returns counts of requests and their times, for Prometheus."""
    return Response(generate_latest(service.metrics.registry), media_type=CONTENT_TYPE_LATEST)


def _jpeg(data: bytes) -> Response:
    # Ids are never reused, and the page requests a version with `?v=`.
    return Response(
        data, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=3600"}
    )


_TEMPLATES = Environment(loader=PackageLoader("keras_xmr.search.server"), autoescape=True)
_MEDIA_TYPES = {
    "page.css": "text/css",
    **dict.fromkeys(("gallery.js", "viewer.js", "page.js"), "text/javascript"),
    "icon.svg": "image/svg+xml",
}


@router.get("/", include_in_schema=False)
def page(service: TheService) -> HTMLResponse:
    """Returns the page, with facts of the index."""
    template = _TEMPLATES.get_template("page.html")
    limits = {"max_text": MAX_TEXT, "max_parts": MAX_PARTS}
    return HTMLResponse(
        template.render(service=service, index=service.index, version=_version, **limits)
    )


@router.get("/static/{name}", include_in_schema=False)
def static(name: str) -> Response:
    """Returns a file of the page."""
    if name not in _MEDIA_TYPES:
        raise NotFoundError("unknown page")
    # The page requests `?v=`, which changes with the file.
    return Response(
        _content(name), media_type=_MEDIA_TYPES[name], headers={"Cache-Control": "max-age=86400"}
    )


@cache
def _content(name: str) -> bytes:
    return resources.files(__package__).joinpath("static", name).read_bytes()


def _version(name: str) -> str:
    """Returns the address of a file of the page, which changes with the file."""
    return f"/static/{name}?v={hashlib.sha256(_content(name)).hexdigest()[:12]}"
