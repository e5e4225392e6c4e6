"""Errors of requests, with their status."""

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
_MESSAGES = {404: "unknown page", 405: "this page does not accept this method"}


class NotFoundError(UserError):
    """Error of an unknown photo or page."""

    status = 404


class OverloadedError(UserError):
    """Error of too many pending requests."""

    status = 503


def add_error_handlers(app: FastAPI) -> None:
    """Converts every error to a JSON object with a sentence under `error`."""
    for kind in (UserError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, _respond)


def _respond(request: Request, error: Exception) -> JSONResponse:
    if isinstance(error, UserError):
        return error_response(getattr(error, "status", 422), str(error))
    if isinstance(error, RequestValidationError):
        return error_response(422, validation_sentence(error.errors()))
    if isinstance(error, HTTPException):
        sentence = _MESSAGES.get(error.status_code, str(error.detail))
        return error_response(error.status_code, sentence)
    _LOG.exception("%s %s failed", request.method, request.url.path, exc_info=error)
    return error_response(500, "internal error; see the server log")


def error_response(status: int, sentence: str) -> JSONResponse:
    """The response of an error; unpaired surrogates become question marks."""
    text = sentence.encode("utf-8", "replace").decode("utf-8")
    headers = {"Retry-After": "1"} if status == 503 else None
    return JSONResponse({"error": text}, status, headers)


def validation_sentence(details: Sequence[Any]) -> str:
    """The first error of pydantic: the field, and the reason, without the value."""
    first = details[0]
    where = [str(part) for part in first["loc"] if part not in ("body", "query", "path")]
    return f"{'.'.join(where)[:100] or 'the request'}: {first['msg']}"
