"""Errors that a client is told of, with the status of the answer."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from data_pipelines.errors import UserError

_LOG = logging.getLogger(__name__)
_SAID = {404: "there is no such page", 405: "this page does not take such a request"}


class NotFoundError(UserError):
    """Something that is asked for is not in the index."""

    status = 404


class OverloadedError(UserError):
    """More requests wait than the server takes."""

    status = 503


def add_error_handlers(app: FastAPI) -> None:
    """Makes every error a JSON object with a sentence under `error`."""
    app.add_exception_handler(UserError, _user_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _defect)


def error_response(status: int, sentence: str) -> JSONResponse:
    """An error as clients see it; text that is no Unicode is shown with question marks."""
    text = sentence.encode("utf-8", "replace").decode("utf-8")
    headers = {"Retry-After": "1"} if status == 503 else None
    return JSONResponse({"error": text}, status, headers)


def _user_error(request: Request, error: Exception) -> JSONResponse:
    return error_response(getattr(error, "status", 422), str(error))


def _invalid(request: Request, error: Exception) -> JSONResponse:
    """Names the first field that is wrong, and does not repeat what was sent."""
    details = error.errors() if isinstance(error, RequestValidationError) else []
    return error_response(422, validation_sentence(details))


def validation_sentence(details: Sequence[Any]) -> str:
    """What pydantic has found wrong first: the field, and why."""
    if not details:
        return "the request cannot be read"
    first = details[0]
    where = [str(part) for part in first.get("loc", ()) if part not in ("body", "query", "path")]
    return f"{'.'.join(where)[:100] or 'the request'}: {first.get('msg', 'not valid')}"


def _http(request: Request, error: Exception) -> JSONResponse:
    status = error.status_code if isinstance(error, HTTPException) else 500
    detail = error.detail if isinstance(error, HTTPException) else ""
    return error_response(status, _SAID.get(status, str(detail)))


def _defect(request: Request, error: Exception) -> JSONResponse:
    _LOG.exception("%s %s failed", request.method, request.url.path, exc_info=error)
    return error_response(500, "the server failed at this request; its log says why")
