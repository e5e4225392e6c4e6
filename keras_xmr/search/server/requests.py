"""Requests of the server: their errors, limits and uploads, and models that check every field."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Annotated, Any

from fastapi import FastAPI, Request, Response, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
)
from starlette.exceptions import HTTPException

from data_pipelines.photo_files import UnreadableError
from data_pipelines.pixels import naming, open_image, reduced
from keras_xmr.search import MAX_COUNT, MAX_PARTS, Filters, Query
from keras_xmr.utils.errors import UserError

_LOG = logging.getLogger(__name__)
_MESSAGES = {404: "unknown page", 405: "this page does not accept this method"}


class BrokenImagesError(UserError):
    """Error of a request with invalid uploads alone.

    Args:
        uploads: The uploads, each with its error.
    """

    def __init__(self, uploads: Sequence[Upload]) -> None:
        super().__init__("; ".join(upload.error for upload in uploads))
        self.broken = [upload.refusal for upload in uploads]


class NotFoundError(UserError):
    """Error of an unknown photo or page."""

    status = 404


class OverloadedError(UserError):
    """Error of too many pending requests."""

    status = 503


def add_error_handlers(app: FastAPI) -> None:
    """Converts every error to a JSON object with a sentence under `error`."""
    for error in (UserError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(error, _respond)


def _respond(request: Request, error: Exception) -> Response:
    if isinstance(error, UserError):
        broken = getattr(error, "broken", None)
        return error_response(getattr(error, "status", 422), str(error), broken)
    if isinstance(error, RequestValidationError):
        return error_response(422, validation_sentence(error.errors()))
    if isinstance(error, HTTPException):
        sentence = _MESSAGES.get(error.status_code, str(error.detail))
        return error_response(error.status_code, sentence)
    _LOG.exception("%s %s failed", request.method, request.url.path, exc_info=error)
    return error_response(500, "internal error; see the server log")


def error_response(
    status: int, sentence: str, broken: Sequence[dict[str, str]] | None = None
) -> Response:
    """Returns the response of an error; unpaired surrogates become question marks.

    Args:
        status: Status of HTTP.
        sentence: The reason.
        broken: Names and errors of invalid uploads, where these are the reason.
    """
    content = {"error": sentence} | ({} if broken is None else {"broken": broken})
    text = json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")
    headers = {"Retry-After": "1"} if status == 503 else None
    return Response(text, status, headers, "application/json")


def validation_sentence(details: Sequence[Any]) -> str:
    """Returns the first error of pydantic: the field, and the reason, without the value."""
    first = details[0]
    if "Expected UploadFile" in first["msg"]:
        return "images: each must be a file of the form, with a file name"
    where = [str(step) for step in first["loc"] if step not in ("body", "query", "path")]
    reason = first["msg"].removeprefix("Value error, ")
    return f"{'.'.join(where)[:100] or 'the request'}: {reason}"


_MB = 1024**2


@dataclass(frozen=True)
class Settings:
    """Access to the server, and limits of requests.

    Attributes:
        title: Title of the page; default: the name of the folder of the photos.
        originals: Whether the original files of photos are offered.
        names: Allowed host names, in addition to addresses and localhost.
        max_body: Maximum bytes of a request with uploads.
        max_json: Maximum bytes of any other request.
        max_images: Maximum images per request.
        max_image_bytes: Maximum bytes per image.
        max_pixels: Maximum pixels per image.
        max_request_pixels: Maximum pixels of all images of a request.
        max_waiting: Maximum requests that wait for the model; others are rejected.
        max_batch: Maximum texts or images per batch of the model.
    """

    title: str = ""
    originals: bool = True
    names: frozenset[str] = field(default_factory=frozenset)
    max_body: int = 64 * _MB
    max_json: int = _MB // 4
    max_images: int = 8
    max_image_bytes: int = 20 * _MB
    max_pixels: int = 50_000_000
    max_request_pixels: int = 100_000_000
    max_waiting: int = 256
    max_batch: int = 32


Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Label = Annotated[str, StringConstraints(max_length=1000)]
Texts = Annotated[tuple[Text, ...], Field(max_length=MAX_PARTS)]


def _plain_number(value: Any) -> Any:
    """Refuses truth values, and texts of other characters than digits, which pydantic converts."""
    if isinstance(value, bool) or (isinstance(value, str) and not _DIGITS.fullmatch(value)):
        raise ValueError("give a whole number in digits")
    return value


def _plain_day(value: Any) -> Any:
    """Refuses numbers, which pydantic takes for seconds since 1970, and times."""
    if value is None or (isinstance(value, str) and _DAY.fullmatch(value)):
        return value
    raise ValueError("give a day such as 2024-12-31")


_DIGITS, _DAY = re.compile(r"-?[0-9]{1,20}"), re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")

PhotoId = Annotated[int, BeforeValidator(_plain_number), Field(ge=0, lt=2**63)]
Count = Annotated[int, BeforeValidator(_plain_number), Field(ge=1, le=MAX_COUNT)]
Day = Annotated[date | None, BeforeValidator(_plain_day)]


class FilterRequest(BaseModel):
    """Filters of the photos.

    Attributes:
        folder: Folder with its subfolders; empty for all.
        since: First day of the shot.
        until: Last day of the shot.
        tags: Required tags.
    """

    model_config = ConfigDict(extra="forbid")

    folder: Label = ""
    since: Day = None
    until: Day = None
    tags: Annotated[tuple[Label, ...], Field(max_length=MAX_PARTS)] = ()

    def filters(self) -> Filters:
        """Converts it to filters of the index."""
        return Filters(self.folder or None, self.since, self.until, self.tags)


class SampleRequest(FilterRequest):
    """Number and filters of the results.

    Attributes:
        count: Number of results.
    """

    count: Count = 20


class PhotosRequest(SampleRequest):
    """A page of photos, the newest first.

    Attributes:
        after: The field `next` of the previous page.
    """

    after: Annotated[str, StringConstraints(pattern=r"^([^ _]{0,40}_\d{1,18})?$")] = ""


class SearchRequest(SampleRequest):
    """A search.

    Attributes:
        texts: Texts to match.
        ids: Ids of photos of the index to match.
        unlike: Texts that results should not match.
    """

    texts: Texts = ()
    ids: Annotated[tuple[PhotoId, ...], Field(max_length=MAX_PARTS)] = ()
    unlike: Texts = ()

    def query(self, images: Sequence[bytes] = ()) -> Query:
        """Converts it to a query of the index, with image files to match."""
        return Query(texts=self.texts, images=tuple(images), ids=self.ids, unlike=self.unlike)


def parse_search(text: str) -> SearchRequest:
    """Parses a search in a field of a form, as JSON.

    Raises:
        UserError: If it is not valid.
    """
    try:
        return SearchRequest.model_validate(_parse_json(text or "{}"))
    except ValidationError as error:
        details: list[Any] = error.errors(include_url=False, include_context=False)
        raise UserError(validation_sentence(details)) from None


def _parse_json(content: str | bytes) -> Any:
    """Parses JSON.

    Raises:
        UserError: If it is not JSON, or an object has a key twice.
    """
    try:
        return json.loads(content, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        raise UserError("the request is not JSON") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entry: dict[str, Any] = {}
    for key, value in pairs:
        if key in entry:
            raise _twice(key)
        entry[key] = value
    return entry


def _twice(name: str) -> UserError:
    return UserError(f"{name[:100]}: given twice; give it once")


class _StrictRequest(Request):
    """A request whose JSON has each key once."""

    async def json(self) -> Any:
        try:
            return _parse_json(await self.body())
        except UserError as error:
            raise HTTPException(422, str(error)) from None


class StrictRoute(APIRoute):
    """A route that refuses what is given twice, of which otherwise the last would count."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Returns the handler of requests."""
        handle = super().get_route_handler()
        single = SearchRequest.model_fields.keys() - {"texts", "ids", "unlike", "tags"} | {"after"}

        async def handle_strictly(request: Request) -> Response:
            for name in single:
                if len(request.query_params.getlist(name)) > 1:
                    raise _twice(name)
            return await handle(_StrictRequest(request.scope, request.receive))

        return handle_strictly


