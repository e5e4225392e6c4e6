"""Requests to a server that answers in JSON."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from keras_xmr.utils.errors import UserError


def post_json(url: str, body: Mapping[str, Any], request: str, timeout: float) -> Any:
    """Sends an object, and returns the answer.

    Args:
        url: The address, `http://` or `https://`.
        body: The object; bytes in it are sent as `{"b64": ...}`.
        request: Name of the request in errors.
        timeout: Maximum time, in seconds.

    Raises:
        UserError: If the server refuses, or gives no answer.
    """
    data = json.dumps(body, default=lambda data: {"b64": base64.b64encode(data).decode()})
    try:
        sent = urllib.request.Request(url, data.encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(sent, timeout=timeout) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise UserError(f"{url} refuses {request}: {_reason(error)}") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{url} gives no answer to {request}: {error}") from None


def _reason(error: urllib.error.HTTPError) -> str:
    """The message of the server under `error`, or its status."""
    try:
        return str(json.load(error)["error"])
    except (OSError, ValueError, KeyError, TypeError):
        return f"{error.code} {error.reason}"