_MAX_NAME = 100

_REDUCED = 4_000_000
"""Maximum pixels of an upload after it was decoded: more than any model reads."""


@dataclass(frozen=True)
class Upload:
    """An uploaded image.

    Attributes:
        name: The name by the client, shortened.
        data: The bytes of the file, or of a smaller JPEG.
        error: The reason if it is invalid, else empty.
    """

    name: str
    data: bytes = b""
    error: str = ""

    @property
    def refusal(self) -> dict[str, str]:
        """Name and error, as for clients."""
        return {"name": self.name, "error": self.error}


def read_uploads(files: Sequence[UploadFile], settings: Settings) -> list[Upload]:
    """Reads and decodes the files of a request one by one; invalid ones get an error.

    Format and size are read from the header first, and the rest only if they are valid.

    Raises:
        UserError: If the request has too many.
    """
    if len(files) > settings.max_images:
        raise UserError(f"{len(files)} images in one request; the limit is {settings.max_images}")
    uploads, pixels = [], 0
    for number, file in enumerate(files, 1):
        name = (file.filename or "")[:_MAX_NAME] or f"image {number}"
        # Of those that are too large, one byte more than the limit.
        data = file.file.read(settings.max_image_bytes + 1)
        try:
            pixels += _count_pixels(name, data, settings, pixels)
            uploads.append(Upload(name, reduced(data, name, _REDUCED)))
        except UnreadableError as error:
            uploads.append(Upload(name, error=str(error)))
    return uploads


def _count_pixels(name: str, data: bytes, settings: Settings, before: int) -> int:
    """Returns the pixels of an upload, by its header.

    Raises:
        UnreadableError: If it exceeds a limit, or with those before does.
    """
    if not data:
        raise UnreadableError(f"{name} is empty")
    if len(data) > settings.max_image_bytes:
        limit = settings.max_image_bytes
        raise UnreadableError(f"{name} is too large: the limit is {limit:,} bytes")
    with naming(data, name):
        image = open_image(data)
    pixels = image.width * image.height
    if pixels > settings.max_pixels:
        limit = settings.max_pixels
        raise UnreadableError(f"{name} has {pixels:,} pixels; the limit is {limit:,}")
    if before + pixels > settings.max_request_pixels:
        limit = settings.max_request_pixels
        raise UnreadableError(
            f"{name} and the images before it have {before + pixels:,} pixels; the limit of a "
            f"request is {limit:,}"
        )
    return pixels
